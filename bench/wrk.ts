/** Closed-loop load by wrk: as many requests as the gate takes, to see what one costs. */
import { join } from 'node:path';
import { OTHER_CORE, run } from './children.ts';
import type { PacedResult } from './open-loop.ts';
import type { Deliveries } from './sign.ts';

/** What came back, of either sender. */
export interface LoadResult {
  /** Answers received. */
  readonly requests: number;
  readonly seconds: number;
  /** Answers by status. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Requests that got no answer at all. */
  readonly failed: number;
  /** Only of the open-loop sender. */
  readonly paced?: PacedResult;
}

/** How wrk is to send. */
export interface WrkOptions {
  readonly port: number;
  readonly deliveries: Deliveries;
  readonly seconds: number;
  readonly connections: number;
  /** `once`: running out of deliveries is an error; `again`: they are sent round and round. */
  readonly order: 'once' | 'again';
}

interface Report {
  readonly requests: number;
  readonly microseconds: number;
  readonly failed: number;
  readonly ranOut: number;
  readonly statuses: Readonly<Record<string, number>>;
}

const SCRIPT = join(import.meta.dirname, 'replay.lua');
const EXTRA_MS = 20_000;

/** Sends for `seconds` on kept-alive connections. */
export async function runWrk({ port, deliveries, seconds, connections, order }: WrkOptions): Promise<LoadResult> {
  const args = ['-t', '1', '-c', String(connections), '-d', `${seconds}s`, '--timeout', '10s', '-s', SCRIPT];
  const url = `http://127.0.0.1:${port}/hooks/billing`;
  const list = ['--', deliveries.file, deliveries.bodyFile, order];
  const text = await run({ core: OTHER_CORE, command: 'wrk', args: [...args, url, ...list] }, seconds * 1000 + EXTRA_MS);
  const found = /^RESULT (.*)$/m.exec(text)?.[1];
  if (found === undefined) throw new Error(`wrk gave no result:\n${text}`);
  const report = JSON.parse(found) as Report;
  if (report.ranOut > 0) throw new Error(`the list of ${deliveries.count} deliveries was too short`);
  return { requests: report.requests, seconds: report.microseconds / 1e6, statuses: report.statuses, failed: report.failed };
}
