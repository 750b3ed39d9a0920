/** Writes docs/testing.md: what fixture files are, with every key of theirs from their schema. */
import { toFixturesJsonSchema } from '../src/diagnostics/simulate/fixtures.ts';
import { type Row, toRows, toTable } from './schema-rows.ts';

const INTRO = `# Test a config in CI

\`sidegate test FILE…\` runs requests through a config and compares the decisions with those you expect. So you know what a config accepts before you roll it out. The requests pass through the same code as in production, from
the bytes of the request head to the headers that the app would get. The command needs no ports, app, Redis, network or real secrets.

[examples/fixtures.yaml](../examples/fixtures.yaml) tests [examples/gate.yaml](../examples/gate.yaml) and is a good starting point. This page is generated from the schema (\`npm run docs\`).

\`\`\`yaml
config: gate.yaml
now: 2026-01-01T12:00:00Z
secrets: # test secrets, used instead of those that the config refers to
  env: { BILLING_SECRET: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw }
tests:
  - name: an event is handled once
    steps:
      - request: { path: /hooks/billing, json: { type: invoice.paid } }
        sign: { key: current, id: evt_1 }
        expect: { verdict: forwarded, toApp: { headers: { Sidegate-Key: current } } }
      - at: 10m
        request: { path: /hooks/billing, json: { type: invoice.paid } }
        sign: { key: current, id: evt_1 }
        expect: duplicate
  - name: a changed body is rejected
    request: { path: /hooks/billing, json: { type: invoice.paid } }
    sign: { tamper: body }
    expect: { verdict: signature_mismatch, status: 401 }
\`\`\`

**Real and simulated parts.** Everything after a connection is accepted is real: the HTTP parser and its limits, routes, keys, users and password hashes, deduplication, header rules, handshakes,
\`mode: observe\`, and the statuses that each sender gets. The fixture sets the time, the client's address, TLS and certificate, the app's responses, responses of remote URLs (\`remote\`), and secrets. Certificates and Redis
of the config are not needed; event IDs are kept in memory. The forward proxy, the forward-auth endpoint, the admin port, HTTP/2 and the PROXY protocol are not simulated.

**Time** stands still while a request is processed, and starts at \`now\` in each test. \`at\` advances it: leases, bans and retention periods end, and keys expire. When sidegate itself waits, for the app or for
the outcome of another delivery, that time passes at once.

**Signing.** \`sign\` signs with the route's own scheme and key, so fixtures contain no signatures that nobody can recreate. For schemes with public keys, \`sign.secret\` takes the private key. Captured deliveries need no
\`sign\`: give their header fields as \`headers\`, their body as \`bodyFile\` or \`bodyBase64\`, and the time of the capture as \`now\`. \`headers\` replace headers that would be generated, including those of
\`sign\`; with your own \`Transfer-Encoding\`, the body is sent as it is written.

**Secrets.** \`secrets\` can replace each secret, users file or directory that the config refers to, by the same name or path. Others are read as sidegate would read them. Never put real secrets into fixtures.

**Results.** Exit code 0: all decisions are as expected. 1: a decision differs; the report shows where, the expected and the actual result, and what sidegate logged. 2: a file has an error or the command was used
incorrectly. The first step that fails ends its test. \`--run PATTERN\` runs the tests whose name matches a regular expression. \`--format json\` and \`--format junit\` are for programs; with \`--output FILE\` the text still
goes to the terminal. The report ends with the routes that no test reached. \`sidegate schema --fixtures\` prints the JSON Schema for editors.

Each test is either one request, with the keys below, or a list of \`steps\` that have them.

| key | value | default | meaning |
| --- | --- | --- | --- |
`;

const STEPS = 'tests[].steps[].';
const ONLY_OF_STEPS = `${STEPS}name`;
/** A list that would fill the page. */
const VERDICT_LIST = /^`forwarded`(?:, `[a-z_]+`)+/;

/** The page as it should be. */
export function renderTestingPage(): string {
  const rows = toRows(toFixturesJsonSchema(), '').filter(({ key }) => !key.startsWith(STEPS) || key === ONLY_OF_STEPS);
  const shown = rows.map((row): Row => ({ ...row, value: row.value.replace(VERDICT_LIST, '`forwarded` or a code') }));
  return INTRO + toTable(shown);
}
