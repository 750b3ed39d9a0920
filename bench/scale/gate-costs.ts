/** Counts what a real gate sends to a real Redis: for each kind of delivery, while idle, when it connects, and while a console is open. */
import { createHmac, randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { startApp, type TestApp } from '../../test/support/app.ts';
import { send } from '../../test/support/client.ts';
import { type Delivery, makeDelivery, SECRET } from '../../test/support/deliveries.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../../test/support/gate.ts';
import { type RedisServer, startRedis } from '../../test/support/redis.ts';
import { startCluster } from '../../test/support/redis-topologies.ts';
import { makeEntry, toBasic } from '../../test/support/users.ts';
import { makeBody } from '../sign.ts';
import { addUsage, countCommands, RedisMeter, type Usage } from './redis-meter.ts';
import type { RedisCost, ScaleRun } from './results.ts';

type GateCosts = Pick<ScaleRun, 'deliveries' | 'idle' | 'console' | 'connecting'>;
type IdleCost = ScaleRun['idle'][number];

const COUNT = 500;
const IDLE_SECONDS = 20;
const CONNECTS = 50;
const SHARED_REQUESTS = 200;
/** Two turns of the gate's sharing. */
const SHARED_WITHIN_MS = 5_000;
const BODY = makeBody(1_024);
const ORDER = { key: '$.data.id', version: '$.created' };

/** How the deliveries of a kind are made, and what they must get. */
interface Kind {
  readonly title: string;
  readonly route: string;
  readonly status: number;
  readonly make: (index: number) => Pick<Delivery, 'headers' | 'body'>;
  readonly appStatus?: number;
}

const KINDS: readonly Kind[] = [
  { title: 'accepted', route: 'plain', status: 200, make: () => makeDelivery({ body: BODY }) },
  {
    title: 'duplicate of a handled event',
    route: 'plain',
    status: 200,
    make: () => makeDelivery({ id: 'msg_repeated', body: BODY }),
  },
  {
    title: 'forged',
    route: 'plain',
    status: 401,
    make: () => makeDelivery({ body: BODY, secret: `whsec_${Buffer.alloc(32).toString('base64')}` }),
  },
  { title: 'rejected by the app', route: 'plain', status: 500, make: () => makeDelivery({ body: BODY }), appStatus: 500 },
  { title: 'accepted, the ID is not signed (GitHub)', route: 'github', status: 200, make: makePush },
  { title: 'accepted, with `order`', route: 'ordered', status: 200, make: makeOrdered },
  { title: 'right password, seen before', route: 'login', status: 200, make: () => toLogin('right') },
  { title: 'wrong password', route: 'login', status: 401, make: () => toLogin('wrong') },
];

function makePush(index: number): Pick<Delivery, 'headers' | 'body'> {
  const body = Buffer.from(JSON.stringify({ ref: 'refs/heads/main', after: randomUUID(), index }));
  const signature = `sha256=${createHmac('sha256', SECRET).update(body).digest('hex')}`;
  return {
    body,
    headers: { 'Content-Type': 'application/json', 'X-GitHub-Delivery': randomUUID(), 'X-Hub-Signature-256': signature },
  };
}

function makeOrdered(index: number): Delivery {
  return makeDelivery({ body: JSON.stringify({ created: 1_700_000_000 + index, data: { id: `res_${index}` } }) });
}

function toLogin(password: string): Pick<Delivery, 'headers' | 'body'> {
  return { body: Buffer.alloc(0), headers: toBasic('alice', password) };
}

function toSections(appPort: number, redisPort: number, over: Sections = {}): Sections {
  const route = (name: string, webhook: Sections): Sections => ({
    ...toRoute(appPort, { match: { path: `/${name}` }, webhook }),
    name,
  });
  const limit = { failures: 1_000_000, per: '1h', ban: '1h' };
  const login = {
    name: 'login',
    match: { path: '/login' },
    upstream: `http://127.0.0.1:${appPort}`,
    basic: { realm: 'r', users: { file: 'users' }, requireTls: false, cache: { ttl: '0s' }, limit },
  };
  return {
    store: { redis: { url: `redis://127.0.0.1:${redisPort}` } },
    routes: [route('plain', {}), route('github', { scheme: 'github' }), route('ordered', { order: ORDER }), login],
    ...over,
  };
}

async function openGate(sections: Sections): Promise<TestGate> {
  const gate = await startGate(sections, undefined, { users: makeEntry('alice', 'right') });
  await until(() => gate.log().some(({ msg }) => msg === 'store_up'));
  return gate;
}

async function measureKind(kind: Kind, gate: TestGate, app: TestApp, meter: RedisMeter): Promise<RedisCost> {
  app.handler = (_request, response) => response.writeHead(kind.appStatus ?? 200).end('handled');
  const play = async (index: number): Promise<void> => {
    const { status } = await send(gate.port, { path: `/${kind.route}`, ...kind.make(index) });
    if (status !== kind.status) throw new Error(`${kind.title}: ${status}`);
  };
  await play(-1);
  await settle(meter);
  const logBefore = gate.logText().length;
  for (let index = 0; index < COUNT; index++) await play(index);
  const usage = await settle(meter);
  return { ...toCost(kind.title, usage, COUNT), logBytes: Math.round((gate.logText().length - logBefore) / COUNT) };
}

/** Settlements are sent after the response: waits until nothing but the question for an open console follows. */
async function settle(meter: RedisMeter): Promise<Usage> {
  const parts = [await meter.lap()];
  do {
    await pause(100);
    parts.push(await meter.lap());
  } while ((parts.at(-1)?.commands['evalsha'] ?? 0) > 0);
  const all = addUsage(parts);
  const { exists: _console, ...commands } = all.commands;
  return { ...all, commands };
}

/** Calls from outside are scripts, and commands if there is no script. */
function toCost(title: string, usage: Usage, count: number): RedisCost {
  const scripts = (usage.commands['evalsha'] ?? 0) + (usage.commands['eval'] ?? 0);
  const round = (value: number): number => Math.round((value / count) * 1_000) / 1_000;
  // The question for an open console, which is not counted, has some bytes.
  const isNone = countCommands(usage) === 0;
  return {
    title,
    calls: round(scripts),
    commands: round(countCommands(usage)),
    bytesIn: isNone ? 0 : Math.round(usage.bytesIn / count),
    bytesOut: isNone ? 0 : Math.round(usage.bytesOut / count),
    logBytes: 0,
  };
}

/** Counts what a process sends without deliveries. */
async function measureIdle(title: string, gate: TestGate, meters: readonly RedisMeter[]): Promise<IdleCost> {
  await pause(2_000);
  for (const meter of meters) await meter.lap();
  await pause(IDLE_SECONDS * 1_000);
  const usage = addUsage(await Promise.all(meters.map((meter) => meter.lap())));
  const connections = (await Promise.all(meters.map((meter) => meter.countConnections()))).reduce((sum, one) => sum + one, 0);
  await gate.stop();
  const cost = toCost(title, usage, IDLE_SECONDS);
  // Without scripts, every command comes from outside.
  const calls = cost.calls > 0 ? cost.calls : cost.commands;
  console.log(title, JSON.stringify(usage.commands), connections);
  return { ...cost, calls, connections };
}

/** Measures a batch of shared requests. */
async function measureConsole(gate: TestGate, meter: RedisMeter): Promise<GateCosts['console']> {
  await meter.client.set('sidegate:console', '1', 'PX', 60_000);
  await pause(SHARED_WITHIN_MS);
  await meter.client.del('sidegate:deliveries');
  for (let i = 0; i < SHARED_REQUESTS; i++) await send(gate.port, { path: '/plain', ...makeDelivery({ body: BODY }) });
  await pause(SHARED_WITHIN_MS);
  const batches = await meter.client.xrange('sidegate:deliveries', '-', '+');
  const texts = batches.map(([, [, text = '']]) => text);
  const requests = texts.reduce((sum, text) => sum + (JSON.parse(text) as unknown[]).length, 0);
  return { requests, bytes: texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0) };
}

