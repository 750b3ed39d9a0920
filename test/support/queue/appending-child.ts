/**
 * A process that appends events and delivers them until it is killed, for crash tests. Arguments: a module that exports `openQueue`, and its argument.
 * Writes `stored <id>` after each append, and `delivered <id> <endpoint>` after each settlement, to standard output.
 */

import { argv } from 'node:process';
import { pathToFileURL } from 'node:url';
import type { DeliveryQueue } from '../../../src/provider/queue/delivery-queue.ts';
import { newEvent, PROVEN, settled } from './events.ts';
import { writeAll } from './write-all.ts';

const [, , module = '', argument = '', prefix = 'c'] = argv;
const { openQueue } = (await import(pathToFileURL(module).href)) as { openQueue: (argument: string) => Promise<DeliveryQueue> };
const queue = await openQueue(argument);

queue.serve(8, async (lane) => {
  const deliveries = await lane.take(4, Date.now());
  // Each fourth delivery fails at first, so that there are settlements of both kinds.
  const outcomes = deliveries.map((delivery) => {
    const isRetried = delivery.attempt === 0 && delivery.event.endsWith('3');
    return settled(delivery, isRetried ? { kind: 'retry', due: Date.now() } : { kind: 'delivered' }, Date.now());
  });
  await lane.settle(outcomes, PROVEN);
  const delivered = outcomes.filter(({ settlement }) => settlement.kind === 'delivered');
  // Synchronous: what the parent reads was acknowledged, and what was acknowledged long ago was written.
  writeAll(delivered.map(({ event }) => `delivered ${event} ${lane.endpoint}\n`).join(''));
  return {};
});

let next = 0;
async function appendForEver(): Promise<void> {
  for (;;) {
    const id = `${prefix}-${++next}`;
    await queue.append([newEvent([`e${next % 5}`, `e${5 + (next % 3)}`], { id, createdAt: Date.now() })]);
    writeAll(`stored ${id}\n`);
  }
}
await Promise.all(Array.from({ length: 4 }, appendForEver));
