/** Writes docs/testing.md: how to test a config with fixtures, with all keys of fixture files from their schema. */
import { toFixturesJsonSchema } from '../src/diagnostics/simulate/fixtures.ts';
import { type Row, toRows, toTable } from './schema-rows.ts';

const INTRO = `# Test a config in CI

\`sidegate test FILE…\` sends simulated requests through a config and compares each decision with the one you expect, so that CI shows what a config accepts before you roll it out. The requests pass through the same code as in
production, from the bytes of the request head to the headers that the app gets. The command needs no ports, app, Redis, network or real secrets.

Start from [examples/fixtures.yaml](../examples/fixtures.yaml), which tests [examples/gate.yaml](../examples/gate.yaml). A short fixture file:

\`\`\`yaml
config: gate.yaml
now: 2026-01-01T12:00:00Z
secrets: # test secrets, used instead of those that the config refers to
  files: { secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw }
tests:
  - name: an event is handled once
    steps:
      - request: { path: /hooks/billing, json: { type: invoice.paid } }
        sign: { key: current, id: evt_1 }
        expect: { decision: forwarded, toApp: { headers: { Sidegate-Key: current } } }
      - at: 10m
        request: { path: /hooks/billing, json: { type: invoice.paid } }
        sign: { key: current, id: evt_1 }
        expect: duplicate
  - name: a changed body is rejected
    request: { path: /hooks/billing, json: { type: invoice.paid } }
    sign: { tamper: body }
    expect: { decision: signature_mismatch, status: 401 }
\`\`\`

Run it with \`sidegate test gate.test.yaml\`. It exits with 0 if all decisions are as expected.

**Real and simulated parts.** Everything after a connection is accepted is real: the HTTP parser and its limits, routes, keys, users and password hashes, deduplication, header rules, handshakes,
\`mode: observe\`, and the statuses that each sender gets. The fixture sets the time, the client's address, TLS and certificate, the app's responses, responses of remote URLs (\`remote\`), and secrets. The certificates and the Redis
of the config are not used; event IDs are kept in memory. The forward proxy, the forward-auth endpoint, the admin port, HTTP/2 and the PROXY protocol are not simulated.

**Time.** Each test starts at \`now\`, and time stops while a request is processed. \`at\` advances it: leases, bans and retention periods end, and keys expire. If sidegate waits, for the app or for
the outcome of another delivery, the simulator skips the waiting time.

**Signing.** \`sign\` signs a request with the scheme and a key of its route, so that you never write signatures by hand. For schemes with public keys, set \`sign.secret\` to the private key. To replay a captured delivery, omit
\`sign\`: set \`headers\` to its header fields, \`bodyFile\` or \`bodyBase64\` to its body, and \`now\` to the time of the capture. \`headers\` override generated headers, including those of
\`sign\`. If they contain \`Transfer-Encoding\`, the body is sent exactly as written.

**Secrets.** \`secrets\` replaces secrets, users files and directories that the config refers to, by the same name or path. sidegate reads those that are not listed as it would in production. Never put real secrets into fixtures.

**Results.** The exit code is 0 if all decisions are as expected, 1 if one differs, and 2 if a file is invalid or the command was used incorrectly. For each difference, the report shows its line, the expected and the actual result,
and what sidegate logged. A test ends at the first step that fails. The report ends with the routes that no test reached.

**Options.** \`--run PATTERN\` runs only the tests whose name matches a regular expression. \`--format json\` and \`--format junit\` print reports for programs; with \`--output FILE\` the report goes to the file and the text to the
terminal. \`sidegate schema --fixtures\` prints the JSON Schema for editors.

## Keys

A test is either one request with the keys below, or a list of \`steps\` with the same keys. This table is generated from the schema (\`npm run docs\`).

| key | value | default | meaning |
| --- | --- | --- | --- |
`;

const STEPS = 'tests[].steps[].';
const ONLY_OF_STEPS = `${STEPS}name`;
/** A list that is too long for the table. */
const DECISION_LIST = /^`forwarded`(?:, `[a-z_]+`)+/;

/** Renders the page. */
export function renderTestingPage(): string {
  const rows = toRows(toFixturesJsonSchema(), '').filter(({ key }) => !key.startsWith(STEPS) || key === ONLY_OF_STEPS);
  const shown = rows.map((row): Row => ({ ...row, value: row.value.replace(DECISION_LIST, '`forwarded` or a code') }));
  return INTRO + toTable(shown);
}
