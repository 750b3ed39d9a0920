/** The measured process: sends the same number of events to the same endpoints, by a bare HTTP client, by the sender, or by the whole provider. */

import { Agent, request } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { Pool } from 'undici';
import { systemClock } from '../../src/core/clock.ts';
import type { Sender } from '../../src/provider/attempt/attempt.ts';
import type { Endpoint } from '../../src/provider/endpoints/endpoint.ts';
import { createLaneRunner, toLaneCount } from '../../src/provider/lanes/lane-runner.ts';
import type { Delivery } from '../../src/provider/queue/delivery-queue.ts';
import { ENGINES, type EngineName, type OpenEngine, openEngine } from './engines.ts';
import { createLocalSender, IGNORE, LANE_SETTINGS, toEvent, toLocalEndpoint, toRegistry } from './parts.ts';

export const METHODS = ['node:http', 'undici', 'sender', ...ENGINES] as const;
export type Method = (typeof METHODS)[number];

/** What to do. */
export interface DeliveryTask {
  readonly method: Method;
  /** Of the receivers. */
  readonly port: number;
  readonly endpoints: number;
  readonly warmUp: number;
  readonly count: number;
}

/** The only message of this process; all times in microseconds for each delivery. */
export interface DeliveryFigures {
  /** Of the process, and of PostgreSQL. */
  readonly cpu: number;
  /** The part of PostgreSQL. */
  readonly serverCpu: number;
  readonly elapsed: number;
  /** For accepting an event into the queue, one at a time, 64 at once. */
  readonly accept?: { readonly cpu: number; readonly elapsed: number };
}

const CONCURRENCY = 64;

/** User and system time of all threads, and of the engine's server. */
async function measure(
  count: number,
  work: () => Promise<void>,
  readServer?: OpenEngine['readServer'],
): Promise<DeliveryFigures> {
  const server = readServer?.().cpuMicroseconds ?? 0;
  const before = process.cpuUsage();
  const began = performance.now();
  await work();
  const elapsed = ((performance.now() - began) * 1_000) / count;
  const { user, system } = process.cpuUsage(before);
  const serverCpu = ((readServer?.().cpuMicroseconds ?? 0) - server) / count;
  return { cpu: (user + system) / count + serverCpu, serverCpu, elapsed };
}

/** Calls `act` with 0, 1, 2, …, 64 at once. */
async function runAll(count: number, act: (index: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < count) await act(next++);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, work));
}

/** As little as a client can do: a POST with a JSON body, on kept connections. */
function toNodeClient(port: number): (path: string, body: Buffer) => Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: CONCURRENCY });
  return (path, body) =>
    new Promise((resolve, reject) => {
      const headers = { 'content-type': 'application/json', 'content-length': body.length };
      const sent = request({ agent, host: '127.0.0.1', port, path, method: 'POST', headers }, (response) => {
        response.resume().once('end', resolve);
      });
      sent.once('error', reject).end(body);
    });
}

function toUndiciClient(port: number): (path: string, body: Buffer) => Promise<void> {
  const pool = new Pool(`http://127.0.0.1:${port}`, { connections: CONCURRENCY });
  return async (path, body) => {
    const { body: response } = await pool.request({
      path,
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    });
    await response.dump();
  };
}

function toSenderClient(sender: Sender): (endpoint: Endpoint, body: Buffer, event: string) => Promise<void> {
  const { signal } = new AbortController();
  const now = Date.now();
  const fixed = { type: 'invoice.paid', createdAt: now, attempt: 0, tries: 0, isReplay: false, due: now, metadata: '{}' };
  return async (endpoint, body, event) => {
    const delivery: Delivery = { ...fixed, version: 0, event, endpoint: endpoint.id, body };
    const { outcome, detail } = await sender.send(delivery, endpoint, signal);
    if (outcome !== 'delivered') throw new Error(`${outcome}: ${detail}`);
  };
}

async function measureClient(
  { method, port, warmUp, count }: DeliveryTask,
  endpoints: readonly Endpoint[],
): Promise<DeliveryFigures> {
  const bare = method === 'node:http' ? toNodeClient(port) : toUndiciClient(port);
  const signed = toSenderClient(createLocalSender());
  const paths = endpoints.map(({ url }) => new URL(url).pathname);
  const act = (index: number): Promise<void> => {
    const { id, body } = toEvent([]);
    const endpoint = endpoints[index % endpoints.length] as Endpoint;
    return method === 'sender' ? signed(endpoint, body, id) : bare(paths[index % paths.length] as string, body);
  };
  await runAll(warmUp, act);
  return measure(count, () => runAll(count, act));
}

async function measureProvider(engine: EngineName, task: DeliveryTask, endpoints: readonly Endpoint[]): Promise<DeliveryFigures> {
  const { queue, readServer, remove } = await openEngine(engine);
  const sender = createLocalSender();
  let delivered = 0;
  const hooks = { ...IGNORE, onAttempt: () => void delivered++ };
  const runner = createLaneRunner({
    clock: systemClock,
    queue,
    registry: toRegistry(endpoints),
    sender,
    hooks,
    settings: LANE_SETTINGS,
  });
  const accept = (index: number) => queue.append([toEvent([{ endpoint: endpoints[index % endpoints.length]?.id ?? '' }])]);
  const deliver = async (count: number): Promise<void> => {
    delivered = 0;
    const serving = queue.serve(toLaneCount(LANE_SETTINGS), runner.run);
    while (delivered < count) await pause(5);
    while ((await queue.stats(Date.now())).waiting > 0) await pause(5);
    await serving.stop();
  };
  await runAll(task.warmUp, accept);
  await deliver(task.warmUp);
  const accepted = await measure(task.count, () => runAll(task.count, accept), readServer);
  const figures = await measure(task.count, () => deliver(task.count), readServer);
  await remove();
  return { ...figures, accept: accepted };
}

async function play(task: DeliveryTask): Promise<void> {
  const endpoints = Array.from({ length: task.endpoints }, (_, index) =>
    toLocalEndpoint(`ep-${index}`, task.port, `/healthy/${index}`),
  );
  const { method } = task;
  const engine = ENGINES.find((each) => each === method);
  process.send?.(await (engine === undefined ? measureClient(task, endpoints) : measureProvider(engine, task, endpoints)));
}

process.on('disconnect', () => process.exit());
process.on('message', (task: DeliveryTask) => {
  play(task).catch((error: unknown) => {
    console.error(error);
    process.exit(1);
  });
});
