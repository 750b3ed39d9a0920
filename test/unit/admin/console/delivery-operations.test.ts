import { expect, test } from 'vitest';
import { type DeliveryParts, readPage } from '../../../../src/admin/console/delivery-operations.ts';
import { deliveryQuery } from '../../../../src/admin/console/schemas.ts';
import { systemClock } from '../../../../src/core/clock.ts';

test('each page of the list is made in a turn of the event loop that other work precedes', async () => {
  let turn = 0;
  const pages: number[] = [];
  const parts = {
    clock: systemClock,
    readShared: async () => [],
    context: () => ({ redact: [] }),
    entries: () => {
      pages.push(turn);
      return [];
    },
  } as unknown as DeliveryParts;
  const count = (): void => {
    turn++;
    if (pages.length < 5) setImmediate(count);
  };
  setImmediate(count);
  await Promise.all(Array.from({ length: 5 }, () => readPage(parts, deliveryQuery.parse({}))));
  expect(new Set(pages).size).toBe(5);
});
