import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.ts';
import { sendRaw, toRequestText, toStatuses } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { startGate, type TestGate, toRoute } from '../support/gate.ts';

let app: TestApp;
let gate: TestGate;

beforeAll(async () => {
  app = await startApp();
  const open = {
    ...toRoute(app.port, { match: { pathPrefix: '/open', allowInPath: ['semicolon', 'encodedSlash'] } }),
    name: 'open',
  };
  gate = await startGate({ routes: [toRoute(app.port, { match: { pathPrefix: '/hooks' } }), open] });
});
afterAll(async () => {
  await gate.stop();
  await app.close();
});
beforeEach(() => {
  app.received.length = 0;
});

async function post(target: string): Promise<number | undefined> {
  const { headers, body } = makeDelivery();
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  const text = await sendRaw(
    gate.port,
    toRequestText(
      [`POST ${target} HTTP/1.1`, 'Host: a', 'Connection: close', ...lines, `Content-Length: ${body.length}`],
      body.toString(),
    ),
  );
  return toStatuses(text)[0];
}

const REFUSED = [
  '/hooks/../admin',
  '/hooks/..',
  '/../hooks',
  '/hooks/./a',
  '/hooks/.',
  '/hooks/%2e%2e/admin',
  '/hooks/%2E%2e',
  '/hooks/.%2e/a',
  '/hooks/%2e',
  '//hooks',
  '/hooks//a',
  '/hooks/a//',
  '/hooks\\a',
  '/hooks/..\\a',
  '/hooks/a\\..\\b',
  '/hooks;a=1',
  '/hooks/a;x',
  '/hooks/..;/admin',
  '/hooks/.;a/b',
  '/hooks/%3b',
  '/hooks%2fa',
  '/hooks/%2F',
  '/hooks%2f..%2fadmin',
  '/hooks/%5c',
  '/hooks/%5C..',
  '/hooks/%3f',
  '/hooks/%3Fa',
  '/hooks/%23',
  '/hooks/a#b',
  '/hooks#',
  '/hooks/%00',
  '/hooks/a%0d%0ab',
  '/hooks/%7f',
  '/hooks/%1f',
  '/hooks/%252e%252e/a',
  '/hooks/%25',
  '/hooks/%',
  '/hooks/%2',
  '/hooks/%zz',
  '/hooks/%c0%ae',
  '/hooks/%ff',
  '/hooks/%e0%80%af',
  'http://a/hooks',
  'https://evil/hooks',
  'hooks',
  '*',
  '',
  '/hooks/\x7f',
  '/hooks/\x80',
  '/hooks/é',
];

test.each(REFUSED)('refuses the target %j with 400', async (target) => {
  expect(await post(target)).toBe(400);
  expect(app.received).toHaveLength(0);
});

const PASSED = [
  '/hooks',
  '/hooks/',
  '/hooks/a/b',
  '/hooks/a.b',
  '/hooks/.well-known',
  '/hooks/...',
  '/hooks/a..b',
  '/hooks/%20',
  '/hooks/%C3%A9',
  "/hooks/-._~!$&'()*+,=:@",
  '/hooks/%41',
];

test.each(PASSED)('forwards %j byte for byte', async (target) => {
  expect(await post(target)).toBe(200);
  expect(app.received[0]?.url).toBe(target);
});

test.each(['/hooksx', '/hook', '/HOOKS', '/', '/%68ooks'])('finds no route for %j', async (target) => {
  expect(await post(target)).toBe(404);
});

test.each(['/open/a;b=1', '/open/a%2fb'])('forwards %j as it is where the route opens it', async (target) => {
  expect(await post(target)).toBe(200);
  expect(app.received[0]?.url).toBe(target);
});

test.each(['/open/..;/admin', '/open/a;/../b', '/open/%2e%2e%2fadmin', '/open/..%2fadmin', '/open/%5c'])(
  'refuses %j even where the route opens some forms',
  async (target) => {
    expect(await post(target)).toBe(400);
  },
);
