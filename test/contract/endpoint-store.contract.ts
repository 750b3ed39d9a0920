import { describe, expect, test } from 'vitest';
import type { TakeOnly } from '../../src/provider/queue/delivery-queue.ts';
import { until } from '../support/gate.ts';
import { appendMany, PROVEN, settled } from '../support/queue/events.ts';
import { holdLanes } from '../support/queue/lanes.ts';
import type { QueueFixture } from './delivery-queue.contract.ts';

/** What every store of endpoints keeps to. */
export function describeEndpointStore({ open, close, store }: QueueFixture): void {
  describe('the store of endpoints', () => {
    test('lists what was stored, also after it was opened again', async () => {
      const queue = await open();
      expect(await queue.endpoints.list()).toEqual([]);
      const json = JSON.stringify({ url: 'https://acme.example', text: 'ü€😀', long: 'x'.repeat(100_000) });
      expect(await queue.endpoints.put({ id: 'ep_1', version: 1, json })).toBe(true);
      expect(await queue.endpoints.put({ id: 'ep_2', version: 1, json: '{}' })).toBe(true);
      const stored = [
        { id: 'ep_1', version: 1, json },
        { id: 'ep_2', version: 1, json: '{}' },
      ];
      const list = async (from: typeof queue) => (await from.endpoints.list()).toSorted((a, b) => (a.id < b.id ? -1 : 1));
      expect(await list(queue)).toEqual(stored);
      await close(queue);
      expect(await list(await open())).toEqual(stored);
    });

    test('lists pages, which neither repeat nor omit an endpoint while others are added and removed', async () => {
      const { endpoints } = await open();
      const put = (id: number) => endpoints.put({ id: `ep_${1_000 + id}`, version: 1, json: '{}' });
      for (let i = 0; i < 250; i++) await put(2 * i);
      const first = await endpoints.list();
      await Promise.all([put(3), put(301), endpoints.remove('ep_1000'), endpoints.remove('ep_1498')]);
      const second = await endpoints.list(first.at(-1)?.id);
      const third = await endpoints.list(second.at(-1)?.id);
      const ids = [...first, ...second, ...third].map(({ id }) => Number(id.slice(3)) - 1_000);
      const expected = Array.from({ length: 250 }, (_, i) => 2 * i).filter((id) => id !== 498);
      expect(ids).toEqual([...expected, 301].toSorted((a, b) => a - b));
      expect([first.length, second.length, await endpoints.list(third.at(-1)?.id)]).toEqual([100, 100, []]);
    });

    test('stores a change only over the version before', async () => {
      const { endpoints } = await open();
      expect(await endpoints.put({ id: 'ep_1', version: 2, json: 'early' }, 1)).toBe(false);
      expect(await endpoints.put({ id: 'ep_1', version: 1, json: 'one' })).toBe(true);
      expect(await endpoints.put({ id: 'ep_1', version: 1, json: 'again' })).toBe(false);
      expect(await endpoints.put({ id: 'ep_1', version: 3, json: 'late' }, 2)).toBe(false);
      expect(await endpoints.put({ id: 'ep_1', version: 2, json: 'two' }, 1)).toBe(true);
      expect(await endpoints.list()).toEqual([{ id: 'ep_1', version: 2, json: 'two' }]);
    });

    test('lets one of many concurrent changes win', async () => {
      const { endpoints } = await open();
      await endpoints.put({ id: 'ep_1', version: 1, json: 'one' });
      const results = await Promise.all(
        Array.from({ length: 20 }, (_, i) => endpoints.put({ id: 'ep_1', version: 2, json: `${i}` }, 1)),
      );
      expect(results.filter(Boolean)).toHaveLength(1);
      expect(await endpoints.list()).toEqual([{ id: 'ep_1', version: 2, json: String(results.indexOf(true)) }]);
    });

    test('removes, once, and then stores the same ID as a new endpoint', async () => {
      const { endpoints } = await open();
      await endpoints.put({ id: 'ep_1', version: 1, json: 'one' });
      expect(await endpoints.remove('ep_1')).toBe(true);
      expect(await endpoints.remove('ep_1')).toBe(false);
      expect(await endpoints.list()).toEqual([]);
      expect(await endpoints.put({ id: 'ep_1', version: 2, json: 'two' }, 1)).toBe(false);
      expect(await endpoints.put({ id: 'ep_1', version: 1, json: 'new' })).toBe(true);
    });

    test('removes only the given version', async () => {
      const { endpoints } = await open();
      await endpoints.put({ id: 'ep_1', version: 1, json: 'one' });
      await endpoints.put({ id: 'ep_1', version: 2, json: 'two' }, 1);
      expect(await endpoints.remove('ep_1', 1)).toBe(false);
      expect(await endpoints.remove('ep_1', 2)).toBe(true);
      expect(await endpoints.remove('ep_1', 2)).toBe(false);
      expect(await endpoints.list()).toEqual([]);
    });

    test('gives the version of an endpoint and of its state, also with each delivery that is taken', async () => {
      const queue = await open();
      const { endpoints } = queue;
      const lanes = holdLanes(queue);
      const most = 2 ** 47 - 1;
      const takeVersions = async (only?: TakeOnly): Promise<number[]> => {
        await appendMany(queue, 2, 'ep_1');
        const { lane, end } = await lanes.next('ep_1');
        const taken = await lane.take(9, queue.clock.now(), only);
        await lane.settle(
          taken.map((delivery) => settled(delivery, { kind: 'delivered' })),
          PROVEN,
        );
        end();
        return taken.map(({ version }) => version);
      };
      expect([await endpoints.readVersion('ep_1'), await takeVersions()]).toEqual([0, [0, 0]]);
      await endpoints.put({ id: 'ep_1', version: most, json: '{}' });
      await endpoints.put({ id: 'ep_2', version: 3, json: '{}' });
      expect([await endpoints.readVersion('ep_1'), await takeVersions()]).toEqual([most, [most, most]]);
      await endpoints.put({ id: 'config:ep_1', version: most - 1, json: '{}' });
      expect([await endpoints.readVersion('ep_1'), await takeVersions('fresh')]).toEqual([
        2 * most - 1,
        Array(2).fill(2 * most - 1),
      ]);
      await endpoints.remove('ep_1');
      expect([await endpoints.readVersion('ep_1'), await takeVersions('first')]).toEqual([most - 1, [most - 1, most - 1]]);
      await lanes.stop();
    });

    test('calls listeners of other replicas after a change, until they stop listening', async ({ skip }) => {
      skip(!store().isShared, 'one process only');
      const [one, two] = [await open(), await open()];
      let calls = 0;
      const stop = two.endpoints.onChange(() => calls++);
      await one.endpoints.put({ id: 'ep_1', version: 1, json: 'one' });
      await until(() => calls > 0);
      expect(await two.endpoints.list()).toEqual([{ id: 'ep_1', version: 1, json: 'one' }]);
      // A replica may be told more than once of a change.
      calls = 0;
      await one.endpoints.remove('ep_1');
      await until(() => calls > 0);
      stop();
      const before = calls;
      await one.endpoints.put({ id: 'ep_2', version: 1, json: 'two' });
      await store().pass(100);
      expect(calls).toBe(before);
    });

    test('stops listening without harm, twice', async () => {
      const { endpoints } = await open();
      const stop = endpoints.onChange(() => undefined);
      stop();
      stop();
    });
  });
}
