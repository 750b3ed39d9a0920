import { describe, expect, test } from 'vitest';
import { TimeHeap } from '../../../src/core/collections.ts';
import { fc } from '../../support/property.ts';

describe('the heap of times', () => {
  test('returns any times in order, also after some were removed', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(50)), fc.nat(4), (times, divisor) => {
        const heap = new TimeHeap<number>();
        for (const time of times) heap.push(time, time * 2);
        const isKept = (time: number): boolean => divisor === 0 || time % divisor === 0;
        heap.keep((value, at) => isKept(at) && value === at * 2);
        const popped: number[] = [];
        for (let first = heap.first; first !== undefined; first = heap.first) {
          popped.push(first.at);
          heap.pop();
        }
        expect(popped).toEqual(times.filter(isKept).toSorted((a, b) => a - b));
        expect(heap.size).toBe(0);
      }),
    );
  });
});
