import { createServer } from 'node:http';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { systemClock } from '../../../../src/core/clock.ts';
import { CONTENT, KubeClient, METADATA_ONLY_OBJECT, toKubePath } from '../../../../src/kubernetes/client/client.ts';
import { KubeError } from '../../../../src/kubernetes/client/error.ts';
import type { ClusterAccess } from '../../../../src/kubernetes/client/transport.ts';
import { type AnswerWith, type ApiServer, answerJson, startApiServer, toClient, toStatus } from '../../../support/api-server.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';
import { makeFolder } from '../../../support/fixtures.ts';

type PodAccess = ClusterAccess & { kind: 'pod' };

const TOKEN = 'token-that-nobody-may-see';
const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function start(answer: AnswerWith, access: (server: ApiServer) => Partial<PodAccess> = () => ({}), clock = systemClock) {
  const server = await startApiServer(answer);
  const base = { kind: 'pod', server: server.url, ca: server.ca, token: async () => TOKEN };
  const whole = Object.defineProperties(base, Object.getOwnPropertyDescriptors(access(server))) as PodAccess;
  const client = new KubeClient(whole, clock);
  ends.push(
    () => server.stop(),
    () => client.close(),
  );
  return { server, client };
}

async function failureOf(promise: Promise<unknown>): Promise<KubeError> {
  const thrown = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(thrown instanceof KubeError)) throw new Error(`no KubeError, but ${String(thrown)}`);
  expect(`${thrown.message} ${thrown.stack}`).not.toContain(TOKEN);
  return thrown;
}

test('sends the token, keeps the connection and returns the parsed response', async () => {
  const { server, client } = await start((_, response) => answerJson(response, 200, { major: '1' }));
  expect(await client.request('GET', toKubePath('/version'))).toEqual({ major: '1' });
  await client.request('GET', toKubePath('/version'));
  expect(server.asked.map(({ headers }) => headers.authorization)).toEqual([`Bearer ${TOKEN}`, `Bearer ${TOKEN}`]);
  expect(server.asked[0]?.clientPort).toBe(server.asked[1]?.clientPort);
});

test.each([
  [['namespaces', 'a b', 'pods', 'web:80'], '/api/v1/namespaces/a%20b/pods/web:80'],
  [['configmaps', '?watch=1&x#y'], '/api/v1/configmaps/%3Fwatch%3D1%26x%23y'],
  [['configmaps', 'x%2f..%2fy', '../z'], '/api/v1/configmaps/x%252f..%252fy/..%2Fz'],
  [['configmaps', 'ü\r\n\ud800'], '/api/v1/configmaps/%C3%BC%0D%0A%EF%BF%BD'],
])('encodes names of objects in paths: %j', (segments, path) => {
  expect(toKubePath('/api/v1', ...segments)).toBe(path);
});

test.each(['', '.', '..'])('rejects "%s" as the name of an object, like one that does not exist', (name) => {
  expect(() => toKubePath('/api/v1', 'configmaps', name)).toThrow(
    expect.objectContaining({ status: 404, message: `"${name}" is not the name of an object` }),
  );
});

test.each([
  ['json', 'application/json'],
  ['jsonPatch', 'application/json-patch+json'],
  ['mergePatch', 'application/merge-patch+json'],
  ['strategicMergePatch', 'application/strategic-merge-patch+json'],
  ['apply', 'application/apply-patch+yaml'],
] as const)('sends a %s body as %s', async (kind, type) => {
  const { server, client } = await start((_, response) => answerJson(response, 200, {}));
  await client.request('PATCH', toKubePath('/x'), { body: { a: 'ü' }, contentType: CONTENT[kind] });
  expect(server.asked[0]).toMatchObject({
    method: 'PATCH',
    body: '{"a":"ü"}',
    headers: { 'content-type': type, 'content-length': '10' },
  });
});

