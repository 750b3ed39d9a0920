/**
 * Fills the disk under a queue, frees it, and writes what happened to standard output, as JSON. Runs in a mount namespace of its own;
 * the argument is an empty folder on a small file system.
 */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { argv } from 'node:process';
import type { SidegateError } from '../../../src/core/errors.ts';
import { appendMany, newEvent, PROVEN, settled } from './events.ts';
import { drain, holdLanes } from './lanes.ts';
import { NO_HOOKS, openSqliteQueue } from './sqlite-store.ts';
import { writeAll } from './write-all.ts';

const [, , folder = ''] = argv;
const path = join(folder, 'queue.db');
const filler = join(folder, 'filler');
const reports: string[] = [];
const hooks = { ...NO_HOOKS, onUnavailable: () => reports.push('unavailable'), onAvailable: () => reports.push('available') };
const open = () => openSqliteQueue(path, { hooks });

writeFileSync(filler, Buffer.alloc(4 << 20));
const queue = await open();
const acknowledged: string[] = await appendMany(queue, 50, 'a');
const rejected = new Map<string, string>();
while (rejected.size < 20) {
  const events = Array.from({ length: 16 }, () => newEvent(['a', 'b'], { body: Buffer.alloc(8_192, 'x') }));
  const results = await Promise.allSettled(events.map((event) => queue.append([event])));
  for (const [i, { id }] of events.entries()) {
    const result = results[i];
    if (result?.status === 'rejected') rejected.set(id, (result.reason as SidegateError).code);
    else acknowledged.push(id);
  }
}
const full = await queue.stats(Date.now());
// Reading works, and deliveries go on: at worst they are sent again.
const lanes = holdLanes(queue);
const { lane } = await lanes.next('a');
const taken = await lane.take(5, Date.now());
const settling = Promise.allSettled(
  taken.map((delivery) => lane.settle([settled(delivery, { kind: 'delivered' }, Date.now())], PROVEN)),
);
rmSync(filler);
// They are repeated until there is space; the timers of that keep no process alive.
const alive = setInterval(() => undefined, 1_000);
const settlements = await settling;
clearInterval(alive);
await lanes.stop();
const again = newEvent(['a']);
await queue.append([again]);
acknowledged.push(again.id);
const before = await queue.stats(Date.now());
await queue.close();

const reopened = await open();
const after = await reopened.stats(Date.now());
const lost: string[] = [];
for (const id of acknowledged) if ((await reopened.getEvent(id)) === undefined) lost.push(id);
const stored: string[] = [];
for (const id of rejected.keys()) if ((await reopened.getEvent(id)) !== undefined) stored.push(id);
const received = await drain(reopened, Date.now);
await reopened.close();
const result = {
  codes: [...new Set(rejected.values())],
  reports,
  acknowledged: acknowledged.length,
  full,
  taken: taken.length,
  settled: settlements.filter(({ status }) => status === 'fulfilled').length,
  before,
  after,
  lost,
  stored,
  received: received.length,
};
writeAll(JSON.stringify(result));
