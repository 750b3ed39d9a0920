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
  // A page of plain HTTP on a host that a TLS proxy serves, too.
  { Host: 'console.example', Origin: 'http://console.example', 'Sec-Fetch-Site': 'cross-site' },
  // No browser sends these: each value that names another site is enough.
  { Origin: 'https://evil.example', 'Sec-Fetch-Site': 'same-origin' },
  { Origin: 'https://evil.example', 'Sec-Fetch-Site': 'none' },
  { Origin: 'null', 'Sec-Fetch-Site': 'same-origin' },
  { Host: 'console.example', Origin: 'https://console.example' },
  { Host: 'console.example', Origin: 'https://console.example', 'Sec-Fetch-Site': 'none' },
  { Host: 'console.example', Origin: 'https://console.example:8443', 'Sec-Fetch-Site': 'same-origin' },
  { Host: 'console.example', Origin: 'https://console.example.evil.example', 'Sec-Fetch-Site': 'same-origin' },
  { Host: 'console.example', Origin: 'wss://console.example', 'Sec-Fetch-Site': 'same-origin' },
  { Host: 'console.example', Origin: 'https://console.example', 'Sec-Fetch-Site': 'same-origin, cross-site' },
];
const REBOUND = [
  { Host: 'evil.example' },
  { Host: 'evil.example:8080', Origin: 'http://evil.example:8080', 'Sec-Fetch-Site': 'same-origin' },
  { Host: 'evil.example', Origin: 'https://evil.example', 'Sec-Fetch-Site': 'same-origin' },
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

test('the page itself acts behind a TLS proxy that passes the Host on, with the token, but not on /prestop', async () => {
  process.env['PAGES_TOKEN'] = TOKEN;
  gate = await startGate({ admin: { address: '127.0.0.1:0', token: { secret: { env: 'PAGES_TOKEN' } } }, routes: [toRoute(1)] });
  for (const Host of ['console.example', 'console.example:8443', 'localhost:8443', '[::1]:8443']) {
    const page = { Host, Origin: `https://${Host}`, 'Sec-Fetch-Site': 'same-origin', Authorization: `Bearer ${TOKEN}` };
    expect([Host, await request('DELETE', '/captures', page)]).toEqual([Host, 200]);
    expect([Host, await request('GET', '/api/v1/overview', page)]).toEqual([Host, 200]);
    expect([Host, await request('DELETE', '/captures', { ...page, Authorization: '' })]).toEqual([Host, 401]);
  }
  const page = { Host: 'console.example', Origin: 'https://console.example', 'Sec-Fetch-Site': 'same-origin' };
  expect(await request('GET', '/prestop', { ...page, Authorization: `Bearer ${TOKEN}` })).toBe(403);
});