test("turns the API server's Status into an error with its status, reason and message", async () => {
  const { client } = await start((_, response) => answerJson(response, 403, toStatus(403, 'Forbidden', 'pods is forbidden')));
  const { status, reason, message } = await failureOf(client.request('GET', toKubePath('/api/v1/pods')));
  expect([status, reason, message]).toEqual([403, 'Forbidden', 'GET /api/v1/pods: pods is forbidden']);
});

test.each([
  [502, 'Unknown', '<html>bad gateway</html>'],
  [404, 'NotFound', 'null'],
  [409, 'Conflict', '{"kind":"Status"}'],
  [410, 'Expired', '[]'],
])('gives a %i without a Status a reason, and does not show its text', async (code, reason, text) => {
  const { client } = await start((_, response) => response.writeHead(code).end(text));
  const error = await failureOf(client.request('GET', toKubePath('/x')));
  expect([error.status, error.reason]).toEqual([code, reason]);
  expect(error.message).toBe(`GET /x: the response was ${code}, without a message from the API server`);
});

test('reads the token again once after a 401', async () => {
  const tokens = ['old', 'new', 'new', 'newest'];
  const { server, client } = await start(
    ({ headers }, response) => {
      const isFresh = headers.authorization === 'Bearer new';
      if (isFresh) answerJson(response, 200, { ok: true });
      else answerJson(response, 401, toStatus(401, 'Unauthorized', 'Unauthorized'));
    },
    () => ({
      token: async () => tokens.shift() ?? 'none',
    }),
  );
  expect(await client.request('GET', toKubePath('/x'))).toEqual({ ok: true });
  await client.request('GET', toKubePath('/x'));
  expect((await failureOf(client.request('GET', toKubePath('/x')))).status).toBe(401);
  expect(server.asked).toHaveLength(5);
});

