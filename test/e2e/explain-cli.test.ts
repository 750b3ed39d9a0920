/** `sidegate explain` as its users run it: captured requests, by a config or by one secret. */
import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { makeDelivery, SECRET, signV1, unixNow } from '../support/deliveries.ts';
import { useFolder } from '../support/fixtures.ts';
import { LAUNCHER } from '../support/process.ts';

const REFUNDS = 'whsec_FxYVFBMSERAPDg0MCwoJCAcGBQQDAgEA';
const folder = useFolder();
const config = join(folder, 'gate.yaml');
let files = 0;

beforeAll(() => {
  writeFileSync(join(folder, 'secret'), SECRET);
  writeFileSync(join(folder, 'refunds'), REFUNDS);
  const route = (name: string, webhook: object): object => ({
    name,
    match: { path: `/hooks/${name}` },
    upstream: 'http://127.0.0.1:1',
    webhook,
  });
  const keys = (file: string): object[] => [{ name: file, secret: { file } }];
  const routes = [
    route('billing', { keys: keys('secret') }),
    route('refunds', { keys: keys('refunds') }),
    route('github', { scheme: 'github', keys: keys('secret') }),
    route('broken', { keys: keys('gone') }),
    route('sums', {
      scheme: 'custom',
      custom: { signature: { header: 'X-Sum', encoding: 'hex' }, signed: ['url', 'body'], contentShape: 'json-object' },
      publicUrl: 'https://hooks.example.com',
      keys: keys('secret'),
    }),
    { name: 'open', match: { path: '/open' }, upstream: 'http://127.0.0.1:1', allow: 'anyone' },
  ];
  writeFileSync(config, stringify({ routes }));
});

function explain(request: string | Buffer, ...args: string[]): SpawnSyncReturns<string> {
  const file = join(folder, `request-${files++}`);
  writeFileSync(file, request);
  return run(file, ...args);
}

function run(...args: string[]): SpawnSyncReturns<string> {
  const env = { ...process.env, CLI_SECRET: SECRET };
  return spawnSync(process.execPath, [LAUNCHER, 'explain', ...args], { encoding: 'utf8', env, input: '' });
}

type Fields = Readonly<Record<string, string>>;

function toRaw(path: string, headers: Fields, body: string | Buffer): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `POST ${path} HTTP/1.1\r\nHost: gate\r\n${lines.join('')}\r\n${body}`;
}

describe('by a config', () => {
  test('reports a valid request as valid, with the route of its path', () => {
    const { body, headers } = makeDelivery();
    const { status, stdout } = explain(toRaw('/hooks/billing', headers, body), '--config', config);
    expect(stdout).toMatch(
      /^route: billing, scheme standard-webhooks\n[^]*match over \d+ bytes, with the key secret\nresult: valid\n$/m,
    );
    expect(status).toBe(0);
  });

  test('gives a curl command, a HAR file and a raw request of one re-serialised delivery the same explanation', () => {
    const { id, body } = makeDelivery({ body: JSON.stringify({ type: 'a', text: 'é' }) });
    const signature = signV1(id, unixNow(), Buffer.from(JSON.stringify(JSON.parse(body.toString()), null, 4)));
    const headers: Fields = { 'Webhook-Id': id, 'Webhook-Timestamp': String(unixNow()), 'Webhook-Signature': signature };
    const url = 'http://gate/hooks/billing';
    const fields = Object.entries(headers).map(([name, value]) => ({ name, value }));
    const har = {
      log: {
        entries: [
          {
            startedDateTime: new Date().toISOString(),
            request: { method: 'POST', url, headers: fields, postData: { text: body.toString() } },
          },
        ],
      },
    };
    const curl = `curl '${url}' \\\n${fields.map(({ name, value }) => `  -H '${name}: ${value}' \\\n`).join('')}  --data-raw '${body}'`;
    for (const request of [toRaw('/hooks/billing', headers, body), curl, JSON.stringify(har)]) {
      const { status, stdout, stderr } = explain(request, '--config', config);
      expect(stderr).toBe('');
      expect(stdout).toContain('hint: it matches over JSON indented by 4 spaces, with the key secret\n  fix: find the proxy');
      expect(stdout).toContain('result: signature_mismatch');
      expect(status).toBe(1);
    }
  });

  test('names the route whose secret matched, and the causes in JSON', () => {
    const { body, headers } = makeDelivery({ secret: REFUNDS });
    const { status, stdout } = explain(toRaw('/hooks/billing', headers, body), '--config', config, '--format', 'json');
    expect(JSON.parse(stdout)).toMatchObject({
      result: 'signature_mismatch',
      route: 'billing',
      findings: [{ cause: 'other_route_key', text: expect.stringContaining('the key refunds of the route refunds') }],
      notes: [expect.stringMatching(/the key gone of the route broken: .* does not exist/)],
    });
    expect(status).toBe(1);
    expect(stdout).not.toContain(REFUNDS.slice(6));
  });

  test('says that no key can be used, and why', () => {
    const { body, headers } = makeDelivery();
    const { status, stdout } = explain(toRaw('/hooks/broken', headers, body), '--config', config);
    expect(stdout).toMatch(/note: the key gone of the route broken: .* does not exist[^]*signature: no key can be used\n/);
    expect(status).toBe(1);
  });

  test('checks the time against --at, the HAR file, or now', () => {
    const { body, headers } = makeDelivery({ timestamp: 1_700_000_000 });
    const request = toRaw('/hooks/billing', headers, body);
    expect(explain(request, '--config', config).stdout).toMatch(
      /the signature is valid, but[^]*result: timestamp_outside_tolerance/,
    );
    expect(explain(request, '--config', config, '--at', '1700000010')).toMatchObject({ status: 0 });
    const fields = Object.entries(headers).map(([name, value]) => ({ name, value }));
    const entry = {
      startedDateTime: '2023-11-14T22:13:30Z',
      request: { method: 'POST', url: 'http://gate/hooks/billing', headers: fields, postData: { text: body.toString() } },
    };
    expect(explain(JSON.stringify({ log: { entries: [entry] } }), '--config', config)).toMatchObject({ status: 0 });
  });

  test('uses the named route for any path, and its public URL', () => {
    const sum = createHmac('sha256', SECRET).update('http://hooks.example.com/hooks/sums').update('{}').digest('hex');
    const { stdout } = explain(toRaw('/hooks/sums', { 'X-Sum': sum }, '{}'), '--config', config, '--route', 'sums');
    expect(stdout).toContain('it matches over a URL with http://');
    expect(
      explain(toRaw('/hooks/sums', { 'X-Sum': sum }, '{}'), '--config', config, '--public-url', 'http://hooks.example.com')
        .status,
    ).toBe(0);
  });
});

