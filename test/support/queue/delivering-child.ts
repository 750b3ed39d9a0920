/**
 * A process that serves lanes until it is killed. Arguments: a module that exports `openQueue`, its argument, and how long an attempt takes in ms.
 * Writes `<event> <endpoint> <attempt>` when an attempt starts, and `settled …` when it is settled.
 */

import { argv } from 'node:process';
import { pathToFileURL } from 'node:url';
import type { DeliveryQueue } from '../../../src/provider/queue/delivery-queue.ts';
import { PROVEN, settled } from './events.ts';
import { writeAll } from './write-all.ts';

const [, , module = '', argument = '', duration = '0'] = argv;
const { openQueue } = (await import(pathToFileURL(module).href)) as { openQueue: (argument: string) => Promise<DeliveryQueue> };
const queue = await openQueue(argument);

queue.serve(16, async (lane) => {
  for (;;) {
    const deliveries = await lane.take(4, Date.now());
    if (deliveries.length === 0 || lane.signal.aborted) return {};
    const names = deliveries.map(({ event, attempt }) => `${event} ${lane.endpoint} ${attempt}`);
    writeAll(names.map((name) => `${name}\n`).join(''));
    await new Promise((resolve) => setTimeout(resolve, Number(duration)));
    await lane.settle(
      deliveries.map((delivery) => settled(delivery, { kind: 'delivered' }, Date.now())),
      PROVEN,
    );
    writeAll(names.map((name) => `settled ${name}\n`).join(''));
  }
});
writeAll('serving\n');
