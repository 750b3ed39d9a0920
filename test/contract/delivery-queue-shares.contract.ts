import { describe, expect, test } from 'vitest';
import type { DeliveryQueue, RepairProgress } from '../../src/provider/queue/delivery-queue.ts';
import { appendMany, newEvent } from '../support/queue/events.ts';
import { drain } from '../support/queue/lanes.ts';
import type { QueueFixture } from './delivery-queue.contract.ts';

/** The limits of what may wait. */
export function describeShares({ open, close, store }: QueueFixture): void {
  const now = (): number => store().clock.now();
  const full = (...texts: readonly string[]) => ({
    code: 'queue_full',
    kind: 'system',
    message: expect.stringMatching(new RegExp(texts.join('.*'))),
  });
  const finish = async (repair: AsyncIterable<RepairProgress>): Promise<RepairProgress | undefined> => {
    let last: RepairProgress | undefined;
    for await (const progress of repair) last = progress;
    return last;
  };
  const count = async (queue: DeliveryQueue) => {
    const { events, storedEvents, waiting } = await queue.stats(now());
    return [events, storedEvents, waiting];
  };

  describe('the shares of the queue', () => {
    test('reject events of an endpoint that uses up its part, and name it; events of others are accepted', async () => {
      const queue = await open({ maxEvents: 20, endpointShare: 0.25 });
      await appendMany(queue, 5, 'dead');
      await expect(queue.append([newEvent(['dead'])])).rejects.toMatchObject(
        full('the endpoint dead has 5 ', 'endpointShare', 'disable'),
      );
      // All events of a call, or none.
      await expect(queue.append([newEvent(['b']), newEvent(['b', 'dead'])])).rejects.toMatchObject(full('endpoint dead'));
      await appendMany(queue, 5, 'b');
      await appendMany(queue, 3, { endpoint: 'dead', isSkipped: true });
      expect(await count(queue)).toEqual([10, 13, 10]);
    });

    test('are measured by the endpoint and the tenant with most of them, by number or by size', async () => {
      const queue = await open({ maxEvents: 40, maxBytes: 100_000, endpointShare: 0.25, tenantShare: 0.5 });
      const used = async () => (await queue.stats(now())).usedShares;
      expect(await used()).toEqual({ endpoint: 0, tenant: 0 });
      await queue.append([newEvent(['a']), newEvent(['a', 'b'], { tenant: 't' }), newEvent(['a'], { tenant: 'u' })]);
      expect(await used()).toEqual({ endpoint: 0.3, tenant: 0.05 });
      await queue.append([newEvent(['b'], { tenant: 't', body: Buffer.alloc(20_000) })]);
      const { endpoint, tenant } = await used();
      expect([endpoint * 25_000, tenant * 50_000].map((bytes) => Math.floor(bytes / 1_000))).toEqual([21, 21]);
      await drain(queue, now);
      expect(await used()).toEqual({ endpoint: 0, tenant: 0 });
    });

    test('count the size of the events of an endpoint, too', async () => {
      const queue = await open({ maxBytes: 100_000, endpointShare: 0.25 });
      await queue.append([newEvent(['a'], { body: Buffer.alloc(20_000) })]);
      await expect(queue.append([newEvent(['a'], { body: Buffer.alloc(5_000) })])).rejects.toMatchObject(full('endpoint a'));
      await queue.append([newEvent(['b'], { body: Buffer.alloc(20_000) })]);
    });

    test('name the route of an inbox', async () => {
      const queue = await open({ maxEvents: 4, endpointShare: 0.25 });
      await appendMany(queue, 1, 'inbox:billing');
      await expect(queue.append([newEvent(['inbox:billing'])])).rejects.toMatchObject(
        full('the app of the route billing has 1 '),
      );
    });

    test('reject events of a tenant that uses up its part, and name it', async () => {
      const queue = await open({ maxEvents: 8, tenantShare: 0.5 });
      for (const endpoint of ['a', 'b', 'c', 'd']) await queue.append([newEvent([endpoint], { tenant: 'acme' })]);
      await expect(queue.append([newEvent(['e'], { tenant: 'acme' })])).rejects.toMatchObject(full('tenant acme', 'tenantShare'));
      await queue.append([newEvent(['a'], { tenant: 'other' }), newEvent(['a'])]);
      expect(await count(queue)).toEqual([6, 6, 6]);
    });

    test('are free again once events are delivered, canceled, purged or erased', async () => {
      const queue = await open({ maxEvents: 4, endpointShare: 0.5, tenantShare: 0.5 });
      const fill = async (): Promise<void> => {
        const events = [newEvent(['a'], { tenant: 't' }), newEvent(['a'], { tenant: 't' })];
        await queue.append(events);
        await expect(queue.append([newEvent(['a'])])).rejects.toMatchObject({ code: 'queue_full' });
        await expect(queue.append([newEvent(['b'], { tenant: 't' })])).rejects.toMatchObject({ code: 'queue_full' });
      };
      await fill();
      expect(await drain(queue, now)).toHaveLength(2);
      await fill();
      await finish(queue.repair('cancel', { endpoint: 'a' }, now()));
      await fill();
      await finish(queue.repair('purge', { endpoint: 'a', states: ['waiting'] }, now()));
      await fill();
      await queue.erase({ tenant: 't' }, now());
      await fill();
      expect(await count(queue)).toEqual([2, 10, 2]);
    });

    test('are free in a few steps when an endpoint is disabled, however many deliveries it had before', async () => {
      const queue = await open();
      await appendMany(queue, 3_000, 'a');
      expect(await drain(queue, now)).toHaveLength(3_000);
      await appendMany(queue, 600, 'a');
      await appendMany(queue, 600, { endpoint: 'a', orderKey: 'k' });
      await appendMany(queue, 1, 'b');
      const steps: RepairProgress[] = [];
      for await (const progress of queue.repair('cancel', { endpoint: 'a', states: ['waiting'] }, now())) steps.push(progress);
      expect(steps.at(-1)).toEqual({ changed: 1_200, total: 1_200 });
      expect(steps.length).toBeLessThan(5);
      expect(await queue.stats(now())).toMatchObject({ events: 1, waiting: 1, skipped: 1_200 });
    });

    test('stay right while two replicas make deliveries of the same events due again at once', async ({ skip }) => {
      skip(!store().isShared, 'one process only');
      const [one, two] = [await open(), await open()];
      for (let i = 0; i < 2; i++) await one.append(Array.from({ length: 500 }, () => newEvent(['a', 'b'], { tenant: 't' })));
      await finish(one.repair('cancel', {}, now()));
      await Promise.all([
        finish(one.repair('retry', { endpoint: 'a' }, now())),
        finish(two.repair('retry', { endpoint: 'b' }, now())),
      ]);
      expect(await count(one)).toEqual([1_000, 1_000, 2_000]);
      // One replica ends deliveries of the events that the other makes due again.
      await finish(one.repair('cancel', { endpoint: 'b' }, now()));
      await Promise.all([
        finish(one.repair('cancel', { endpoint: 'a' }, now())),
        finish(two.repair('retry', { endpoint: 'b' }, now())),
      ]);
      expect(await count(one)).toEqual([1_000, 1_000, 1_000]);
      await finish(one.repair('purge', {}, now()));
      expect(await count(one)).toEqual([0, 1_000, 0]);
    });

    test('do not count delivered events: any number is accepted, and the oldest leave when the store is too large', async () => {
      const queue = await open({ maxEvents: 10, maxBytes: 60_000 });
      const ids: string[] = [];
      const createdAt = 1_700_000_000_000;
      for (let round = 0; round < 10; round++) {
        const events = Array.from({ length: 4 }, (_, i) =>
          newEvent(['a'], { body: Buffer.alloc(2_000), createdAt: createdAt + 10 * round + i }),
        );
        await queue.append(events);
        ids.push(...events.map(({ id }) => id));
        await drain(queue, now);
      }
      expect(await count(queue)).toEqual([0, 40, 0]);
      const { storedBytes, prunedUntil } = await queue.stats(now());
      expect(storedBytes).toBeGreaterThan(60_000);
      expect(prunedUntil).toBe(0);
      const removed = await queue.prune(0, 0, 100);
      expect(await queue.stats(now())).toMatchObject({ storedEvents: 40 - removed, events: 0 });
      expect((await queue.stats(now())).storedBytes).toBeLessThanOrEqual(60_000);
      expect((await queue.stats(now())).storedBytes).toBeGreaterThan(55_000);
      expect(await queue.getEvent(ids[removed - 1] ?? '')).toBeUndefined();
      expect(await queue.getEvent(ids[removed] ?? '')).toBeDefined();
      const last = removed - 1;
      expect(await queue.stats(now())).toMatchObject({ prunedUntil: createdAt + 10 * Math.floor(last / 4) + (last % 4) });
    });

    test('tell until which time of creation events have left, also after a restart with more room', async () => {
      const queue = await open({ maxBytes: 10_000 });
      const create = (at: number) => newEvent(['a'], { body: Buffer.alloc(4_000), createdAt: at });
      await queue.append([create(1_000), create(3_000)]);
      await drain(queue, now);
      expect(await queue.prune(0, 0, 100)).toBe(0);
      await queue.append([create(2_000)]);
      await drain(queue, now);
      expect(await queue.prune(0, 0, 100)).toBe(1);
      expect(await queue.stats(now())).toMatchObject({ prunedUntil: 1_000 });
      expect(await queue.prune(3_001, 0, 100)).toBe(2);
      // Of a clock that was behind.
      await queue.append([create(500)]);
      await drain(queue, now);
      expect(await queue.prune(3_001, 0, 100)).toBe(1);
      await close(queue);
      expect(await (await open({ maxBytes: 1_000_000 })).stats(now())).toMatchObject({ storedEvents: 0, prunedUntil: 3_000 });
    });

    test('bound retries: those of an endpoint beyond its share are left out, and the others of the repair are not', async () => {
      const queue = await open({ maxEvents: 20, endpointShare: 0.25 });
      for (const endpoint of ['a', 'b', 'b', 'a'])
        for (let i = 0; i < 2; i++) {
          await queue.append([newEvent([endpoint, 'c'])]);
          await finish(queue.repair('cancel', {}, now()));
        }
      const steps: RepairProgress[] = [];
      const retry = async (): Promise<void> => {
        for await (const step of queue.repair('retry', { states: ['skipped'] }, now())) steps.push(step);
      };
      await expect(retry()).rejects.toMatchObject({
        code: 'queue_full',
        message: expect.stringMatching(/^3 deliveries were not made due: the endpoint c has 5 undelivered events, its share/),
      });
      expect(steps.at(-1)).toEqual({ changed: 13, total: 16 });
      expect((await queue.backlogs(['a', 'b', 'c'], now())).map(({ waiting }) => waiting)).toEqual([4, 4, 5]);
      expect(await queue.stats(now())).toMatchObject({ waiting: 13, skipped: 3, events: 8 });
      await drain(queue, now);
      steps.length = 0;
      await retry();
      expect(steps.at(-1)).toEqual({ changed: 3, total: 3 });
    });

    test('bound retries of a tenant and of all, by events and not by their deliveries', async () => {
      const queue = await open({ maxEvents: 6, tenantShare: 0.5 });
      for (const tenant of ['t', 't', 't', 't', undefined, undefined, undefined, undefined]) {
        await queue.append([newEvent(['a', 'b'], { tenant })]);
        await finish(queue.repair('cancel', {}, now()));
      }
      await expect(finish(queue.repair('retry', { tenant: 't' }, now()))).rejects.toThrow(
        '2 deliveries were not made due: the undelivered events of the tenant t',
      );
      expect(await queue.stats(now())).toMatchObject({ waiting: 6, events: 3 });
      await expect(finish(queue.repair('retry', { states: ['skipped'] }, now()))).rejects.toThrow(
        '4 deliveries were not made due',
      );
      expect(await queue.stats(now())).toMatchObject({ waiting: 12, events: 6 });
      // What waits already is made due without more room.
      expect(await finish(queue.repair('retry', { states: ['waiting'] }, now()))).toEqual({ changed: 12, total: 12 });
    });

    test('bound deliveries that are created for stored events', async () => {
      const queue = await open({ maxEvents: 20, endpointShare: 0.2 });
      const events = Array.from({ length: 6 }, () => newEvent([]));
      await queue.append(events);
      const results = await Promise.allSettled(events.map(({ id }) => queue.addDelivery(id, 'a', now())));
      expect(results.map(({ status }) => status === 'fulfilled')).toEqual([true, true, true, true, false, false]);
      await expect(queue.addDelivery(events[5]?.id ?? '', 'a', now())).rejects.toMatchObject({
        code: 'queue_full',
        message: expect.stringContaining('the endpoint a has 4 undelivered events'),
      });
      expect(await queue.addDelivery(events[0]?.id ?? '', 'a', now())).toBe(false);
      expect(await queue.addDelivery(events[5]?.id ?? '', 'b', now())).toBe(true);
      expect(await queue.stats(now())).toMatchObject({ waiting: 5, events: 5 });
    });

    test('remove events of a tenant beyond its share first when the store is too large, whatever became of them', async () => {
      const queue = await open({ maxBytes: 60_000, tenantShare: 0.5 });
      const create = (tenant: string | undefined, endpoint: string, createdAt: number) =>
        newEvent([endpoint], { tenant, body: Buffer.alloc(4_000), createdAt });
      const quiet = [create('quiet', 'a', 1_000), create('quiet', 'a', 1_001), create(undefined, 'a', 1_002)];
      await queue.append(quiet);
      await drain(queue, now);
      const noisy = Array.from({ length: 15 }, (_, i) => create('noisy', 'dead', 2_000 + i));
      for (const event of noisy) {
        await queue.append([event]);
        await finish(queue.repair('cancel', { endpoint: 'dead' }, now()));
      }
      const isStored = async ({ id }: { readonly id: string }) => (await queue.getEvent(id)) !== undefined;
      await queue.prune(0, 0, 100);
      expect((await queue.stats(now())).storedBytes).toBeLessThanOrEqual(60_000);
      expect(await Promise.all(quiet.map(isStored))).toEqual([true, true, true]);
      const isNoisyStored = await Promise.all(noisy.map(isStored));
      expect(isNoisyStored).toEqual(isNoisyStored.toSorted((a, b) => Number(a) - Number(b)));
      expect(isNoisyStored).toContain(true);
    });

    test('keep events that wait or failed longer than delivered ones when the store is too large', async () => {
      const queue = await open({ maxBytes: 30_000 });
      const create = (endpoint: string, createdAt: number) => newEvent([endpoint], { body: Buffer.alloc(4_000), createdAt });
      const failed = create('f', 1_000);
      await queue.append([failed]);
      await finish(queue.repair('cancel', { endpoint: 'f' }, now()));
      const delivered = [create('a', 2_000), create('a', 3_000), create('a', 4_000)];
      await queue.append(delivered);
      await drain(queue, now);
      const waiting = [create('w', 500), create('w', 600), create('w', 700), create('w', 800)];
      await queue.append(waiting);
      await queue.prune(0, 0, 100);
      const isStored = async ({ id }: { readonly id: string }) => (await queue.getEvent(id)) !== undefined;
      expect(await Promise.all(waiting.map(isStored))).toEqual([true, true, true, true]);
      expect(await isStored(failed)).toBe(true);
      expect(await Promise.all(delivered.map(isStored))).toEqual([false, false, true]);
    });
  });
}
