import { execFileSync, spawnSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { testConfigs } from '../../src/cli/test.ts';
import { PRESETS } from '../../src/verify/presets/catalogue.ts';
import type { SchemeDescription } from '../../src/verify/schemes/description.ts';
import { send } from '../support/client.ts';
import { makeDelivery, SECRET, signV1, unixNow } from '../support/deliveries.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { type Sections, startGate, until } from '../support/gate.ts';
import { recordIo } from '../support/io.ts';
import { LAUNCHER } from '../support/process.ts';
import { makeEntry } from '../support/users.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const folder = useFolder();
const app = useApp();

const UPSTREAM = 'http://127.0.0.1:3000';
const BILLING = {
  name: 'billing',
  match: { path: '/hooks/billing' },
  upstream: UPSTREAM,
  webhook: {
    maxBody: '1Ki',
    keys: [
      { name: 'new', secret: { env: 'FIXTURES_NEW' } },
      { name: 'old', secret: { file: 'old' } },
    ],
  },
};
const SECRETS = { env: { FIXTURES_NEW: SECRET }, files: { old: 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD' } };
const REQUEST = { path: '/hooks/billing', json: { type: 'invoice.paid' } };

let files = 0;

/** Writes a config and its fixtures, and gives the path of the latter. */
function write(config: Sections, fixtures: Sections): string {
  const name = `${++files}`;
  writeFileSync(join(folder, `${name}-gate.yaml`), stringify(config));
  const file = join(folder, `${name}.yaml`);
  writeFileSync(file, stringify({ config: `${name}-gate.yaml`, ...fixtures }));
  return file;
}

interface Told {
  readonly exit: number;
  readonly text: string;
}

async function run(file: string | readonly string[], options: Partial<Parameters<typeof testConfigs>[1]> = {}): Promise<Told> {
  const { io, stdout } = recordIo();
  const exit = await testConfigs([file].flat(), { format: 'text', ...options }, io);
  return {
    exit,
    text: stdout()
      .replaceAll(`${folder}/`, '')
      .replaceAll(/\(\S*gate\.yaml\)/g, '(gate.yaml)')
      .replaceAll(/ in \S*gate\.yaml:/g, ' in gate.yaml:'),
  };
}

/** One test of the billing route. */
function playBilling(...steps: readonly Sections[]): Promise<Told> {
  return run(write({ routes: [BILLING] }, { secrets: SECRETS, tests: [{ name: 'it', steps }] }));
}

function playRoute(route: Sections, steps: readonly Sections[], more: Sections = {}): Promise<Told> {
  const { secrets, ...sections } = more;
  const config = { ...sections, routes: [{ name: 'it', match: { pathPrefix: '/' }, upstream: UPSTREAM, ...route }] };
  return run(write(config, { secrets: secrets ?? {}, tests: [{ name: 'it', steps }] }));
}

const PASSED: Told = { exit: 0, text: expect.stringContaining('SUCCESS: 1 passed, 0 failed\n') as string };

test('the example of the README passes in a separate process', () => {
  const { stdout, status } = spawnSync(process.execPath, [LAUNCHER, 'test', 'examples/fixtures/fixtures.yaml'], {
    cwd: ROOT,
    encoding: 'utf8',
    env: { PATH: process.env['PATH'] },
  });
  expect(stdout).toMatch(
    /^examples\/fixtures\/fixtures\.yaml \(examples\/fixtures\/gate\.yaml\)\n(?: {2}ok {8}.+\n){14}SUCCESS: 14 passed, 0 failed\n$/,
  );
  expect(status).toBe(0);
});

describe('decisions are those of the gate', () => {
  const json = { 'Content-Type': 'application/json' };
  test.each<[string, string, Sections]>([
    ['forwarded', 'what the first key signed', { request: REQUEST, sign: true }],
    ['forwarded', 'what another key signed', { request: REQUEST, sign: { key: 'old' } }],
    ['forwarded', 'what is just old enough', { request: REQUEST, sign: { timestampOffset: '-300s' } }],
    ['forwarded', 'what is just new enough', { request: REQUEST, sign: { timestampOffset: '300s' } }],
    ['missing_signature', 'what nobody signed', { request: { ...REQUEST, headers: json } }],
    ['missing_signature', 'what GitHub would send', { request: REQUEST, sign: { scheme: 'github', secret: 'anything at all' } }],
    [
      'malformed_signature',
      'a field of the fixture',
      { request: { ...REQUEST, headers: { 'Webhook-Signature': 'v1,short' } }, sign: true },
    ],
    [
      'malformed_signature',
      'a field of two lines',
      { request: { ...REQUEST, headers: { 'Webhook-Id': ['a', 'b'] } }, sign: true },
    ],
    [
      'signature_mismatch',
      'another sender',
      { request: REQUEST, sign: { secret: `whsec_${Buffer.alloc(24, 1).toString('base64')}` } },
    ],
    ['signature_mismatch', 'another body', { request: REQUEST, sign: { tamper: 'body' } }],
    ['signature_mismatch', 'another id', { request: REQUEST, sign: { tamper: 'id' } }],
    ['signature_mismatch', 'another time', { request: REQUEST, sign: { tamper: 'timestamp' } }],
    ['signature_mismatch', 'another signature', { request: REQUEST, sign: { tamper: 'signature' } }],
    ['timestamp_outside_tolerance', 'what is too old', { request: REQUEST, sign: { timestampOffset: '-301s' } }],
    ['timestamp_outside_tolerance', 'what is too new', { request: REQUEST, sign: { timestampOffset: '+301s' } }],
    ['unsupported_media_type', 'plain text', { request: { ...REQUEST, headers: { 'Content-Type': 'text/plain' } }, sign: true }],
    ['unsupported_media_type', 'gzip', { request: { ...REQUEST, headers: { 'Content-Encoding': 'gzip' } }, sign: true }],
    ['body_too_large', 'a large body', { request: { path: '/hooks/billing', body: 'x'.repeat(1025) }, sign: true }],
    ['malformed_request', 'a query', { request: { ...REQUEST, path: '/hooks/billing?x=1' }, sign: { route: 'billing' } }],
    ['malformed_request', 'an empty segment', { request: { ...REQUEST, path: '/hooks//billing' } }],
    ['malformed_request', 'two lengths', { request: { ...REQUEST, headers: { 'Content-Length': ['1', '2'] } } }],
    ['malformed_request', 'a Host that is none', { request: { ...REQUEST, headers: { Host: 'a b' } } }],
    ['route_not_found', 'another path', { request: { path: '/' } }],
    ['method_not_allowed', 'another method', { request: { ...REQUEST, method: 'PUT' } }],
    ['target_too_long', 'a long path', { request: { path: `/${'x'.repeat(8192)}` } }],
    ['header_too_large', 'a long field', { request: { path: '/', headers: { X: 'x'.repeat(17_000) } } }],
    ['expectation_failed', 'an expectation', { request: { path: '/', headers: { Expect: 'miracles' } } }],
    ['upstream_away', 'an app that is not there', { request: REQUEST, sign: true, app: { fails: 'connect' } }],
    ['upstream_unreachable', 'an app that dies', { request: REQUEST, sign: true, app: { fails: 'reset' } }],
    ['upstream_timeout', 'an app that hangs', { request: REQUEST, sign: true, app: { fails: 'timeout' } }],
    ['upstream_timeout', 'an app that is too slow', { request: REQUEST, sign: true, app: { after: '15001ms' } }],
    ['forwarded', 'an app that is nearly too slow', { request: REQUEST, sign: true, app: { after: '15s' } }],
    ['upstream_invalid_response', 'an app that speaks no HTTP', { request: REQUEST, sign: true, app: { fails: 'protocol' } }],
  ])('%s: %s', async (decision, _what, step) => {
    expect(await playBilling({ ...step, expect: decision })).toMatchObject(PASSED);
  });

  test('a delivery signed by other code is valid at its own time, and stale at another', async () => {
    const { headers, body } = makeDelivery({ id: 'evt_7', timestamp: 1_700_000_000, body: '{"a": 1}\n' });
    const request = { method: 'POST', path: '/hooks/billing', headers, bodyBase64: body.toString('base64') };
    const told = await run(
      write(
        { routes: [BILLING] },
        {
          secrets: SECRETS,
          tests: [
            { name: 'now', now: '2023-11-14T22:13:20Z', request, expect: { decision: 'forwarded', id: 'evt_7', key: 'new' } },
            { name: 'later', request, expect: { decision: 'timestamp_outside_tolerance', reason: 'timestamp_old' } },
          ],
        },
      ),
    );
    expect(told).toMatchObject({ exit: 0, text: expect.stringContaining('2 passed') });
    expect(headers['Webhook-Signature']).toBe(signV1('evt_7', 1_700_000_000, body));
  });
});

test('the simulator decides and responds like a gate on the network', async () => {
  const route = {
    ...BILLING,
    upstream: `http://127.0.0.1:${app.port}`,
    webhook: { keys: [{ name: 'k', secret: { file: 'secret' } }] },
  };
  const gate = await startGate({ routes: [route] });
  const genuine = makeDelivery();
  const { 'Webhook-Signature': _, ...unsigned } = genuine.headers;
  const forged = { ...genuine.headers, 'Webhook-Signature': signV1(genuine.id, unixNow(), Buffer.from('other')) };
  const deliveries = [
    { headers: forged, body: genuine.body },
    genuine,
    genuine,
    { headers: unsigned, body: genuine.body },
    makeDelivery({ timestamp: unixNow() - 400 }),
    makeDelivery({ timestamp: unixNow() + 400 }),
    makeDelivery({ timestamp: 'now' }),
    makeDelivery({ id: 'with.dot' }),
    { headers: { ...genuine.headers, 'Content-Encoding': 'br' }, body: genuine.body },
    makeDelivery({ body: Buffer.alloc(1_048_577, 32) }),
  ];
  const steps: Sections[] = [];
  for (const { headers, body } of deliveries) {
    const answer = await send(gate.port, { headers, body });
    const line = await until(() => gate.log().filter(({ msg }) => msg === 'request')[steps.length]);
    writeFileSync(join(folder, `body-${steps.length}`), body);
    const request = { method: 'POST', path: '/hooks/billing', headers, bodyFile: `body-${steps.length}` };
    steps.push({ request, expect: { decision: line['code'], reason: line['reason'], status: answer.status } });
  }
  expect(new Set(steps.map((step) => (step['expect'] as Sections)['decision'])).size).toBe(8);
  const now = new Date().toISOString();
  const told = await run(
    write({ routes: [route] }, { now, secrets: { files: { secret: SECRET } }, tests: [{ name: 'it', steps }] }),
  );
  expect(told).toMatchObject(PASSED);
  await gate.stop();
});

describe('the steps of a test', () => {
  const delivery = { request: REQUEST, sign: { id: 'evt_1' } };

  test('share the memory of the gate, until an ID is forgotten', async () => {
    const told = await playBilling(
      { ...delivery, app: { status: 500 }, expect: { decision: 'forwarded', status: 500 } },
      { ...delivery, expect: 'forwarded' },
      { ...delivery, repeat: 5, expect: { decision: 'duplicate', toApp: undefined } },
      { at: '71h', ...delivery, expect: 'duplicate' },
      { at: '73h', ...delivery, expect: 'forwarded' },
    );
    expect(told).toMatchObject(PASSED);
  });

  test('wait like the gate: for the outcome of the first run, and for the end of its lease', async () => {
    const told = await playBilling(
      { ...delivery, app: { fails: 'timeout' }, expect: { decision: 'upstream_timeout', status: 504 } },
      { ...delivery, expect: { decision: 'in_progress', status: 503, toSender: { headers: { 'Retry-After': true } } } },
      { at: '59s', ...delivery, sign: { id: 'evt_1', timestampOffset: '-59s' }, expect: 'forwarded' },
    );
    // The claim of a minute ends while the third delivery waits for it.
    expect(told).toMatchObject(PASSED);
  });

  test('are isolated from other tests', async () => {
    const tests = ['one', 'two'].map((name) => ({ name, ...delivery, expect: 'forwarded' }));
    expect(await run(write({ routes: [BILLING] }, { secrets: SECRETS, tests }))).toMatchObject({ exit: 0 });
  });

  test('get generated IDs if they set none, the same in each run', async () => {
    const step = { request: REQUEST, sign: true };
    const told = await playBilling(
      { ...step, expect: { decision: 'forwarded', id: 'fixture-1-1' } },
      { ...step, expect: { decision: 'forwarded', id: 'fixture-1-2' } },
    );
    expect(told).toMatchObject(PASSED);
  });
});

describe('a route with a password', () => {
  const basic = { realm: 'it', users: { file: '/etc/users' }, limit: { failures: 3, per: '1m', ban: '5m' } };
  const secrets = { files: { '/etc/users': makeEntry('ada', 'open sesame') } };
  const ada = { path: '/', tls: true, user: 'ada', password: 'open sesame' };

  test('allows users with the password, forwards the name, and counts wrong passwords', async () => {
    const told = await playRoute(
      { basic },
      [
        {
          request: ada,
          expect: { decision: 'forwarded', user: 'ada', toApp: { headers: { 'Sidegate-User': 'ada', Authorization: false } } },
        },
        {
          request: { path: '/', tls: true },
          expect: { decision: 'credentials_required', reason: 'no_credentials', status: 401 },
        },
        { request: { ...ada, tls: false }, expect: 'tls_required' },
        {
          request: { ...ada, password: 'x' },
          repeat: 3,
          expect: { decision: 'credentials_required', reason: 'bad_credentials' },
        },
        { request: { ...ada, password: 'y', client: '192.0.2.9' }, expect: { decision: 'too_many_attempts', reason: 'banned' } },
        { at: '6m', request: ada, expect: 'forwarded' },
      ],
      { secrets, listen: { trustedProxies: ['10.0.0.0/8'] } },
    );
    expect(told).toMatchObject(PASSED);
  });
});

describe('the client', () => {
  const tls = { certFile: '/nowhere', keyFile: '/nowhere', clientCaFile: '/nowhere', clientCertificate: 'request' };

  test('can be set with a certificate, whose files need not exist', async () => {
    const names = ['CN:x', 'DNS:client.example', 'URI:spiffe://prod/a,b'];
    const told = await playRoute(
      { clientCertificate: { names: ['URI:spiffe://prod/a,b'], forward: true } },
      [
        {
          request: { path: '/', certificate: names },
          expect: { decision: 'forwarded', certificate: 'URI:spiffe://prod/a,b', toApp: { headers: { 'Client-Cert': true } } },
        },
        { request: { path: '/', certificate: ['DNS:client.example'] }, expect: { decision: 'certificate_required' } },
        { request: { path: '/' }, expect: { decision: 'certificate_required', reason: 'no_certificate' } },
      ],
      { listen: { tls } },
    );
    expect(told).toMatchObject(PASSED);
  });

  test('is taken only from trusted proxies, and the PROXY protocol counts as handled', async () => {
    const forwarded = { 'X-Forwarded-For': '203.0.113.7', 'X-Forwarded-Proto': 'https' };
    const told = await playRoute(
      { allow: 'anyone' },
      [
        {
          request: { path: '/a?b=c', client: '10.0.0.1', headers: forwarded },
          expect: {
            decision: 'forwarded',
            toApp: { path: '/a?b=c', headers: { 'X-Forwarded-For': '203.0.113.7, 10.0.0.1', 'X-Forwarded-Proto': 'https' } },
          },
        },
        {
          request: { path: '/', client: '2001:db8::1', headers: forwarded },
          expect: {
            decision: 'forwarded',
            toApp: { headers: { 'X-Forwarded-For': '2001:db8::1', 'X-Forwarded-Proto': 'http' } },
          },
        },
      ],
      { listen: { trustedProxies: ['10.0.0.0/8'], proxyProtocol: { from: ['10.0.0.0/8'] } } },
    );
    expect(told).toMatchObject(PASSED);
  });
});

test('the response of the app reaches the sender, and the request reaches the app unchanged', async () => {
  const told = await playRoute({ allow: 'anyone' }, [
    {
      request: {
        method: 'PATCH',
        path: '/',
        headers: { 'X-Twice': ['1', '2'] },
        bodyBase64: Buffer.from('grüße').toString('base64'),
      },
      app: { status: 201, headers: { 'X-App': ['a', 'b'], Location: '/1' }, body: 'made' },
      expect: {
        decision: 'forwarded',
        status: 201,
        toApp: { body: 'grüße', headers: { 'X-Twice': ['1', '2'], 'Content-Length': '7' } },
        toSender: { body: 'made', headers: { 'X-App': ['a', 'b'], Location: true, Server: false } },
      },
    },
    {
      request: { method: 'POST', path: '/', headers: { 'Transfer-Encoding': 'chunked' }, body: '3\r\nabc\r\n0\r\n\r\n' },
      expect: { decision: 'forwarded', toApp: { body: 'abc', headers: { 'Transfer-Encoding': 'chunked' } } },
    },
    {
      request: { method: 'HEAD', path: '/' },
      app: { body: 'unseen' },
      expect: { decision: 'forwarded', toSender: { body: '', headers: { 'Content-Length': '6' } } },
    },
    { request: { path: '/' }, app: 304, expect: { decision: 'forwarded', status: 304 } },
    {
      request: { path: '/', headers: { Connection: 'Upgrade', Upgrade: 'websocket' } },
      app: 426,
      expect: { decision: 'forwarded', status: 426, toApp: { headers: { Upgrade: 'websocket' } } },
    },
  ]);
  expect(told).toMatchObject(PASSED);
});

test('a route with ack: onAccept accepts whatever the app does, which gets each event once', async () => {
  const route = { ...BILLING, webhook: { ...BILLING.webhook, ack: 'onAccept' } };
  const provider = { queue: { sqlite: { path: join(folder, 'never.db'), allowVolatile: true } } };
  const signed = { request: REQUEST, sign: { key: 'new', id: 'evt_1' } };
  const toApp = {
    path: '/hooks/billing',
    headers: { 'Sidegate-Key': 'new', 'webhook-id': 'evt_1' },
    body: '{"type":"invoice.paid"}',
  };
  const steps = [
    { ...signed, app: 503, expect: { decision: 'forwarded', status: 202, toApp } },
    { ...signed, at: '10m', expect: 'signature_mismatch' },
    { ...signed, at: '10m', expect: 'duplicate' },
  ];
  const { exit, text } = await run(
    write({ routes: [route], provider }, { secrets: SECRETS, tests: [{ name: 'queued', steps }] }),
  );
  // Only the second step is wrong.
  expect([exit, text]).toEqual([1, expect.stringMatching(/in step 2[^]*actual +"duplicate"/)]);
  expect(existsSync(join(folder, 'never.db'))).toBe(false);
});

test('an observed route forwards everything, and reports what it would have rejected', async () => {
  const told = await playRoute(
    { mode: 'observe', webhook: BILLING.webhook },
    [{ request: REQUEST, sign: { tamper: 'body' }, expect: { decision: 'forwarded', observed: 'signature_mismatch' } }],
    { secrets: SECRETS },
  );
  expect(told).toMatchObject(PASSED);
});

test('only the gate answers a handshake, only with its secret', async () => {
  const webhook = {
    scheme: 'microsoft-graph',
    keys: [{ name: 'state', secret: { env: 'GRAPH_STATE' } }],
    handshake: { verifyToken: { env: 'GRAPH_TOKEN' } },
  };
  const token = 'a token of some length';
  const ask = (given: string): Sections => ({
    method: 'POST',
    path: `/?token=${encodeURIComponent(given)}&validationToken=Validation%3A+1`,
    headers: { 'Content-Type': 'text/plain' },
  });
  const told = await playRoute(
    { webhook },
    [
      { request: ask(token), expect: { decision: 'handshake', status: 200, toSender: { body: 'Validation: 1' } } },
      { request: ask('another'), expect: { decision: 'handshake_refused', status: 403 } },
    ],
    { secrets: { env: { GRAPH_STATE: 'a state of some length', GRAPH_TOKEN: token } } },
  );
  expect(told).toMatchObject(PASSED);
});

test('an event that is older than a handled one is stale', async () => {
  const order = { key: '$.id', version: '$.version' };
  const send = (version: number, expected: Sections): Sections => ({
    request: { path: '/', json: { id: 'r', version } },
    sign: true,
    expect: expected,
  });
  const told = await playRoute(
    { webhook: { ...BILLING.webhook, order } },
    [send(2, { decision: 'forwarded' }), send(1, { decision: 'stale', status: 200 }), send(3, { decision: 'forwarded' })],
    { secrets: SECRETS },
  );
  expect(told).toMatchObject(PASSED);
});

test('nothing is fetched: keys must be in the fixtures', async () => {
  const region = 'https://sns.eu-west-1.amazonaws.com';
  const message = {
    Type: 'Notification',
    MessageId: '1',
    TopicArn: 'arn:aws:sns:eu-west-1:123456789012:topic',
    Message: 'x',
    Timestamp: '2026-01-01T00:00:00.000Z',
    SignatureVersion: '2',
    Signature: Buffer.alloc(256).toString('base64'),
    SigningCertURL: `${region}/SimpleNotificationService-1.pem`,
  };
  const route = { webhook: { scheme: 'aws-sns', sns: { topics: [message.TopicArn] } } };
  const step = { request: { path: '/', json: message } };
  const told = await playRoute(route, [{ ...step, expect: { decision: 'secret_unavailable', status: 503 } }]);
  expect(told).toMatchObject(PASSED);
  const failed = await playRoute(route, [{ ...step, expect: 'forwarded' }]);
  expect(failed.text).toContain('the simulator does not fetch, and the fixtures do not contain this URL');
});

describe('every preset that signs', () => {
  const publicUrl = 'https://hooks.example.com';
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const pem = {
    signing: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    verifying: publicKey.export({ type: 'spki', format: 'pem' }).toString(),
  };
  // Those that put the secret into the content have nothing that signs; those with the signature there cannot be tampered with.
  const signing = PRESETS.filter(({ signature, jwt }) => signature !== undefined && signature.header !== '' && jwt === undefined);
  // Nor can one content hold the time that each of the others writes into it.
  const isTimeInContent = ({ timestamp }: SchemeDescription): boolean => timestamp !== undefined && 'json' in timestamp.from;
  const symmetric = signing
    .filter((preset) => !isTimeInContent(preset))
    .filter(({ signature }) => signature?.forms.some(({ algorithm }) => !/^[er]/.test(algorithm)));

  test.each(symmetric.map((preset) => [preset.name, preset] as const))(
    'can be signed and tampered with: %s',
    async (name, preset) => {
      // Good as text, as hex and as base64.
      const secret = preset.secret.prefix === 'whsec_' ? SECRET : '0123456789abcdef'.repeat(3);
      const signsUrl = preset.signed.includes('url') || preset.contentDigestParameter !== undefined;
      const isToken = preset.signature?.forms.some(({ algorithm }) => algorithm === 'token') === true;
      const webhook = {
        scheme: name,
        keys: [{ name: 'k', secret: { env: 'PRESET_SECRET' } }],
        dedup: 'off',
        ...(signsUrl ? { publicUrl } : {}),
      };
      const isForm = preset.signed.includes('form') || !preset.contentTypes.includes('application/json');
      const request = { method: 'POST', path: '/', body: isForm ? 'a=b' : '{"id":"1","event_id":"1"}' };
      const step = { request };
      const told = await playRoute(
        // Twilio's form needs an exact path.
        { webhook, match: { path: '/' } },
        [
          { ...step, sign: true, expect: { decision: 'forwarded', key: 'k' } },
          { ...step, sign: { tamper: 'body' }, expect: isToken ? 'forwarded' : 'signature_mismatch' },
          { ...step, sign: { tamper: 'signature' }, expect: 'signature_mismatch' },
          ...(preset.timestamp === undefined ? [] : [{ ...step, sign: { tamper: 'timestamp' }, expect: 'signature_mismatch' }]),
        ],
        { secrets: { env: { PRESET_SECRET: secret } } },
      );
      expect(told).toMatchObject(PASSED);
    },
  );

  test('that verifies with a public key requires the private key, and reports it', async () => {
    const webhook = { keys: [{ name: 'k', secret: { env: 'PRESET_SECRET' } }] };
    const secrets = { env: { PRESET_SECRET: pem.verifying } };
    const request = REQUEST;
    const told = await playRoute(
      { webhook },
      [{ request, sign: { secret: pem.signing }, expect: { decision: 'forwarded', key: 'k' } }],
      { secrets },
    );
    expect(told).toMatchObject(PASSED);
    const without = await playRoute({ webhook }, [{ request, sign: true, expect: 'forwarded' }], { secrets });
    expect(without.exit).toBe(2);
    expect(without.text).toMatch(/key k cannot sign: .*\n.*hint: put the private key into sign: \{ secret: … \}/);
  });
});

describe('a failure', () => {
  test('shows the place, the expected and the actual value, and the reason', async () => {
    const file = write(
      { routes: [BILLING, { name: 'never', match: { path: '/never' }, upstream: UPSTREAM, allow: 'anyone' }] },
      {
        secrets: SECRETS,
        tests: [
          { name: 'right', request: REQUEST, sign: true, expect: 'forwarded' },
          { name: 'wrong decision', request: REQUEST, sign: { timestampOffset: '-1h' }, expect: 'forwarded' },
          {
            name: 'wrong in the second step',
            steps: [
              { request: REQUEST, sign: true, expect: 'forwarded' },
              {
                name: 'the odd one',
                request: REQUEST,
                sign: { key: 'old' },
                repeat: 2,
                app: { status: 202, headers: { 'X-A': '1' } },
                expect: {
                  decision: 'forwarded',
                  key: 'new',
                  status: 200,
                  route: 'other',
                  user: 'ada',
                  toApp: { path: '/x', headers: { 'Sidegate-Key': 'new', 'X-None': true, 'Sidegate-Route': false }, body: 'y' },
                  toSender: { headers: { 'X-A': ['1', '2'] }, body: 'z' },
                },
              },
              { request: REQUEST, expect: 'forwarded' },
            ],
          },
          { name: 'nothing came', request: { path: '/' }, expect: { decision: 'route_not_found', toApp: {} } },
          { name: 'cannot be signed', request: REQUEST, sign: { key: 'nwe' }, expect: 'forwarded' },
        ],
      },
    );
    const { exit, text } = await run(file);
    await expect(text.replace(/^\d+\.yaml/gm, 'fixtures.yaml').replace(/ \d+\.yaml:/g, ' fixtures.yaml:')).toMatchFileSnapshot(
      join(ROOT, 'test', 'golden', 'fixtures', 'failures.txt'),
    );
    expect(exit).toBe(2);
    expect((await run(file, { run: 'wrong' })).exit).toBe(1);
    expect((await run(file, { run: '^right$' })).text).toMatch(/SUCCESS: 1 passed, 0 failed\n$/);
  });

  test('is also in JUnit and JSON', async () => {
    const file = write(
      { routes: [BILLING] },
      {
        secrets: SECRETS,
        tests: [
          { name: 'right', request: REQUEST, sign: true, expect: 'forwarded' },
          { name: 'wrong <&"\u0001', request: REQUEST, sign: true, expect: 'duplicate' },
        ],
      },
    );
    const broken = join(folder, 'broken.yaml');
    writeFileSync(broken, 'config: nowhere.yaml\ntests: [{ name: a, request: { path: / }, expect: forwarded }]\n');
    const output = join(folder, 'report.xml');
    const { exit, text } = await run([file, broken], { format: 'junit', output });
    expect(exit).toBe(2);
    expect(text).toContain('FAILED: 1 passed, 1 failed, 1 file not run');
    const script = `
import json, sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
print(json.dumps([[s.get('tests'), s.get('failures'), [[c.get('name'), len(c), c[0].get('message') if len(c) else None] for c in s]] for s in root]))`;
    const found = JSON.parse(execFileSync('python3', ['-c', script, output], { encoding: 'utf8' })) as unknown[];
    expect(found).toEqual([
      [
        '2',
        '1',
        [
          ['right', 0, null],
          ['wrong <&"\ufffd', 1, 'decision: expected "duplicate", actual "forwarded"'],
        ],
      ],
      ['1', '1', [['can be run', 1, 'the file does not exist']]],
    ]);
    const json = JSON.parse((await run(file, { format: 'json' })).text) as unknown;
    expect(json).toMatchObject({
      passed: 1,
      failed: 1,
      unusable: 0,
      files: [
        {
          tests: [
            { outcome: 'passed', line: 8 },
            { outcome: 'failed', failure: { mismatches: [{ field: 'decision' }] } },
          ],
        },
      ],
      untested: [{ routes: [] }],
    });
  });
});

describe('fixtures that cannot run exit with 2 and the reason', () => {
  const play = (step: Sections, config: Sections = { routes: [BILLING] }): Promise<Told> =>
    run(write(config, { secrets: SECRETS, tests: [{ name: 'it', ...step, expect: 'forwarded' }] }));

  test.each<[string, Sections]>([
    ['route billing has no key curent\n            hint: its keys are new, old', { request: REQUEST, sign: { key: 'curent' } }],
    ['the config has no route biling', { request: REQUEST, sign: { route: 'biling' } }],
    ['no route matches this request', { request: { path: '/elsewhere' }, sign: true }],
    ['no route matches this request', { request: { path: '/a/../b' }, sign: true }],
    ['github signs no time', { request: REQUEST, sign: { scheme: 'github', timestampOffset: '1s' } }],
    ['the config does not request client certificates', { request: { path: '/', tls: true, certificate: ['CN:a'] } }],
    ['a client certificate requires TLS', { request: { path: '/', tls: false, certificate: ['CN:a'] } }],
    ['CONNECT is for the forward proxy', { request: { path: '/', method: 'CONNECT' } }],
    ['senders of standard-webhooks do not sign', { request: REQUEST, sign: { scheme: 'unsigned' } }],
  ])('%s', async (reason, step) => {
    const { exit, text } = await play(step);
    expect(text).toContain(reason);
    expect(exit).toBe(2);
  });

  test('a route without webhooks cannot be signed', async () => {
    const told = await playRoute({ allow: 'anyone' }, [{ request: { path: '/' }, sign: true, expect: 'forwarded' }]);
    expect(told).toMatchObject({
      exit: 2,
      text: expect.stringContaining('route it has no webhook section, so its requests are not signed'),
    });
  });

  test('an ID or a time that is in the body must be set there', async () => {
    const custom = {
      signature: { header: 'X-Sig' },
      timestamp: { json: '$.at' },
      id: { json: '$.data.id' },
    };
    const route = { webhook: { scheme: 'custom', custom, keys: [{ name: 'k', secret: { env: 'FIXTURES_NEW' } }] } };
    const secrets = { env: { FIXTURES_NEW: 'a secret of some length' } };
    const request = { path: '/', json: { at: 1_767_225_600, data: { id: 'e' } } };
    expect(
      await playRoute(route, [{ request, sign: true, expect: { decision: 'forwarded', id: 'e' } }], { secrets }),
    ).toMatchObject(PASSED);
    const told = await playRoute(route, [{ request, sign: { id: 'x' }, expect: 'forwarded' }], { secrets });
    expect(told.text).toMatch(/custom has its ID in the body\n.*hint: set it there, at \$\.data\.id/);
    const late = await playRoute(route, [{ request, sign: { timestampOffset: '-1h' }, expect: 'forwarded' }], { secrets });
    expect(late.text).toContain('custom has its timestamp in the body');
  });

  test('a missing secret must be given, and an unused one is an error', async () => {
    const tests = [{ name: 'it', request: { path: '/' }, expect: 'forwarded' }];
    const missing = await run(write({ routes: [BILLING] }, { secrets: { files: SECRETS.files }, tests }));
    expect(missing.text).toMatch(/FIXTURES_NEW is not set\n.*hint: add it to .*\.yaml, under secrets/);
    const noFile = await run(write({ routes: [BILLING] }, { secrets: { env: SECRETS.env }, tests }));
    expect(noFile.text).toMatch(/ does not exist\n.*hint: add it to .*\.yaml, under secrets/);
    const unused = await run(
      write({ routes: [BILLING] }, { secrets: { env: { ...SECRETS.env, FIXTURES_NEU: 'x' }, files: SECRETS.files }, tests }),
    );
    expect(unused.text).toMatch(
      /secrets\.env\.FIXTURES_NEU: the config does not refer to the variable FIXTURES_NEU\n.*did you mean FIXTURES_NEW\?/,
    );
    expect([missing.exit, unused.exit]).toEqual([2, 2]);
    expect(`${missing.text}${unused.text}`).not.toContain(SECRET);
  });

  test('a broken config is shown with its positions', async () => {
    const told = await play({ request: { path: '/' } }, { routes: [{ ...BILLING, upstrem: 'x' }] });
    expect(told).toMatchObject({
      exit: 2,
      text: expect.stringMatching(/gate\.yaml:\d+:\d+: error routes\.0\.upstrem: unknown key/),
    });
  });

  test.each([
    [['--run', '('], '--run ( is not a regular expression'],
    [['--run', 'nothing like it'], '--run nothing like it matches no test'],
    [['--format', 'xml'], '--format xml is not one of text, json, junit'],
    [['--output', '/nowhere/x'], 'cannot write --output /nowhere/x (ENOENT)'],
    [[], "missing required argument 'fixtures'"],
  ])('%j is a usage error', (args, reason) => {
    const file = reason.startsWith('missing') ? [] : ['examples/fixtures/fixtures.yaml'];
    const { status, stderr } = spawnSync(process.execPath, [LAUNCHER, 'test', ...file, ...args], { cwd: ROOT, encoding: 'utf8' });
    expect(stderr).toContain(reason);
    expect(status).toBe(2);
  });
});

test('routes that no test reaches are listed, per config', async () => {
  const open = (name: string): Sections => ({ name, match: { path: `/${name}` }, upstream: UPSTREAM, allow: 'anyone' });
  const file = write(
    { routes: [open('a'), open('b'), open('c')] },
    { tests: [{ name: 'a', request: { path: '/a' }, expect: 'forwarded' }] },
  );
  const other = join(folder, 'other.yaml');
  writeFileSync(other, readFileSync(file, 'utf8').replace('path: /a', 'path: /b'));
  expect((await run(file)).text).toMatch(/routes without a test in .*gate\.yaml: b, c\n$/);
  expect((await run([file, other])).text).toMatch(/routes without a test in .*gate\.yaml: c\n$/);
});
