/** Encryption at rest over real files, sockets and a real config: what the disk contains, rotation, and keys that are missing. */
import { createHash, randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { makeFolder, useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, until } from '../support/gate.ts';
import { call, listDeliveries, postEvent } from '../support/provider/client.ts';
import { openSqliteQueue } from '../support/queue/sqlite-store.ts';

const app = useApp();
const gates: TestGate[] = [];
async function stop(): Promise<void> {
  for (const gate of gates.splice(0)) await gate.stop();
}
afterEach(stop);

const SECRET = Buffer.from('secret-of-the-endpoint-1');
const OTHER_SECRET = Buffer.from('secret-of-the-endpoint-2');
const HEADER = 'Bearer header-value-of-tenant-7';
const OTHER_HEADER = 'header-value-after-a-patch';
const toText = (secret: Buffer): string => `whsec_${secret.toString('base64')}`;

const createKey = (): string => randomBytes(32).toString('base64');
const idOf = (key: string): string => createHash('sha256').update(Buffer.from(key, 'base64')).digest('hex').slice(0, 12);

/** Starts a gate with the queue in `path`, and the keys in files. */
async function start(path: string, keys: readonly string[], over: Sections = {}): Promise<TestGate> {
  const files = Object.fromEntries(keys.map((key, index) => [`key${index}`, `${key}\n`]));
  const gate = await startGate({ provider: toProvider(path, Object.keys(files), over) }, undefined, files);
  gates.push(gate);
  return gate;
}

function toProvider(path: string, files: readonly string[], over: Sections = {}): Sections {
  const keys = files.map((file) => ({ file }));
  return {
    address: '127.0.0.1:0',
    queue: { sqlite: { path, allowVolatile: true } },
    egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
    ...(keys.length > 0 && { encryption: { keys, ...over } }),
  };
}

const newPath = (): string => join(makeFolder(), 'queue.db');

/** Creates an endpoint, delivers an event to it, and changes its secret and headers. */
async function useEndpoint({ providerPort }: TestGate, id = 'tenant-7'): Promise<void> {
  const endpoint = { id, url: `http://127.0.0.1:${app.port}/hooks`, secret: toText(SECRET), headers: { Authorization: HEADER } };
  expect((await call(providerPort, 'POST', '/v1/endpoints', endpoint)).status).toBe(201);
  await postEvent(providerPort);
  const rotation = { secret: toText(OTHER_SECRET) };
  expect((await call(providerPort, 'POST', `/v1/endpoints/${id}/rotate-secret`, rotation)).status).toBe(200);
  const patch = { headers: { 'X-Token': OTHER_HEADER } };
  const { body } = await call(providerPort, 'PATCH', `/v1/endpoints/${id}`, patch);
  expect(body['headerNames']).toEqual(['Authorization', 'X-Token']);
  await until(async () => (await listDeliveries(providerPort, '?state=delivered')).length > 0);
}

/** All secrets, in every form that could be stored, that occur in the files of the queue. */
function findSecrets(path: string): string[] {
  const files = readdirSync(dirname(path)).map((name) => readFileSync(join(dirname(path), name)));
  const values = [SECRET, OTHER_SECRET, Buffer.from(HEADER), Buffer.from(OTHER_HEADER)];
  return values
    .flatMap((value) => [value.toString(), value.toString('base64'), value.toString('hex')])
    .filter((text) => files.some((bytes) => bytes.includes(text)));
}

test('neither secrets nor header values occur in the files of the queue: database, log and shared memory, open and closed', async () => {
  const path = newPath();
  const gate = await start(path, [createKey()]);
  await useEndpoint(gate);
  // The endpoint is in them: its URL is not a secret.
  expect([path, `${path}-wal`].some((file) => readFileSync(file).includes(`http://127.0.0.1:${app.port}/hooks`))).toBe(true);
  expect(findSecrets(path)).toEqual([]);
  await stop();
  expect(findSecrets(path)).toEqual([]);
  for (const text of [gate.logText()])
    for (const value of [HEADER, OTHER_HEADER, toText(SECRET)]) expect(text).not.toContain(value);
});

test('without a key they do occur, with a warning at the next start', async () => {
  const path = newPath();
  const gate = await start(path, []);
  await useEndpoint(gate);
  expect(findSecrets(path)).toEqual([SECRET.toString('base64'), OTHER_SECRET.toString('base64'), HEADER, OTHER_HEADER]);
  await stop();
  const next = await start(path, []);
  expect(next.logText()).toContain('endpoint_secrets_plain');
});

test('deliveries have the secrets and headers again after a restart', async () => {
  const [path, key] = [newPath(), createKey()];
  const gate = await start(path, [key]);
  await useEndpoint(gate);
  await stop();
  const { providerPort } = await start(path, [key]);
  await postEvent(providerPort);
  const request = await until(() => app.received[1]);
  expect(request.headers).toMatchObject({ authorization: HEADER, 'x-token': OTHER_HEADER });
  expect(String(request.headers['webhook-signature']).split(' ')).toHaveLength(2);
});

test('a new first key in the config encrypts what is stored; the old key is then not needed', async () => {
  const [path, old, next] = [newPath(), createKey(), createKey()];
  const gate = await start(path, [old]);
  await useEndpoint(gate);
  writeFileSync(join(gate.folder, 'key1'), next);
  gate.writeConfig({ provider: toProvider(path, ['key1', 'key0']) });
  await gate.gate.reload();
  await until(() => gate.logText().includes(`"unusedKeys":["${idOf(old)}"]`));
  await stop();
  const { providerPort } = await start(path, [next]);
  await postEvent(providerPort);
  expect((await until(() => app.received[1])).headers).toMatchObject({ authorization: HEADER });
});

test('a key file with new content is read, and encrypts what is stored', async () => {
  const [path, old, next] = [newPath(), createKey(), createKey()];
  const gate = await start(path, [old]);
  await useEndpoint(gate);
  writeFileSync(join(gate.folder, 'key0'), 'broken');
  await until(() => gate.logText().includes('the key is not 32 bytes in base64'));
  writeFileSync(join(gate.folder, 'key0'), next);
  await until(() => gate.log().some(({ msg, key }) => msg === 'endpoint_secrets_encrypted' && key === idOf(next)));
  await stop();
  expect((await call((await start(path, [next])).providerPort, 'GET', '/v1/endpoints/tenant-7')).status).toBe(200);
});

test('removing the section needs a restart: what is stored would no longer be encrypted', async () => {
  const path = newPath();
  const gate = await start(path, [createKey()]);
  gate.writeConfig({ provider: toProvider(path, []) });
  await gate.gate.reload();
  expect(gate.logText()).toContain('removing provider.encryption requires a restart');
});

test('a missing key prevents the start with its ID and the endpoints, and the events are still there with the key', async () => {
  const [path, key, other] = [newPath(), createKey(), createKey()];
  const gate = await start(path, [key]);
  await useEndpoint(gate);
  app.handler = (_request, response) => response.writeHead(503).end();
  await postEvent(gate.providerPort);
  await until(() => app.received.length > 1);
  await stop();
  for (const keys of [[], [other]])
    await expect(start(path, keys)).rejects.toThrow(`key ${idOf(key)} of tenant-7. Add the key again`);
  app.handler = (_request, response) => response.end();
  const { providerPort } = await start(path, [other, key]);
  await until(async () => (await listDeliveries(providerPort, '?state=delivered')).length === 2);
});

test('a lost key resets its endpoints, which can then be set up again', async () => {
  const [path, lost, key] = [newPath(), createKey(), createKey()];
  const gate = await start(path, [lost]);
  await useEndpoint(gate);
  await stop();
  const { providerPort, logText } = await start(path, [key], { lostKeys: [idOf(lost)] });
  expect(logText()).toContain('endpoint_secrets_reset');
  const { body } = await call(providerPort, 'GET', '/v1/endpoints/tenant-7');
  expect(body).toMatchObject({ headerNames: [], disabled: { reason: 'manual' }, signatures: [{ version: 'v1' }] });
  const patch = { headers: { Authorization: 'again' } };
  expect((await call(providerPort, 'PATCH', '/v1/endpoints/tenant-7', patch)).status).toBe(200);
  expect((await call(providerPort, 'POST', '/v1/endpoints/tenant-7/rotate-secret')).status).toBe(200);
  expect((await call(providerPort, 'POST', '/v1/endpoints/tenant-7/enable')).status).toBe(200);
  await postEvent(providerPort);
  expect((await until(() => app.received[1])).headers['authorization']).toBe('again');
});

test.each([
  ['short', 'the key is not 32 bytes in base64'],
  ['', 'is empty'],
])('a key %j prevents the start', async (key, message) => {
  await expect(start(newPath(), [key])).rejects.toThrow(message);
});

test('the same key twice prevents the start, and a lost key that is there', async () => {
  const key = createKey();
  await expect(start(newPath(), [key, key])).rejects.toThrow('two keys are the same');
  await expect(start(newPath(), [key], { lostKeys: [idOf(key)] })).rejects.toThrow('is among the keys');
});

test('an endpoint whose URL was changed in the store gets nothing, its events wait, and it can be deleted', async () => {
  const [path, key] = [newPath(), createKey()];
  await useEndpoint(await start(path, [key]));
  await stop();
  const queue = await openSqliteQueue(path);
  const [stored] = await queue.endpoints.list();
  if (stored === undefined) throw new Error('there is no endpoint');
  const json = stored.json.replace('/hooks', '/evil');
  expect(await queue.endpoints.put({ ...stored, version: stored.version + 1, json }, stored.version)).toBe(true);
  await queue.close();
  const { providerPort, logText } = await start(path, [key]);
  expect(logText()).toContain('endpoint_secrets_altered');
  const delivered = app.received.length;
  await postEvent(providerPort);
  await useEndpoint(await start(newPath(), [key]));
  expect(app.received.slice(delivered).map(({ url }) => url)).toEqual(['/hooks']);
  expect((await listDeliveries(providerPort, '?state=waiting')).map(({ endpoint }) => endpoint)).toEqual(['tenant-7']);
  const at = '/v1/endpoints/tenant-7';
  expect((await call(providerPort, 'PATCH', at, {})).body['detail']).toContain('cannot be decrypted');
  expect((await call(providerPort, 'POST', `${at}/rotate-secret`)).status).toBe(409);
  expect((await call(providerPort, 'DELETE', at)).status).toBe(204);
  expect((await call(providerPort, 'GET', at)).status).toBe(404);
});
