/** The projects of examples/: their pages, their apps behind a real sidegate with requests of independent signers, and their manifests. */
import { createHmac } from 'node:crypto';
import { existsSync, globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { sign as signForGithub } from '@octokit/webhooks-methods';
import { Webhook } from 'standardwebhooks';
import Stripe from 'stripe';
import { describe, expect, onTestFinished, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { runCommand } from '../support/cli.ts';
import { type Answer, send } from '../support/client.ts';
import { readBlocks } from '../support/doc-blocks.ts';
import type { DocSession } from '../support/doc-session.ts';
import { EXAMPLES, listExampleFiles, readExample, runExample } from '../support/example.ts';
import { makeFolder } from '../support/fixtures.ts';
import { until } from '../support/gate.ts';
import { startPostgres } from '../support/postgres.ts';
import { startRedis } from '../support/redis.ts';
import { startScriptApp } from '../support/script-app.ts';

const ROOT = dirname(EXAMPLES);
const NAMES = globSync('*/README.md', { cwd: EXAMPLES }).map(dirname).sort();
/** Has Django (test/prepare/prepare-test.ts). */
const PYTHON_FOLDER = join(ROOT, '.cache/frameworks-python');
const read = (session: DocSession, file: string): string => readFileSync(join(session.folder, file), 'utf8').trim();
const now = (): number => Math.floor(Date.now() / 1_000);

/** Posts JSON to the example's sidegate. */
function post(session: DocSession, path: string, body: string, headers: Readonly<Record<string, string>>): Promise<Answer> {
  const port = Number(session.localize('8080'));
  return send(port, { path, body, headers: { 'Content-Type': 'application/json', ...headers } });
}

function signForStripe(payload: string, secret: string): Record<string, string> {
  return { 'Stripe-Signature': new Stripe('sk_test_none').webhooks.generateTestHeaderString({ payload, secret }) };
}

/** As docs.slack.dev describes it. */
function signForSlack(body: string, secret: string): Record<string, string> {
  const time = String(now());
  const signature = createHmac('sha256', secret).update(`v0:${time}:${body}`).digest('hex');
  return { 'X-Slack-Request-Timestamp': time, 'X-Slack-Signature': `v0=${signature}` };
}

const FORWARDED = expect.objectContaining({ status: 200, text: 'handled\n' });
const DUPLICATE = expect.objectContaining({ status: 200, code: 'duplicate' });
const MISMATCH = expect.objectContaining({ status: 401, code: 'signature_mismatch' });
const UNSIGNED = expect.objectContaining({ status: 401, code: 'missing_signature' });

test('express: its page works; what the libraries of the senders sign is handled once, and nothing else', async () => {
  const session = await runExample('express');
  const event = '{"id":"evt_lib","object":"event","type":"charge.succeeded"}';
  const stripe = signForStripe(event, read(session, 'stripe-secret'));
  expect(await post(session, '/hooks/stripe', event, stripe)).toEqual(FORWARDED);
  expect(await post(session, '/hooks/stripe', event, stripe)).toEqual(DUPLICATE);
  expect(await post(session, '/hooks/stripe', event.replace('charge', 'refund'), stripe)).toEqual(MISMATCH);
  expect(await post(session, '/hooks/stripe', event, signForStripe(event, 'whsec_other'))).toEqual(MISMATCH);
  expect(await post(session, '/hooks/stripe', event, {})).toEqual(UNSIGNED);

  const push = '{"action":"opened"}';
  const github = async (secret: string): Promise<Record<string, string>> => ({
    'X-GitHub-Event': 'issues',
    'X-GitHub-Delivery': '72d3162e-cc78-11e3-81ab-4c9367dc0958',
    'X-Hub-Signature-256': await signForGithub(secret, push),
  });
  expect(await post(session, '/hooks/github', push, await github('guess'))).toEqual(MISMATCH);
  expect(await post(session, '/hooks/github', push, await github(read(session, 'github-secret')))).toEqual(FORWARDED);

  const key = read(session, 'slack-secret');
  const [challenge, message] = [
    '{"type":"url_verification","challenge":"3eZbrw1a"}',
    '{"type":"event_callback","event_id":"Ev1","event":{"type":"app_mention"}}',
  ];
  expect(await post(session, '/hooks/slack', challenge, signForSlack(challenge, key))).toMatchObject({
    status: 200,
    text: '3eZbrw1a',
  });
  expect(await post(session, '/hooks/slack', challenge, signForSlack(challenge, 'guess'))).toEqual(MISMATCH);
  expect(await post(session, '/hooks/slack', message, signForSlack(message, key))).toEqual(FORWARDED);
  expect(await post(session, '/hooks/slack', message, {})).toEqual(UNSIGNED);
  expect(await send(Number(session.localize('8080')), { method: 'GET', path: '/' })).toMatchObject({ text: 'welcome\n' });
});

test.skipIf(!existsSync(`${PYTHON_FOLDER}/ready`))(
  'django-admin: its page works; the admin opens by password only, and the site without one',
  { timeout: 60_000 },
  async () => {
    const session = await runExample('django-admin', { commands: { python3: `exec '${PYTHON_FOLDER}/bin/python' "$@"` } });
    const { output } = await session.run({
      text: `ask() { curl --silent --cacert tls.crt --output page --write-out '%{http_code}\\n' "$@"; }
ask https://localhost:8443/admin/
ask --header 'Sidegate-User: ada' https://localhost:8443/admin/
ask --user 'eve:open sesame' https://localhost:8443/admin/
ask --path-as-is https://localhost:8443/%61dmin/
ask --user 'ada:open sesame' https://localhost:8443/admin/auth/user/ && grep --only-matching ada@example.com page
ask https://localhost:8443/ && cat page`,
    });
    expect(output.split('\n')).toEqual(['401', '401', '401', '400', '200', 'ada@example.com', '200', 'welcome', '']);
  },
);

test('compose: its programs store what Stripe sends in Redis and PostgreSQL, and deliver it signed', async () => {
  const session = await runExample('compose');
  const [redis, postgres] = [await startRedis(), await startPostgres({ config: ['fsync = on'] })];
  const requests: string[] = [];
  const partner = await startScriptApp((socket) => {
    socket.on('data', (chunk: Buffer) => {
      requests.push(chunk.toString());
      if (chunk.toString().includes('{')) socket.end('HTTP/1.1 204 No Content\r\n\r\n');
    });
  });
  onTestFinished(async () => {
    partner.close();
    await Promise.all([redis.stop(), postgres.stop()]);
  });
  // The names of Compose's network become addresses of this machine.
  const config = readExample('compose', 'sidegate/gate.yaml')
    .replace('redis://redis:6379', `redis://127.0.0.1:${redis.port}`)
    .replace('https://partner.example.com/hooks', `http://127.0.0.1:${partner.port}/hooks`)
    .replace('provider:', 'provider:\n  egress: { allowHttp: true, allowPrivate: [127.0.0.0/8] }');
  session.write({ file: 'sidegate/gate.yaml', text: config });
  writeFileSync(join(session.folder, 'sidegate/secrets/postgres-url'), postgres.url());
  await session.start({ text: 'exec node app.mjs' }, 'app is ready');
  await session.start({ text: 'exec sidegate run --config sidegate/gate.yaml' }, '"msg":"listening"');

  const event = '{"id":"evt_1","type":"invoice.paid"}';
  const headers = signForStripe(event, read(session, 'sidegate/secrets/stripe'));
  expect(await post(session, '/hooks/stripe', event, {})).toEqual(UNSIGNED);
  expect(await post(session, '/hooks/stripe', event, headers)).toEqual(FORWARDED);
  expect(await post(session, '/hooks/stripe', event, headers)).toEqual(DUPLICATE);
  const [head = '', body = ''] = await until(() => {
    const parts = requests.join('').split('\r\n\r\n');
    return parts[1] && parts;
  });
  const sent = Object.fromEntries([...head.matchAll(/^(webhook-\w+): (.*?)\r?$/gim)].map(([, name, value]) => [name, value]));
  expect(new Webhook(read(session, 'sidegate/secrets/partner')).verify(body, sent)).toMatchObject({ type: 'order.paid' });
  expect(redis.cli('dbsize')).not.toBe('0');
  expect(postgres.sql('SELECT count(*) FROM sidegate.event')).toBe('1');
});

test('compose: mounts only files of the example, shares one network, and publishes only the port of sidegate', () => {
  type Service = { volumes: string[]; network_mode?: string; ports?: string[] };
  const { services, volumes } = parse(readExample('compose', 'compose.yaml')) as {
    services: Record<string, Service>;
    volumes: Record<string, null>;
  };
  const page = readExample('compose', 'README.md');
  for (const mount of Object.values(services).flatMap((service) => service.volumes)) {
    const [source = ''] = mount.split(':');
    const isKnown =
      source in volumes || listExampleFiles('compose').includes(basename(source)) || page.includes(basename(source));
    expect(isKnown, mount).toBe(true);
  }
  expect(services['sidegate']?.network_mode).toBe('service:app');
  const [, port] = /address: :(\d+)/.exec(readExample('compose', 'sidegate/gate.yaml')) ?? [];
  expect(Object.values(services).flatMap(({ ports = [] }) => ports)).toEqual([`${port}:${port}`]);
});

describe('the examples for Kubernetes', () => {
  const texts = NAMES.flatMap((name) => listExampleFiles(name).map((file) => readExample(name, file)));
  const documents = texts.filter((text) => /^apiVersion:/m.test(text)).flatMap((text) => parseAllDocuments(text));
  const pick = (kind: string) => documents.find((document) => document.get('kind') === kind)?.toJS();

  test('include manifests, an overlay, External Secrets, Argo CD and the Gateway API', () => {
    for (const kind of ['Deployment', 'NetworkPolicy', 'Kustomization', 'ExternalSecret', 'Application', 'HTTPRoute'])
      expect(pick(kind), kind).toBeDefined();
    expect(documents.flatMap(({ errors }) => errors)).toEqual([]);
  });

  test.each(['kubernetes', 'kustomize', 'external-secrets', 'gateway-api'])(
    'have a config that `sidegate check` accepts as that of a pod: %s',
    async (name) => {
      const folder = makeFolder();
      const text = readExample(name, 'gate.yaml');
      for (const [, secret = ''] of text.matchAll(/\.\.\/(secrets\/[\w/-]+)/g)) {
        mkdirSync(join(folder, dirname(secret)), { recursive: true });
        const value = secret.endsWith('/url') ? 'rediss://redis.databases.svc:6379' : 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
        writeFileSync(join(folder, secret), value);
      }
      mkdirSync(join(folder, 'config'));
      writeFileSync(join(folder, 'config/gate.yaml'), text);
      const inPod = ['--listen', ':8480', '--admin', ':8481', '--upstream', 'http://127.0.0.1:3000'];
      const { code, stdout, stderr } = await runCommand(['check', join(folder, 'config/gate.yaml'), ...inPod]);
      expect({ code, errors: /error|warning/.test(stdout + stderr) }, stdout + stderr).toEqual({ code: 0, errors: false });
    },
  );

  test('name only Secrets that a page or an ExternalSecret creates', () => {
    const pages = NAMES.map((name) => readExample(name, 'README.md')).join('\n');
    const lists = texts.flatMap((text) => [...text.matchAll(/sidegate\.dev\/secrets: (.*)/g)].map(([, list = '']) => list));
    const named = lists.flatMap((list) => list.split(', '));
    expect(new Set(named)).toEqual(new Set(['billing-webhook', 'redis']));
    for (const secret of named) expect(pages).toContain(`create secret generic ${secret} `);
    const { spec } = pick('ExternalSecret');
    expect(named).toContain(spec.target.name);
    const keys = (spec.data as { secretKey: string }[]).map(({ secretKey }) => secretKey);
    for (const key of keys) expect(readExample('external-secrets', 'gate.yaml')).toContain(`/${spec.target.name}/${key} }`);
  });

  test('lead to the Service of the app', () => {
    const [route, service] = [pick('HTTPRoute'), pick('Service')];
    const [{ backendRefs }] = route.spec.rules;
    expect(backendRefs).toEqual([{ name: service.metadata.name, port: service.spec.ports[0].port }]);
    expect(service.spec.ports[0].targetPort).toBe('sidegate');
  });

  test('kubernetes: its page works without a cluster, and the sidecar is injected', async () => {
    const session = await runExample('kubernetes');
    expect(read(session, 'injected.yaml')).toContain('name: sidegate');
  });
});

describe('the pages of the examples', () => {
  test('are listed in the index, and have at most 40 lines', () => {
    const index = readFileSync(join(EXAMPLES, 'README.md'), 'utf8');
    const listed = [...index.matchAll(/^\| \[([\w-]+)\]\(\1\/README\.md\) \|/gm)].map(([, name = '']) => name);
    expect(listed.sort()).toEqual(NAMES);
    for (const name of NAMES) expect(readExample(name, 'README.md').split('\n').length, name).toBeLessThanOrEqual(41);
  });

  test('name only files in their commands that exist', () => {
    for (const name of NAMES) {
      const page = readExample(name, 'README.md');
      for (const [, file = ''] of page.matchAll(/(?:-f|--config|--from-file=) ?([\w.][\w./-]*\.yaml)/g))
        expect(existsSync(join(EXAMPLES, name, file)), `${name}: ${file}`).toBe(true);
    }
  });
});

test.each([
  ['docs/tutorials/express.md', 'express'],
  ['docs/tutorials/django.md', 'django-admin'],
  ['docs/tutorials/kubernetes.md', 'kubernetes'],
  ['docs/how-to/gitops.md', 'argocd'],
])('%s links to %s, and shows its files', (page, name) => {
  expect(readFileSync(join(ROOT, page), 'utf8')).toContain(`](../../examples/${name}/README.md)`);
  const files = listExampleFiles(name);
  const shown = readBlocks(page, join(ROOT, page)).filter(({ file = '' }) => files.includes(file));
  expect(shown.length).toBeGreaterThan(0);
  for (const { file = '', text } of shown) expect(readExample(name, file), file).toBe(text);
});