describe('by one secret', () => {
  test('needs only a preset and a secret, and reads standard input', () => {
    const body = '{"zen":"Keep it logically awesome."}';
    const headers = { 'X-Hub-Signature-256': `sha256=${createHmac('sha256', SECRET).update(body).digest('hex')}` };
    const by = ['--scheme', 'github', '--secret-env', 'CLI_SECRET'];
    expect(explain(toRaw('/', headers, body), ...by)).toMatchObject({ status: 0 });
    const { status, stdout } = spawnSync(process.execPath, [LAUNCHER, 'explain', '-', ...by], {
      encoding: 'utf8',
      env: { ...process.env, CLI_SECRET: SECRET },
      input: toRaw('/', headers, `${body}\n`),
    });
    expect([status, stdout]).toEqual([1, expect.stringContaining('without the line end after the body')]);
  });

  test('reports a secret that the scheme cannot use, and tries it in other encodings', () => {
    const { body, headers } = makeDelivery();
    const bare = join(folder, 'bare');
    writeFileSync(bare, SECRET.slice(6));
    const { stdout } = explain(toRaw('/', headers, body), '--scheme', 'standard-webhooks', '--secret-file', bare);
    expect(stdout).toMatch(
      /hint: the secret has no whsec_ prefix[^]*hint: it matches with the secret of the key given decoded as base64/,
    );
  });
});

test.each([
  [[], 'use either --config FILE, or --scheme NAME'],
  [['--config', 'x', '--scheme', 'github'], 'use either --config FILE, or --scheme NAME'],
  [['--scheme', 'github'], 'missing secret: use either'],
  [['--scheme', 'githup', '--secret-env', 'CLI_SECRET'], '--scheme githup: unknown scheme. Did you mean github?'],
  [['--scheme', 'unsigned', '--secret-env', 'CLI_SECRET'], 'unsigned has no signature'],
  [['--scheme', 'github', '--secret-env', 'CLI_SECRET', '--route', 'a'], '--route requires --config FILE'],
  [['--config', '/nowhere'], 'the file does not exist'],
  [['--config', 'CONFIG'], 'no route matches the request (route_not_found); select one with --route (billing, refunds'],
  [['--config', 'CONFIG', '--route', 'gihub'], '--route gihub is not one of billing, refunds'],
  [['--config', 'CONFIG', '--route', 'open'], 'the route open has no webhook section'],
  [['--config', 'CONFIG', '--secret-env', 'CLI_SECRET'], '--config already names the secrets'],
  [['--config', 'CONFIG', '--input-format', 'curl'], 'does not begin with curl'],
  [['--config', 'CONFIG', '--at', 'now'], '--at now is not a Unix timestamp'],
])('%j is a usage error with the reason', (args, reason) => {
  const { status, stderr } = explain(toRaw('/nowhere', {}, '{}'), ...args.map((arg) => (arg === 'CONFIG' ? config : arg)));
  expect(stderr).toContain(reason);
  expect(status).toBe(2);
});
