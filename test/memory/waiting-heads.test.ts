/** Bytes behind the head of a request that waits for a password check or the app, under the memory limit of the smallest container. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { toRoute } from '../support/gate.ts';
import { sendDelivery } from '../support/memory-attacks.ts';
import { type CgroupGate, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';
import { floodPipelined } from '../support/pipelined-flood.ts';
import { PROXY_AUTH, PROXY_PASSWORD, PROXY_USER } from '../support/proxy.ts';
import { makeEntry } from '../support/users.ts';

const MEBIBYTES = 96;
const FLOOD_MS = 5_000;
/** As many as there can be, and as many addresses as they need. */
const CONNECTIONS = { connections: 1_020, addresses: 2 };
const AUTH = PROXY_AUTH.slice('Proxy-'.length).trimEnd();
const WRONG = `Authorization: Basic ${Buffer.from('nobody:wrong').toString('base64')}`;
const UPGRADE = ['Connection: Upgrade', 'Upgrade: websocket'];
const UPLOAD = 'Content-Length: 50000000';
const app = useApp();
const basic = { realm: 'r', users: { file: 'users' } };

const toHead = (line: string, ...fields: readonly string[]): string =>
  `${[`${line} HTTP/1.1`, 'Host: a', ...fields].join('\r\n')}\r\n\r\n`;
const HEADS = {
  'tunnels with a wrong password': ['proxyPort', toHead('CONNECT a:443', `Proxy-${WRONG}`)],
  'upgrades that the app does not answer': ['port', toHead('GET /open/slow', ...UPGRADE)],
  'upgrades that the app rejects': ['port', toHead('GET /open/rejected', ...UPGRADE)],
  'upgrades with a wrong password': ['port', toHead('GET /users', ...UPGRADE, WRONG)],
  'upgrades with a password that the app does not answer': ['port', toHead('GET /users/slow', ...UPGRADE, AUTH)],
  'uploads with a wrong password': ['port', toHead('POST /users', UPLOAD, WRONG)],
  'uploads with a wrong password that do not wait for 100': [
    'port',
    toHead('POST /users', UPLOAD, WRONG, 'Expect: 100-continue'),
  ],
  'requests for a tunnel at the data port': ['port', toHead('CONNECT a:443')],
} as const;

describe.skipIf(NO_CGROUPS !== undefined)(`with ${MEBIBYTES} MiB, bytes right behind the heads of`, () => {
  let gate: CgroupGate;
  beforeAll(async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    const routes = [
      toRoute(app.port),
      { name: 'open', match: { pathPrefix: '/open' }, upstream, allow: 'anyone' },
      { name: 'users', match: { pathPrefix: '/users' }, upstream, basic: { ...basic, requireTls: false } },
    ];
    const proxy = { address: '127.0.0.1:0', requireTls: false, basic, allow: ['a:443'] };
    gate = await startGateInCgroup(MEBIBYTES, { routes, proxy }, { users: makeEntry(PROXY_USER, PROXY_PASSWORD) });
  });
  afterAll(() => gate.stop());
  beforeEach(() => {
    app.handler = ({ url }, response) => {
      app.received.length = 0;
      if (url?.endsWith('/slow') !== true) response.writeHead(url?.endsWith('/rejected') === true ? 404 : 200).end('handled');
    };
  });

  test.each(Object.entries(HEADS))('%s', async (_name, [key, first]) => {
    const port = Number(gate.log().find(({ msg }) => msg === 'listening')?.[key]);
    await floodPipelined({ ...CONNECTIONS, port, milliseconds: FLOOD_MS, first, request: 'x', reads: true });
    await expect.poll(() => sendDelivery(gate.port, makeDelivery()), { timeout: 30_000 }).toBe(200);
    expect({ alive: gate.isAlive(), oomKills: gate.oomKills() }).toEqual({ alive: true, oomKills: 0 });
  });
});
