/** Heads, and the bytes behind them, under the memory limit of the smallest container. */
import { connect } from 'node:net';
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

/** As large as a head may be, with many fields. */
const FIELDS = Array.from({ length: 98 }, (_, i) => `X-${i}: ${'v'.repeat(150)}`);

describe.skipIf(NO_CGROUPS !== undefined)(
  `with ${MEBIBYTES} MiB, large heads that arrive at once on all connections of all ports`,
  () => {
    /** Opens as many connections as may be, and writes to all of them at once. */
    async function floodHeads(ports: readonly number[], head: string): Promise<void> {
      const sockets = await Promise.all(
        ports.flatMap((port) =>
          Array.from({ length: CONNECTIONS.connections }, async (_, i) => {
            const socket = connect({ port, host: '127.0.0.1', localAddress: `127.0.0.${2 + (i % CONNECTIONS.addresses)}` });
            await new Promise((resolve) => socket.on('error', resolve).once('connect', resolve));
            return socket.resume();
          }),
        ),
      );
      // Node accepts one connection in a turn.
      await new Promise((resolve) => setTimeout(resolve, 500));
      for (const socket of sockets) socket.write(head);
      await new Promise((resolve) => setTimeout(resolve, 3_000));
      for (const socket of sockets) socket.destroy();
    }

    test.each([
      ['unfinished', ''],
      ['complete', '\r\n\r\n'],
    ])('%s', async (_name, end) => {
      const proxy = { address: '127.0.0.1:0', requireTls: false, basic, allow: ['a:443'] };
      const sections = { routes: [toRoute(app.port)], proxy, authz: { address: '127.0.0.1:0' } };
      const gate = await startGateInCgroup(MEBIBYTES, sections, { users: makeEntry(PROXY_USER, PROXY_PASSWORD) });
      try {
        const listening = gate.log().find(({ msg }) => msg === 'listening') ?? {};
        const ports = ['port', 'proxyPort', 'authzPort'].map((key) => Number(listening[key]));
        await floodHeads(ports, `${['GET / HTTP/1.1', 'Host: a', ...FIELDS].join('\r\n')}${end}`);
        await expect.poll(() => sendDelivery(gate.port, makeDelivery()), { timeout: 30_000 }).toBe(200);
        expect({ alive: gate.isAlive(), oomKills: gate.oomKills() }).toEqual({ alive: true, oomKills: 0 });
      } finally {
        await gate.stop();
      }
    });
  },
);
