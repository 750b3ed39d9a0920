/** The loads under which memory is measured. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { deriveMaxIds } from '../../src/config/schema/store-schema.ts';
import { OTHER_CORE, run } from '../children.ts';
import type { Deliveries } from '../sign.ts';
import { replay } from '../wrk.ts';
import type { FloodName } from './flood.ts';
import type { LoadFacts } from './results.ts';

/** The input of a load. */
export interface LoadContext {
  readonly port: number;
  readonly limit: number;
  readonly seconds: number;
  /** Signed deliveries of 1 KiB, and of 1 MiB. */
  readonly small: Deliveries;
  readonly large: Deliveries;
}

/** The responses. */
export interface LoadOutcome {
  readonly seconds: number;
  readonly statuses: Readonly<Record<string, number>>;
  readonly failed: number;
  readonly p99?: number | undefined;
}

/** A load. */
export interface Load extends LoadFacts {
  readonly store: 'redis' | 'memory';
  readonly isTls?: boolean;
  send(context: LoadContext): Promise<LoadOutcome>;
}

const IDLE_MS = 10_000;
/** Minimum number of deliveries per second that one core verifies. */
const FILL_PER_SECOND = 3_000;
const FLOOD_EXTRA_MS = 20_000;
const FLOOD = join(import.meta.dirname, 'flood.ts');

const wrk =
  (size: 'small' | 'large', connections: number, isTls = false) =>
  ({ port, seconds, ...context }: LoadContext): Promise<LoadOutcome> =>
    replay({ port, seconds, connections, isTls, deliveries: context[size], order: 'again' });

const flood =
  (name: FloodName) =>
  async ({ port, seconds }: LoadContext): Promise<LoadOutcome> => {
    const args = [FLOOD, name, String(port), String(seconds * 1_000)];
    const text = await run({ core: OTHER_CORE, command: process.execPath, args }, seconds * 1_000 + FLOOD_EXTRA_MS);
    const { 0: failed = 0, ...statuses } = JSON.parse(text) as Record<string, number>;
    return { seconds, failed, statuses };
  };

/** Fills the store in memory. On a slow machine fewer IDs fit into the time; the rest would be duplicates on a fast one. */
function fillStore(context: LoadContext): Promise<LoadOutcome> {
  // Half of the limit: a little less than the whole heap, so that the last ID is still accepted.
  const count = deriveMaxIds((context.limit / 2) * 1024 * 1024);
  const file = `${context.small.file}.${context.limit}`;
  const lines = readFileSync(context.small.file, 'latin1').split('\n', count);
  writeFileSync(file, `${lines.join('\n')}\n`);
  const fill = wrk('small', 64);
  return fill({ ...context, small: { ...context.small, file, count }, seconds: Math.ceil(count / FILL_PER_SECOND) });
}

async function stayIdle(): Promise<LoadOutcome> {
  await new Promise((done) => setTimeout(done, IDLE_MS));
  return { seconds: IDLE_MS / 1_000, statuses: {}, failed: 0 };
}

/** In the order of the page. */
export const LOADS: readonly Load[] = [
  { name: 'idle', title: 'idle, 10 s after the start', kind: 'idle', store: 'redis', send: stayIdle },
  { name: 'small', title: 'signed 1 KiB, 64 connections', kind: 'usual', store: 'redis', send: wrk('small', 64) },
  {
    name: 'small-memory',
    title: 'signed 1 KiB, 64 connections, IDs in memory',
    kind: 'usual',
    store: 'memory',
    send: wrk('small', 64),
  },
  {
    name: 'full-store',
    title: 'signed 1 KiB until the IDs fill their part of the heap',
    kind: 'normal',
    store: 'memory',
    send: fillStore,
  },
  {
    name: 'small-tls',
    title: 'signed 1 KiB over TLS, 128 connections',
    kind: 'normal',
    store: 'redis',
    isTls: true,
    send: wrk('small', 128, true),
  },
  {
    name: 'many-tls',
    title: 'signed 1 KiB over TLS, 512 connections',
    kind: 'excessive',
    store: 'redis',
    isTls: true,
    send: wrk('small', 512, true),
  },
  { name: 'large', title: 'signed 1 MiB, 16 connections', kind: 'normal', store: 'redis', send: wrk('large', 16) },
  { name: 'large-many', title: 'signed 1 MiB, 256 connections', kind: 'excessive', store: 'redis', send: wrk('large', 256) },
  { name: 'forged', title: 'forged 1 MiB, 512 connections', kind: 'excessive', store: 'redis', send: flood('http1') },
  {
    name: 'forged-http2',
    title: 'forged 1 MiB over HTTP/2 and TLS, 16 connections with 10 streams each',
    kind: 'excessive',
    store: 'redis',
    isTls: true,
    send: flood('http2'),
  },
];
