import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { OwnPorts } from '../../src/http/dial/address-rules.ts';
import { compileEgressRules, findUrlProblem } from '../../src/http/dial/endpoint-url.ts';
import { makeFolder, useApp } from '../support/fixtures.ts';
import { startGate, toRoute, until } from '../support/gate.ts';
import { call, listDeliveries, postEvent } from '../support/provider/client.ts';
import { openSender, sendTo, toResolve } from '../support/sender.ts';
import { makeEntry } from '../support/users.ts';
import { NAMES_OF_PRIVATE_HOSTS, PRIVATE_HOSTS } from './private-hosts.ts';

const app = useApp();
const PUBLIC = '93.184.215.14';
/** Connections to this public address reach the app of the test. No other address is dialled. */
const detour = (address: string): string => {
  if (address === PUBLIC) return '127.0.0.1';
  throw new Error(`a test would have connected to ${address}`);
};
const openStrict = (names: Parameters<typeof toResolve>[0] = {}, egress: object = {}) => {
  const resolver = toResolve(names);
  return { sender: openSender({ resolve: resolver.resolve, detour, egress: { allowPrivate: [], ...egress } }), ...resolver };
};

describe('an endpoint that is not on the public internet', () => {
  test.each([...PRIVATE_HOSTS, 'localhost.', 'LOCALHOST'])(
    'is rejected by its URL, when it is created and when it is sent to: %s',
    async (host) => {
      const url = `http://${host}:${app.port}/`;
      const rules = compileEgressRules({ allowHttp: true, allowPrivate: [], deny: [] });
      expect(findUrlProblem(url, rules)?.problem).toMatch(/ is not on the public internet$/);
      expect(await sendTo(openStrict().sender, { url })).toMatchObject({ outcome: 'blocked', isSent: false });
    },
  );

  // Parsers and resolvers take all of these for 127.0.0.1, or for an address with a zone.
  test.each([
    ...[
      '2130706433',
      '0x7f000001',
      '0x7f.1',
      '0177.0.0.1',
      '127.1',
      '127.0.1',
      '017700000001',
      '0x7f.0x0.0x0.0x1',
      '127.0.0.1.',
      '00127.0.0.1',
    ],
    ...[
      '127%2e0%2e0%2e1',
      '%31%32%37.0.0.1',
      '[::1%25lo]',
      '[::1%lo]',
      '[127.0.0.1]',
      '127.0.0.1%00',
      '①②⑦.0.0.1',
      '127。0。0。1',
      '0',
      '0x0',
      '127.0.0.256',
    ],
    ...['foo@127.0.0.1', 'acme.example@127.0.0.1', '127.0.0.1#acme.example', '127.0.0.1\\acme.example', '127.0.0.1/acme.example'],
  ])('is rejected in the spelling %s', async (host) => {
    const url = `http://${host}${host.includes('/') ? '' : ':80/'}`;
    const rules = compileEgressRules({ allowHttp: true, allowPrivate: [], deny: [] });
    expect(findUrlProblem(url, rules)).toBeDefined();
    expect(await sendTo(openStrict().sender, { url })).toMatchObject({ outcome: 'blocked', isSent: false });
  });

  test.each(Object.keys(NAMES_OF_PRIVATE_HOSTS))('is rejected by the addresses of its name: %s', async (name) => {
    const { sender } = openStrict(NAMES_OF_PRIVATE_HOSTS);
    const result = await sendTo(sender, { url: `http://${name}:${app.port}/` });
    expect(result).toMatchObject({
      outcome: 'blocked',
      isSent: false,
      detail: expect.stringMatching(/ is not (?:on the public internet|an address)$/),
    });
    expect(app.received).toHaveLength(0);
  });
});

test('an endpoint whose name leads to a private IPv4 address through the NAT64 of the network is rejected', async () => {
  const names = { 'acme.example': ['2a00:1098:2c::a9fe:a9fe'] };
  const { sender } = openStrict(names, { nat64Prefixes: ['2a00:1098:2c::/96'] });
  expect(await sendTo(sender, { url: `http://acme.example:${app.port}/` })).toMatchObject({
    outcome: 'blocked',
    isSent: false,
    detail: 'acme.example: its address 2a00:1098:2c::a9fe:a9fe is not on the public internet',
  });
});

