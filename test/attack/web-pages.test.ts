/** Requests that a web page in a browser on this machine causes: none reaches an endpoint of the admin port that is not public. */
import { afterEach, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { startGate, type TestGate, toRoute } from '../support/gate.ts';

/** They change nothing, and their responses hold nothing confidential. Any other endpoint, also a new one, must reject pages. */
const PUBLIC = ['/metrics', '/healthz', '/readyz', '/identity/jwks.json', '/app-health/*/*'];
const TOKEN = 'a-token-of-the-admin-port-of-32-';
let gate: TestGate;
afterEach(() => gate.stop());

const FOREIGN = [
  { Origin: 'https://evil.example' },
  { Origin: 'null' },
  { Origin: 'http://localhost:1' },
  { 'Sec-Fetch-Site': 'cross-site' },
  { 'Sec-Fetch-Site': 'same-site' },
  { Host: 'evil.example', 'Sec-Fetch-Site': 'cross-site' },
];
const REBOUND = [
  { Host: 'evil.example' },
  { Host: 'evil.example:8080', Origin: 'http://evil.example:8080', 'Sec-Fetch-Site': 'same-origin' },
];

async function request(method: string, path: string, headers: Readonly<Record<string, string>>): Promise<number> {
  const Host = `127.0.0.1:${gate.adminPort}`;
  return (await send(gate.adminPort, { method, path: path.replaceAll('*', 'billing'), headers: { Host, ...headers } })).status;
}

test.each([
  ['without a token, and with a name that was rebound', {}, {}, [...FOREIGN, ...REBOUND]],
  ['with the token', { token: { secret: { env: 'PAGES_TOKEN' } } }, { Authorization: `Bearer ${TOKEN}` }, FOREIGN],
])('pages of other origins are rejected by every endpoint, %s', async (_title, admin, credentials, foreign) => {
  process.env['PAGES_TOKEN'] = TOKEN;
  gate = await startGate({ admin: { address: '127.0.0.1:0', ...admin }, routes: [toRoute(1)] });
  const { text } = await send(gate.adminPort, { method: 'GET', path: '/none' });
  const paths = text
    .trim()
    .replace(/^.*endpoints are /, '')
    .split(', ');
  expect(paths).toContain('/prestop');
  for (const path of paths.filter((each) => !PUBLIC.includes(each)))
    for (const method of ['GET', 'HEAD', 'POST', 'DELETE', 'PUT'])
      for (const headers of foreign)
        expect([path, method, headers, await request(method, path, { ...credentials, ...headers })]).toEqual([
          path,
          method,
          headers,
          403,
        ]);
  expect(gate.log().filter(({ msg }) => msg === 'leaving')).toEqual([]);
});

test.each([
  ['an exec hook', 'localhost'],
  ['the kubelet, which sends the address of the pod', '10.244.0.7:9090'],
  ['the kubelet, for a pod with IPv6', '[fd00::7]:9090'],
])('/prestop serves %s', async (_title, Host) => {
  gate = await startGate({ admin: { address: '127.0.0.1:0' }, routes: [toRoute(1)] });
  expect(await request('GET', '/prestop', { Host })).toBe(200);
  expect(gate.log().filter(({ msg }) => msg === 'leaving')).toHaveLength(1);
});
