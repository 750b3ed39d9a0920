import { describe, expect, test } from 'vitest';
import { appendMany, newEvent, newId } from '../support/queue/events.ts';
import { drain } from '../support/queue/lanes.ts';
import type { QueueFixture } from './delivery-queue.contract.ts';

/** What every queue keeps to when it accepts events. */
export function describeAppending({ open, close, store }: QueueFixture): void {
  const now = (): number => store().clock.now();

  describe('appending', () => {
    test('stores an event with all its properties, and delivers them unchanged', async () => {
      const queue = await open();
      const body = Buffer.from([0, 255, 10, 13, 34, 92, 0xc3, 0x28]);
      const metadata = JSON.stringify({ traceparent: '00-1-2-01', text: 'ü€😀 "\\\n' });
      const event = newEvent(['acme', 'other'], {
        type: 'a.b-c_d',
        tenant: 'tenant:1',
        createdAt: 1_799_999_999_999,
        body,
        metadata,
      });
      expect(await queue.append([event])).toEqual(['stored']);
      const { targets, ...stored } = event;
      expect(await queue.getEvent(event.id)).toEqual({ ...stored, isErased: false });
      const received = await drain(queue, now);
      expect(received.map(({ endpoint }) => endpoint).sort()).toEqual(['acme', 'other']);
      for (const delivery of received) {
        const { id, ...same } = stored;
        expect(delivery).toMatchObject({ ...same, event: id, attempt: 0, tries: 0, isReplay: false });
        expect(Buffer.isBuffer(delivery.body)).toBe(true);
        expect(delivery.body.equals(body)).toBe(true);
      }
    });

    test('stores 100 events for 100 endpoints each in one call', async () => {
      const queue = await open();
      const endpoints = Array.from({ length: 100 }, (_, i) => `endpoint-${i}`);
      const events = Array.from({ length: 100 }, () => newEvent(endpoints));
      expect(new Set(await queue.append(events))).toEqual(new Set(['stored']));
      expect((await queue.stats(now())).waiting).toBe(10_000);
    });

    test('keeps the body when the caller changes its buffer afterwards', async () => {
      const queue = await open();
      const event = newEvent(['acme'], { body: Buffer.from('before') });
      await queue.append([event]);
      event.body.write('after!');
      expect((await queue.getEvent(event.id))?.body.toString()).toBe('before');
    });

    test('leaves the body to the caller', async () => {
      const queue = await open();
      // A buffer with memory of its own, which could be moved to another thread, and then would be empty here.
      const event = newEvent(['acme'], { body: Buffer.from(new Uint8Array(70_000).fill(7).buffer) });
      await queue.append([event]);
      expect(event.body).toHaveLength(70_000);
      expect((await queue.getEvent(event.id))?.body.equals(event.body)).toBe(true);
    });

    test('accepts empty bodies, bodies of 1 MiB, and IDs of 128 characters', async () => {
      const queue = await open();
      const empty = newEvent(['acme'], { body: Buffer.alloc(0), metadata: '' });
      const large = newEvent(['acme'], { id: 'x'.repeat(128), body: Buffer.alloc(1 << 20, 'a'), metadata: 'm'.repeat(65_536) });
      expect(await queue.append([empty, large])).toEqual(['stored', 'stored']);
      expect((await queue.getEvent(empty.id))?.body).toHaveLength(0);
      const stored = await queue.getEvent(large.id);
      expect(stored?.body.equals(large.body)).toBe(true);
      expect(stored?.metadata).toBe(large.metadata);
      expect(await drain(queue, now)).toHaveLength(2);
    });

    test('accepts nothing at all, and an event for no endpoint', async () => {
      const queue = await open();
      expect(await queue.append([])).toEqual([]);
      const event = newEvent([]);
      expect(await queue.append([event])).toEqual(['stored']);
      expect(await queue.append([event])).toEqual(['duplicate']);
      expect((await queue.getEvent(event.id))?.id).toBe(event.id);
      expect((await queue.find({ event: event.id }, { limit: 10 })).found).toEqual([]);
      expect(await queue.stats(now())).toMatchObject({ storedEvents: 1, events: 0, waiting: 0 });
    });

    test('does not know an event that was never appended', async () => {
      const queue = await open();
      expect(await queue.getEvent('msg_unknown')).toBeUndefined();
    });

    test('changes nothing for an ID that is stored, whatever else the event says', async () => {
      const queue = await open();
      const event = newEvent(['acme']);
      await queue.append([event]);
      expect(
        await queue.append([newEvent(['acme', 'other'], { id: event.id, type: 'other.type', body: Buffer.from('other') })]),
      ).toEqual(['conflict']);
      expect(await queue.append([newEvent(['other'], { id: event.id, body: event.body, metadata: '{"a":1}' })])).toEqual([
        'duplicate',
      ]);
      expect(await queue.append([newEvent(['acme'], { id: event.id, body: event.body, tenant: 't' })])).toEqual(['conflict']);
      expect((await queue.getEvent(event.id))?.body.equals(event.body)).toBe(true);
      const received = await drain(queue, now);
      expect(received).toMatchObject([{ event: event.id, endpoint: 'acme', type: event.type }]);
    });

    test('is idempotent within one call', async () => {
      const queue = await open();
      const [one, two] = [newEvent(), newEvent()];
      expect(await queue.append([one, two, one, two, one])).toEqual(['stored', 'stored', 'duplicate', 'duplicate', 'duplicate']);
      expect(await drain(queue, now)).toHaveLength(2);
    });

    test('stores an ID once out of a hundred concurrent calls', async () => {
      const queue = await open();
      const event = newEvent();
      const results = await Promise.all(Array.from({ length: 100 }, () => queue.append([event])));
      expect(results.flat().filter((result) => result === 'stored')).toHaveLength(1);
      expect(await drain(queue, now)).toHaveLength(1);
    });

    test('is idempotent after everything was delivered, and after the store was opened again', async () => {
      const queue = await open();
      const event = newEvent();
      await queue.append([event]);
      await drain(queue, now);
      expect(await queue.append([event])).toEqual(['duplicate']);
      await close(queue);
      const again = await open();
      expect(await again.append([event])).toEqual(['duplicate']);
      expect((await again.stats(now())).waiting).toBe(0);
    });

    test('stores all events of a call or none, and rejects with queue_full at the maximum number of events', async () => {
      const queue = await open({ maxEvents: 3 });
      const stored = [newEvent(), newEvent()];
      await queue.append(stored);
      const [one, two] = [newEvent(), newEvent()];
      await expect(queue.append([one, two])).rejects.toMatchObject({ name: 'SidegateError', code: 'queue_full' });
      expect(await queue.getEvent(one.id)).toBeUndefined();
      expect(await queue.stats(now())).toMatchObject({ events: 2, waiting: 2, maxEvents: 3 });
      expect(await queue.append([one])).toEqual(['stored']);
      await expect(queue.append([two])).rejects.toMatchObject({ code: 'queue_full' });
      // The app posts again because it did not see the response.
      expect(await queue.append([...stored, one])).toEqual(['duplicate', 'duplicate', 'duplicate']);
      await expect(queue.append([one, two])).rejects.toMatchObject({ code: 'queue_full' });
    });

    test('rejects with queue_full at the maximum size, and accepts again once events were pruned', async () => {
      const queue = await open({ maxBytes: 100_000 });
      const events = Array.from({ length: 12 }, () => newEvent(['acme'], { body: Buffer.alloc(10_000) }));
      let stored = 0;
      const append = async (): Promise<void> => {
        for (const event of events) {
          await queue.append([event]);
          stored++;
        }
      };
      await expect(append()).rejects.toMatchObject({ code: 'queue_full' });
      expect(stored).toBeGreaterThan(5);
      expect(stored).toBeLessThan(10);
      const { bytes, maxBytes } = await queue.stats(now());
      expect(maxBytes).toBe(100_000);
      expect(bytes).toBeGreaterThan(stored * 10_000);
      expect(bytes).toBeLessThanOrEqual(100_000);
      await drain(queue, now);
      expect(await queue.prune(now() + 1, now() + 1, 100)).toBe(stored);
      expect(await queue.stats(now())).toMatchObject({ storedEvents: 0, storedBytes: 0, events: 0, bytes: 0 });
      expect(await queue.append([events[0] ?? newEvent()])).toEqual(['stored']);
    });

    test('counts events that are appended concurrently, so that no bound is exceeded', async () => {
      const queue = await open({ maxEvents: 10 });
      const results = await Promise.allSettled(Array.from({ length: 40 }, () => queue.append([newEvent()])));
      expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(10);
      expect((await queue.stats(now())).events).toBe(10);
    });

    test('knows how full it is after it was opened again', async () => {
      const queue = await open({ maxEvents: 5 });
      await appendMany(queue, 5);
      const before = await queue.stats(now());
      await close(queue);
      const again = await open({ maxEvents: 5 });
      expect(await again.stats(now())).toMatchObject({ events: 5, waiting: 5, bytes: before.bytes });
      await expect(again.append([newEvent()])).rejects.toMatchObject({ code: 'queue_full' });
    });

    test('keeps an event that was stored for a disabled endpoint as skipped', async () => {
      const queue = await open();
      const event = newEvent([{ endpoint: 'off', isSkipped: true }, 'on'], { id: newId() });
      await queue.append([event]);
      expect(await queue.stats(now())).toMatchObject({ waiting: 1, skipped: 1 });
      expect(await drain(queue, now)).toMatchObject([{ endpoint: 'on' }]);
      const { found: deliveries } = await queue.find({ event: event.id, endpoint: 'off' }, { limit: 1 });
      expect(deliveries).toMatchObject([{ state: 'skipped', attempts: 0 }]);
      expect(deliveries[0]?.due).toBeUndefined();
    });

    test('accepts an event for 500 endpoints', async () => {
      const queue = await open();
      const endpoints = Array.from({ length: 500 }, (_, i) => `e${i}`);
      await queue.append([newEvent(endpoints)]);
      const received = await drain(queue, now);
      expect(new Set(received.map(({ endpoint }) => endpoint)).size).toBe(500);
      expect(received).toHaveLength(500);
    });
  });
}