test('the ports of the process itself are rejected, except for its data port', async () => {
  const basic = { realm: 'r', users: { file: 'users' } };
  const gate = await startGate(
    {
      routes: [toRoute(app.port)],
      authz: { address: '127.0.0.1:0' },
      proxy: { address: '127.0.0.1:0', requireTls: false, basic, allow: ['*.example:443'] },
      provider: {
        address: '127.0.0.1:0',
        queue: { sqlite: { path: join(makeFolder(), 'queue.db'), allowVolatile: true } },
        egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8', '::1'] },
        schedule: [],
      },
    },
    undefined,
    { users: makeEntry('ada', 'x') },
  );
  onTestFinished(async () => void (await gate.stop()));
  const { port, adminPort, providerPort, proxyPort, authzPort } = gate;
  const ports = { data: port, admin: adminPort, provider: providerPort, proxy: proxyPort, authz: authzPort };
  for (const [id, own] of Object.entries(ports)) {
    const endpoint = { id, url: `http://127.0.0.1:${own}/v1/events` };
    expect((await call(providerPort, 'POST', '/v1/endpoints', endpoint)).status).toBe(201);
  }
  await postEvent(providerPort);
  const deliveries = await until(async () => {
    const all = await listDeliveries(providerPort);
    return all.every(({ attempts }) => attempts === 1) && all;
  });
  const shown = deliveries.map(({ endpoint, lastAttempt }) => [endpoint, lastAttempt as Record<string, unknown>] as const);
  const found = new Map(shown);
  expect(found.get('data')).toMatchObject({ outcome: 'client_error', status: 404 });
  for (const id of ['admin', 'provider', 'proxy', 'authz'] as const)
    expect([id, found.get(id)]).toEqual([
      id,
      expect.objectContaining({
        outcome: 'blocked',
        detail: `127.0.0.1 is this machine, and port ${ports[id]} belongs to sidegate`,
      }),
    ]);
});

describe('DNS rebinding', () => {
  const url = (): string => `http://rebind.example:${app.port}/`;

  test('changes nothing: the name is resolved once for a connection, and the checked address is dialled', async () => {
    let answers = 0;
    const { sender, counts } = openStrict({ 'rebind.example': () => [++answers === 1 ? PUBLIC : '127.0.0.1'] });
    expect(await sendTo(sender, { url: url() })).toMatchObject({ outcome: 'delivered' });
    expect(counts).toEqual({ 'rebind.example': 1 });
    // The kept connection leads to the address that was checked.
    expect(await sendTo(sender, { url: url() })).toMatchObject({ outcome: 'delivered' });
    expect(counts).toEqual({ 'rebind.example': 1 });
    // A new connection is checked again.
    expect(await sendTo(sender, { url: url(), id: 'ep_2' })).toMatchObject({
      outcome: 'blocked',
      isSent: false,
      detail: 'rebind.example: its address 127.0.0.1 is not on the public internet',
    });
    expect(app.received).toHaveLength(2);
  });

  test.each([
    ['first', ['127.0.0.1', PUBLIC]],
    ['last', [PUBLIC, '10.0.0.1']],
    ['behind more addresses than are tried', [PUBLIC, PUBLIC, PUBLIC, PUBLIC, PUBLIC, '169.254.169.254']],
    ['in IPv6', [PUBLIC, '::ffff:127.0.0.1']],
    ['as an address in another notation', [PUBLIC, '0177.0.0.1']],
  ])('one forbidden address rejects the whole answer: %s', async (_, addresses) => {
    const { sender } = openStrict({ 'rebind.example': addresses });
    expect(await sendTo(sender, { url: url() })).toMatchObject({ outcome: 'blocked', isSent: false });
    expect(app.received).toHaveLength(0);
  });

  test('cannot use the retry of a dead connection', async () => {
    let answers = 0;
    const { sender, counts } = openStrict({ 'rebind.example': () => [++answers === 1 ? PUBLIC : '127.0.0.1'] });
    app.handler = (_request, response) => (app.received.length === 1 ? response.end() : response.socket?.destroy());
    expect(await sendTo(sender, { url: url() })).toMatchObject({ outcome: 'delivered' });
    // The endpoint may have seen the request on the dead connection.
    expect(await sendTo(sender, { url: url() })).toMatchObject({ outcome: 'blocked', isSent: true });
    expect(counts).toEqual({ 'rebind.example': 2 });
  });

  test('cannot use redirects', async () => {
    const { sender } = openStrict({ 'rebind.example': [PUBLIC] });
    app.handler = (_request, response) => response.writeHead(307, { Location: 'http://127.0.0.1/' }).end();
    expect(await sendTo(sender, { url: url() })).toMatchObject({ outcome: 'redirect', status: 307 });
    expect(app.received).toHaveLength(1);
  });
});

