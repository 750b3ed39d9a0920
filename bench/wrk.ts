/** Closed-loop load with wrk: as many requests as the gate handles, to measure the cost of one. */
import { join } from 'node:path';
import { OTHER_CORE, run } from './children.ts';
import type { PacedResult } from './open-loop.ts';
import type { Deliveries } from './sign.ts';

/** The responses, of either sender. */
export interface LoadResult {
  /** Number of responses. */
  readonly requests: number;
  readonly seconds: number;
  /** Responses by status. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Requests without a response. */
  readonly failed: number;
  /** Only with wrk, in milliseconds: for the requests that were sent, because each connection waits for its response. */
  readonly p99?: number;
  /** Only with the open-loop sender. */
  readonly paced?: PacedResult;
}

/** Options for sending deliveries. */
export interface ReplayOptions extends Omit<WrkTarget, 'url'> {
  readonly port: number;
  readonly isTls?: boolean;
  readonly deliveries: Deliveries;
  /** `once`: each delivery is sent once, and running out of them is an error; `again`: they are sent repeatedly. */
  readonly order: 'once' | 'again';
}

interface Report {
  readonly requests: number;
  readonly microseconds: number;
  readonly failed: number;
  readonly ranOut: number;
  /** Microseconds. */
  readonly p99: number;
  readonly statuses: Readonly<Record<string, number>>;
}

const PATH = '/hooks/billing';
const REPLAY = join(import.meta.dirname, 'replay.lua');
const EXTRA_MS = 20_000;

/** Sends deliveries for `seconds` on keep-alive connections. */
export async function replay({ port, isTls = false, ...options }: ReplayOptions): Promise<LoadResult> {
  const [command, ...args] = toReplayCommand({ ...options, url: `${isTls ? 'https' : 'http'}://127.0.0.1:${port}` });
  return parseReport(await run({ core: OTHER_CORE, command, args }, options.seconds * 1000 + EXTRA_MS));
}

/** Where to, for how long and on how many connections. */
export interface WrkTarget {
  readonly url: string;
  readonly seconds: number;
  readonly connections: number;
}

/** The command line that sends deliveries, also in another network; `parseReport` reads its output. */
export function toReplayCommand({
  url,
  seconds,
  connections,
  deliveries,
  order,
}: WrkTarget & Pick<ReplayOptions, 'deliveries' | 'order'>): readonly [string, ...string[]] {
  const options = ['-t', '1', '-c', String(connections), '-d', `${seconds}s`, '--timeout', '10s', '-s', REPLAY];
  return ['wrk', ...options, `${url}${PATH}`, '--', deliveries.file, deliveries.bodyFile, order];
}

/** Reads the output of wrk. Throws if deliveries ran out. */
export function parseReport(text: string): LoadResult {
  const found = /^RESULT (.*)$/m.exec(text)?.[1];
  if (found === undefined) throw new Error(`wrk gave no result:\n${text}`);
  const report = JSON.parse(found) as Report;
  if (report.ranOut > 0) throw new Error(`${report.ranOut} requests more were wanted than there are`);
  const { requests, microseconds, statuses, failed, p99 } = report;
  return { requests, seconds: microseconds / 1e6, statuses, failed, p99: p99 / 1e3 };
}