/** Measures the start of a connection: after a failover, all gates do it at once. */
async function measureConnecting(app: TestApp, server: RedisServer, meter: RedisMeter): Promise<GateCosts['connecting']> {
  const gate = await openGate(toSections(app.port, server.port));
  const idle = Number(await meter.usedMemory());
  const gates: TestGate[] = [];
  await meter.lap();
  for (let i = 0; i < CONNECTS; i++) gates.push(await openGate(toSections(app.port, server.port)));
  await pause(200);
  const usage = await meter.lap();
  const bytes = ((await meter.usedMemory()) - idle) / CONNECTS;
  for (const each of [gate, ...gates]) await each.stop();
  return {
    commands: Math.round((countCommands(usage) / CONNECTS) * 10) / 10,
    cpuMicroseconds: Math.round(usage.cpuMicroseconds / CONNECTS),
    bytes: Math.round(bytes),
  };
}

async function measureClusterIdle(app: TestApp): Promise<IdleCost> {
  const cluster = await startCluster(1);
  const meters = await Promise.all(cluster.nodes.map(({ port }) => RedisMeter.open(port)));
  const before = await Promise.all(meters.map((meter) => meter.countConnections()));
  const nodes = cluster.nodes.slice(0, 2).map(({ port }) => `127.0.0.1:${port}`);
  const gate = await openGate(toSections(app.port, 0, { store: { redis: { cluster: { nodes } } } }));
  for (let i = 0; i < 20; i++) await send(gate.port, { path: '/plain', ...makeDelivery({ body: BODY }) });
  const idle = await measureIdle('gate, Cluster of 3 primaries and 3 replicas', gate, meters);
  for (const meter of meters) meter.close();
  await cluster.stop();
  const others = before.reduce((sum, one) => sum + one, 0);
  return { ...idle, connections: idle.connections - others };
}

/** Measures everything that a gate sends. */
export async function measureGate(): Promise<GateCosts> {
  const app = await startApp();
  const server = await startRedis();
  const meter = await RedisMeter.open(server.port);
  const gate = await openGate(toSections(app.port, server.port));
  const deliveries: RedisCost[] = [];
  for (const kind of KINDS) {
    deliveries.push(await measureKind(kind, gate, app, meter));
    console.log(JSON.stringify(deliveries.at(-1)));
  }
  const shared = await measureConsole(gate, meter);
  await meter.client.flushall();
  const idle = [await measureIdle('gate', gate, [meter])];
  const connecting = await measureConnecting(app, server, meter);
  meter.close();
  await server.stop();
  idle.push(await measureClusterIdle(app));
  await app.close();
  return { deliveries, idle, console: shared, connecting };
}
