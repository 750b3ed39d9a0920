/** Healthy endpoints beside dead ones with backlogs: real lanes, sender and SQLite file, real receivers on loopback. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { Secret } from '../../src/core/secret.ts';
import { createLaneRunner, toLaneCount } from '../../src/provider/lanes/lane-runner.ts';
import type { NewEvent } from '../../src/provider/queue/delivery-queue.ts';
import { until } from '../support/gate.ts';
import { anEndpoint } from '../support/provider/endpoint.ts';
import { FakeRegistry, LANE_SETTINGS, recordHooks } from '../support/provider/fake-lane.ts';
import { makeQueueFolder, openSqliteQueue } from '../support/queue/sqlite-store.ts';
import { openSender } from '../support/sender.ts';

const DEAD = 50;
const HEALTHY = 200;
const BACKLOG = 100;
const ROUNDS = 5;
const KEYS = [{ version: 'v1', secret: new Secret(Buffer.alloc(32, 7)) }] as const;

/** Responds to `/healthy…`, and to nothing else. Counts the connections that are open to each dead path. */
async function openReceivers() {
  const received: string[] = [];
  const dead = new Map<string, number>();
  const most = new Map<string, number>();
  const server = createServer((request, response) => {
    const path = request.url ?? '';
    request.resume();
    if (path.startsWith('/healthy')) {
      received.push(String(request.headers['webhook-id']));
      response.writeHead(204).end();
      return;
    }
    const open = (dead.get(path) ?? 0) + 1;
    dead.set(path, open);
    most.set(path, Math.max(open, most.get(path) ?? 0));
    request.once('close', () => dead.set(path, (dead.get(path) ?? 1) - 1));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port, received, most };
}

function toEvent(id: string, endpoints: readonly string[]): NewEvent {
  const targets = endpoints.map((endpoint) => ({ endpoint }));
  return { id, type: 'invoice.paid', createdAt: Date.now(), body: Buffer.from(`{"id":"${id}"}`), metadata: '{}', targets };
}

test('delivers to 200 healthy endpoints while 50 with backlogs never respond', async () => {
  const { port, received, most } = await openReceivers();
  const names = (kind: string, count: number) => Array.from({ length: count }, (_, index) => `${kind}${index}`);
  const [dead, healthy] = [names('dead', DEAD), names('healthy', HEALTHY)];
  const registry = new FakeRegistry();
  for (const id of [...dead, ...healthy])
    registry.set(anEndpoint(id, { url: `http://127.0.0.1:${port}/${id}`, keys: KEYS, timeout: 60_000 }));
  const folder = makeQueueFolder();
  const queue = await openSqliteQueue(folder.path);
  for (let count = 0; count < BACKLOG; count += 20)
    await queue.append(Array.from({ length: 20 }, (_, index) => toEvent(`dead_${count + index}`, dead)));
  const hooks: string[] = [];
  const runner = createLaneRunner({
    clock: systemClock,
    queue,
    registry,
    sender: openSender(),
    hooks: recordHooks(hooks),
    settings: { ...LANE_SETTINGS, drainTimeout: 0 },
  });
  const serving = queue.serve(toLaneCount(LANE_SETTINGS), runner.run);
  onTestFinished(async () => {
    await serving.stop();
    await queue.close();
    folder.remove();
  });
  await until(() => most.size === DEAD);
  // The dead ones have an attempt each that lasts a minute: what arrives before that did not wait for them.
  for (let round = 0; round < ROUNDS; round++) {
    const events = healthy.map((endpoint) => toEvent(`${endpoint}_${round}`, [endpoint]));
    await queue.append(events);
    await until(() => received.length === (round + 1) * HEALTHY);
  }
  expect(hooks.filter((line) => line.startsWith('attempt dead'))).toEqual([]);
  expect(new Set(received).size).toBe(ROUNDS * HEALTHY);
  expect([...most.values()]).toEqual(Array(DEAD).fill(1));
  const { waiting } = await queue.stats(Date.now());
  expect(waiting).toBeGreaterThanOrEqual(DEAD * BACKLOG);
}, 60_000);