describe('a name server of the attacker', () => {
  test('cannot make the sender connect after the attempt has ended', async () => {
    let answer: (addresses: readonly string[]) => void = () => undefined;
    const dialled: string[] = [];
    const sender = openSender({
      resolve: () =>
        new Promise((resolve) => {
          answer = resolve;
        }),
      detour: (address) => {
        dialled.push(address);
        return '127.0.0.1';
      },
    });
    const url = `http://late.example:${app.port}/`;
    expect(await sendTo(sender, { url, connectTimeout: 100 })).toMatchObject({ outcome: 'dns', isSent: false });
    answer([PUBLIC]);
    // Another delivery passes meanwhile.
    expect(await sendTo(sender, { url: `http://127.0.0.1:${app.port}/`, id: 'ep_2' })).toMatchObject({ outcome: 'delivered' });
    expect(dialled).toEqual(['127.0.0.1']);
  });

  test('cannot keep the process busy with thousands of addresses', async () => {
    const addresses = Array.from({ length: 4_000 }, (_, index) => `93.184.${index >> 8}.${index & 0xff}`);
    const { sender } = openStrict({ 'many.example': addresses });
    const result = await sendTo(sender, { url: 'http://many.example/' });
    expect(result).toMatchObject({
      outcome: 'dns',
      isSent: false,
      detail: 'many.example has 4000 addresses; at most 64 are accepted',
    });
  });
});

describe('the rules of the config', () => {
  test('a denied address is not dialled, though it is public or allowed', async () => {
    const { sender } = openStrict(
      { 'acme.example': [PUBLIC] },
      { deny: ['93.184.215.0/24', '127.0.0.1'], allowPrivate: ['127.0.0.0/8'] },
    );
    expect(await sendTo(sender, { url: `http://acme.example:${app.port}/` })).toMatchObject({ outcome: 'blocked' });
    expect(await sendTo(sender, { url: `http://127.0.0.1:${app.port}/` })).toMatchObject({ outcome: 'blocked' });
  });

  test('a name that is not listed is not even resolved', async () => {
    const { sender, counts } = openStrict({ 'evil.example': [PUBLIC] }, { allowHosts: ['acme.example'] });
    expect(await sendTo(sender, { url: 'http://evil.example/' })).toMatchObject({ outcome: 'blocked', isSent: false });
    expect(counts).toEqual({});
  });

  test("the process's own ports are never dialled, though their addresses are allowed", async () => {
    const ownPorts = new OwnPorts();
    ownPorts.add(app.port);
    const own = Object.values(networkInterfaces()).flatMap((entries = []) => entries.map(({ address }) => address));
    const [address = '127.0.0.1'] = own.filter((each) => !each.includes(':'));
    const { resolve } = toResolve({ 'me.example': ['127.0.0.1'] });
    const sender = openSender({ resolve, ownPorts, egress: { allowPrivate: ['0.0.0.0/0', '::/0'] } });
    for (const host of ['127.0.0.1', '127.9.9.9', '0.0.0.0', '[::1]', '[::ffff:127.0.0.1]', 'me.example', address]) {
      const result = await sendTo(sender, { url: `http://${host}:${app.port}/` });
      expect(result).toMatchObject({ outcome: 'blocked', isSent: false, detail: expect.stringContaining('belongs to sidegate') });
    }
    expect(app.received).toHaveLength(0);
  });
});
