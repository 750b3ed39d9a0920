/**
 * Settles deliveries while the disk under a queue is full, frees it, and writes what happened to standard output, as JSON. Runs in a separate
 * mount namespace; the argument is an empty folder on a small file system.
 */
import { appendFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { argv } from 'node:process';
import { setTimeout } from 'node:timers/promises';
import { until } from '../gate.ts';
import { appendMany, PROVEN, settled } from './events.ts';
import { drain, holdLanes } from './lanes.ts';
import { NO_HOOKS, openSqliteQueue } from './sqlite-store.ts';
import { writeAll } from './write-all.ts';

const [, , folder = ''] = argv;
const path = join(folder, 'queue.db');
const filler = join(folder, 'filler');
/** More often than a settlement is repeated: the engine frees the space of its log when the disk is full. */
const FILL_MS = 5;
const FILLS = 60;
const SENT = 5;

/** Takes all space that is left. */
function fill(): void {
  try {
    for (;;) appendFileSync(filler, Buffer.alloc(4_096));
  } catch {
    // The disk is full.
  }
}

// The clock's timers do not keep a process alive.
const alive = setInterval(() => undefined, 1_000);
let isUnavailable = false;
const onUnavailable = (): void => {
  isUnavailable = true;
};
const queue = await openSqliteQueue(path, { hooks: { ...NO_HOOKS, onUnavailable } });
const accepted = await appendMany(queue, 20, 'a');
const lanes = holdLanes(queue);
const { lane, end } = await lanes.next('a');
const sent = await lane.take(SENT, Date.now());
fill();
let isSettled = false;
const settling = lane
  .settle(
    sent.map((delivery) => settled(delivery, { kind: 'delivered' }, Date.now())),
    PROVEN,
  )
  .then(() => {
    isSettled = true;
  });
for (let i = 0; i < FILLS; i++) {
  await setTimeout(FILL_MS);
  fill();
}
await until(() => isUnavailable);
const isSettledWhileFull = isSettled;
rmSync(filler);
await settling;
end();
await lanes.stop();
const { waiting } = await queue.stats(Date.now());
await queue.close();
const reopened = await openSqliteQueue(path);
const received = await drain(reopened, Date.now);
await reopened.close();
clearInterval(alive);
writeAll(
  JSON.stringify({
    isSettledWhileFull,
    waiting,
    sent: sent.map(({ event }) => event),
    rest: accepted.slice(SENT),
    received: received.map(({ event }) => event),
  }),
);
