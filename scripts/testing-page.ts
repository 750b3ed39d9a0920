/** Writes docs/testing.md: what fixture files are, with every key of theirs from their schema. */
import { toFixturesJsonSchema } from '../src/config/fixtures.ts';
import { type Row, toRows, toTable } from './schema-rows.ts';

const INTRO = `# Testing a config

\`sidegate test FILE…\` plays requests through a config and holds what becomes of them against what you expect, for your CI: before a config
is rolled out it is known what it lets through. The requests pass the very gate that the config makes, from the bytes of their head to
the header that the app would get; nothing is judged a second time for tests. There are no ports, no app, no Redis and no network.
[examples/fixtures.yaml](../examples/fixtures.yaml) tests
[examples/gate.yaml](../examples/gate.yaml) and is a place to start from. This page is written from the schema (\`npm run docs\`).

\`\`\`yaml
config: gate.yaml
now: 2026-01-01T12:00:00Z
secrets: # test secrets, in the place of those that the config refers to
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
  - name: a changed body is refused
    request: { path: /hooks/billing, json: { type: invoice.paid } }
    sign: { tamper: body }
    expect: { verdict: signature_mismatch, status: 401 }
\`\`\`

**What is real.** Everything behind the accept of a connection: the HTTP parser and its limits, routes, gates, keys, users and hashes, the
dedup of ids, header rules, handshakes, \`mode: observe\`, the statuses that each sender gets. **What is set up** by the fixture: the time, the
client's address, TLS and certificate, what the app answers, what the gate would fetch from elsewhere (\`remote\`), and secrets. Certificates
and Redis of the config are not needed; ids are remembered in memory. The forward proxy, the forward-auth endpoint, the admin port, HTTP/2
and the PROXY protocol are not played.

**Time** stands still while the gate works, and starts anew at \`now\` with each test. \`at\` moves it on, through all that happens before: leases
end, bans and retentions run out, keys expire. Where the gate itself waits, for an app or for the outcome of another delivery, the time
passes at once.

**Signing.** \`sign\` signs with the route's own scheme and key, so that no fixture holds a signature that nobody can make again. Public keys only
verify: \`sign.secret\` takes the private half. Captured deliveries need no \`sign\`: give their fields as \`headers\`, their bytes as \`bodyFile\` or
\`bodyBase64\`, and the time of their capture as the test's \`now\`. \`headers\` stand in the place of fields that would be written otherwise, those
of \`sign\` too; with a \`Transfer-Encoding\` of your own the content is sent as it is written.

**Secrets.** Each secret, users file or directory that the config refers to can be given under \`secrets\`, by the name or the path that the
config has. What is not given is read as the gate would read it. Never put real ones there.

**Results.** Exit 0: all as expected. 1: something is not; the report says where, what was expected, what came, and what the gate's log
says of it. 2: something could not be played, by a mistake in a file or in how the command was used. The first step that fails ends its
test. \`--run PATTERN\` plays the tests whose name matches a regular expression; \`--format json\` and \`--format junit\` are for programs, and with
\`--output FILE\` people still get their text. Routes that no test has reached are named at the end. \`sidegate schema --fixtures\` prints the
JSON Schema for editors.

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