test('trusts only the given CA', async () => {
  const other = await startApiServer((_, response) => answerJson(response, 200, {}));
  ends.push(() => other.stop());
  const { server, client } = await start(
    (_, response) => answerJson(response, 200, {}),
    () => ({ ca: other.ca }),
  );
  const error = await failureOf(client.request('GET', toKubePath('/x')));
  expect([error.status, error.reason]).toEqual([0, 'Unreachable']);
  expect(error.message).toMatch(/^127\.0\.0\.1:\d+: its certificate is not signed by the given CA \(/);
  expect(server.asked).toEqual([]);
});

test('uses the current CA', async () => {
  const other = await startApiServer(() => undefined);
  ends.push(() => other.stop());
  let { ca } = other;
  const { server, client } = await start(
    (_, response) => answerJson(response, 200, {}),
    () => ({
      get ca() {
        return ca;
      },
    }),
  );
  await failureOf(client.request('GET', toKubePath('/x')));
  ca = server.ca;
  expect(await client.request('GET', toKubePath('/x'))).toEqual({});
});

test('follows no redirect', async () => {
  const { server, client } = await start((_, response) => response.writeHead(307, { Location: '/elsewhere' }).end());
  const error = await failureOf(client.request('GET', toKubePath('/x')));
  expect([error.status, error.reason]).toEqual([307, 'Redirected']);
  expect(server.asked).toHaveLength(1);
});

test('aborts a request without a response in time', async () => {
  const clock = new FakeClock();
  const { server, client } = await start(
    () => undefined,
    () => ({}),
    clock,
  );
  const failure = failureOf(client.request('GET', toKubePath('/x'), { timeout: 5_000 }));
  while (server.asked.length === 0) await settle();
  await clock.advance(5_000);
  const { reason, message } = await failure;
  expect([reason, message]).toEqual(['Timeout', `${server.url.host}: no complete response within 5 s`]);
  expect(clock.timers).toBe(0);
});

test('aborts a response that arrives too slowly', async () => {
  const clock = new FakeClock();
  const { server, client } = await start(
    (_, response) => void response.writeHead(200).write('{'),
    () => ({}),
    clock,
  );
  const failure = failureOf(client.request('GET', toKubePath('/x')));
  while (server.asked.length === 0) await settle();
  await clock.advance(15_000);
  expect((await failure).reason).toBe('Timeout');
});

test('does not read a response beyond the limit', async () => {
  const { client } = await start((_, response) => void response.writeHead(200).end('x'.repeat(101)));
  expect((await failureOf(client.request('GET', toKubePath('/x?a=b'), { maxBytes: 100 }))).message).toMatch(
    /the response to \/x has more than 100 bytes$/,
  );
  expect(await client.readPod('a', 'b:1', 'x', { maxBytes: 101 })).toHaveLength(101);
});

test('reports a response that is incomplete or not JSON', async () => {
  const { client } = await start(({ url }, response) => {
    if (url === '/text') response.end('ok');
    else response.writeHead(200, { 'Content-Length': 10 }).write('{', () => response.destroy());
  });
  expect((await failureOf(client.request('GET', toKubePath('/broken')))).reason).toBe('Unreachable');
  expect((await failureOf(client.request('GET', toKubePath('/text')))).reason).toBe('NotUnderstood');
});

test('reports that nothing listens', async () => {
  const server = await startApiServer(() => undefined);
  await server.stop();
  const client = toClient(server);
  expect((await failureOf(client.request('GET', toKubePath('/x')))).message).toBe(
    `${server.url.host}: connection refused (ECONNREFUSED)`,
  );
});

test('reports that a token cannot be used, and does not show it', async () => {
  const { server, client } = await start(
    () => undefined,
    () => ({ token: async () => `${TOKEN}\nX-Other: 1` }),
  );
  const { reason, message } = await failureOf(client.request('GET', toKubePath('/x')));
  expect([reason, message]).toEqual(['NoCredentials', expect.stringMatching(/CA or token is invalid \(/)]);
  expect(server.asked).toEqual([]);
});

test('reports why there is no token', async () => {
  const { server, client } = await start(
    () => undefined,
    () => ({
      token: async () => {
        throw new Error('the file is empty');
      },
    }),
  );
  expect((await failureOf(client.request('GET', toKubePath('/x')))).message).toBe('the file is empty');
  expect(server.asked).toEqual([]);
});

test('waits as long as a busy API server requests, at most three times', async () => {
  const clock = new FakeClock();
  const { server, client } = await start(
    (_, response) => answerJson(response, 429, toStatus(429, 'TooManyRequests', 'busy'), { 'Retry-After': '1' }),
    () => ({}),
    clock,
  );
  const failure = failureOf(client.request('POST', toKubePath('/x'), { body: {} }));
  for (let asked = 1; asked <= 4; asked++) {
    while (server.asked.length < asked) await settle();
    while (asked < 4 && clock.timers > 1) await settle();
    await settle();
    if (asked < 4) await clock.advance(1_000);
  }
  expect((await failure).status).toBe(429);
  expect(server.asked).toHaveLength(4);
});

test('takes no orders from a pod: neither to wait, nor to send again or with another token', async () => {
  let tokens = 0;
  const { server, client } = await start(
    ({ url }, response) => {
      const [status = 200] = url.split('/').map(Number).filter(Boolean);
      if (url === '/version') answerJson(response, 200, {});
      else if (status === 200) response.destroy();
      else response.writeHead(status, { 'Retry-After': '1', Location: '/x' }).end();
    },
    () => ({ token: async () => `${++tokens}` }),
  );
  for (const status of [429, 401, 307, 200]) {
    // The pod's answer uses the connection of this one again.
    await client.request('GET', toKubePath('/version'));
    const error = await failureOf(client.readPod('shop', 'web-1:8481', `${status}`));
    expect(error.status).toBe(status === 200 ? 0 : status);
  }
  expect([server.asked.length, tokens]).toEqual([8, 8]);
  expect(server.asked[1]?.url).toBe('/api/v1/namespaces/shop/pods/web-1:8481/proxy/429');
});

test('lists page by page, with metadata only on request', async () => {
  const { server, client } = await start(({ url }, response) => {
    const token = new URL(url, 'https://x').searchParams.get('continue');
    answerJson(response, 200, {
      items: [{ id: token ?? 'first' }],
      metadata: token === 'b' ? {} : { continue: token === null ? 'a' : 'b' },
    });
  });
  expect(
    await client.list(toKubePath('/api/v1/secrets'), { labelSelector: 'x' }, { accept: METADATA_ONLY_OBJECT, pageSize: 2 }),
  ).toEqual([{ id: 'first' }, { id: 'a' }, { id: 'b' }]);
  expect(server.asked[2]?.url).toBe('/api/v1/secrets?labelSelector=x&limit=2&continue=b');
  expect(server.asked.every(({ headers }) => headers.accept === METADATA_ONLY_OBJECT)).toBe(true);
});

test('lists again in one piece if its pages expired', async () => {
  const { client } = await start(({ url }, response) => {
    const { searchParams } = new URL(url, 'https://x');
    if (searchParams.has('continue')) answerJson(response, 410, toStatus(410, 'Expired', 'too old'));
    else answerJson(response, 200, searchParams.has('limit') ? { items: [1], metadata: { continue: 'a' } } : { items: [1, 2] });
  });
  expect(await client.list(toKubePath('/x'))).toEqual([1, 2]);
});

test('reads a page that is too large in halves, and a single object that is too large fails', async () => {
  const large = { items: ['x'.repeat(40_000_000), 'y'.repeat(40_000_000)] };
  const { server, client } = await start(({ url }, response) => {
    const { searchParams } = new URL(url, 'https://x');
    const [limit, from] = [Number(searchParams.get('limit')), Number(searchParams.get('continue') ?? 0)];
    if (url.startsWith('/whole')) return answerJson(response, 200, { items: [large] });
    const to = from + limit;
    answerJson(response, 200, { items: large.items.slice(from, to), metadata: to < 2 ? { continue: String(to) } : {} });
  });
  expect((await client.list(toKubePath('/x'), {}, { pageSize: 3 })).map((text) => String(text)[0])).toEqual(['x', 'y']);
  expect(server.asked.map(({ url }) => url)).toEqual(['/x?limit=3', '/x?limit=1', '/x?limit=1&continue=1']);
  expect((await failureOf(client.list(toKubePath('/whole'), {}, { pageSize: 2 }))).reason).toBe('TooLarge');
});

test('treats a list without items as empty', async () => {
  const { client } = await start((_, response) => answerJson(response, 200, { items: null, metadata: {} }));
  expect(await client.list(toKubePath('/x'))).toEqual([]);
});

test('sends requests over the socket of kubectl, and reports its errors', async () => {
  const asked: unknown[] = [];
  const server = createServer(({ url, headers }, response) => {
    asked.push([url, headers.host, headers.authorization]);
    if (url === '/version') return answerJson(response, 200, {});
    response.writeHead(500, { 'Content-Type': url === '/html' ? 'text/html' : 'text/plain; charset=utf-8' });
    response.end(url === '/html' ? '<html>' : 'dial tcp 192.0.2.1:6443: connect: connection refused\nmore');
  });
  const socketPath = join(makeFolder(), 'api.sock');
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  let ended = 0;
  const client = new KubeClient({ kind: 'kubectl', socketPath, close: () => void ended++ }, systemClock);
  ends.push(() => server.close());
  expect(await client.request('GET', toKubePath('/version'))).toEqual({});
  expect(asked).toEqual([['/version', 'localhost', undefined]]);
  const { status, message } = await failureOf(client.request('GET', toKubePath('/x')));
  expect([status, message]).toEqual([500, 'GET /x: kubectl: dial tcp 192.0.2.1:6443: connect: connection refused']);
  expect((await failureOf(client.request('GET', toKubePath('/html')))).message).toMatch(/was 500, without a message/);
  client.close();
  expect(ended).toBe(1);
  server.close();
  expect((await failureOf(client.request('GET', toKubePath('/x')))).message).toMatch(/^kubectl: /);
});
