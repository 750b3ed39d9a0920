import { describe, expect, test } from 'vitest';
import { type ListElement, TimeHeap, UnorderedList } from '../../../src/core/collections.ts';
import { fc } from '../../support/property.ts';

describe('UnorderedList', () => {
  const ELEMENTS = 8;
  const steps = fc.array(fc.record({ isAdded: fc.boolean(), index: fc.nat(ELEMENTS - 1) }), { maxLength: 100 });

  test('has the same elements as a Set, in any sequence of additions and removals', () => {
    fc.assert(
      fc.property(steps, (sequence) => {
        const elements: ListElement[] = Array.from({ length: ELEMENTS }, () => ({ listIndex: undefined }));
        const [list, set] = [new UnorderedList<ListElement>(), new Set<ListElement>()];
        for (const { isAdded, index } of sequence) {
          const element = elements[index] as ListElement;
          if (!isAdded) {
            list.remove(element);
            set.delete(element);
          } else if (!set.has(element)) {
            list.add(element);
            set.add(element);
          }
          expect([...list].length).toBe(set.size);
          expect(new Set(list).size).toBe(set.size);
          expect([...list].every((each) => set.has(each))).toBe(true);
        }
      }),
    );
  });

  test('ignores the removal of an element of another list', () => {
    const [first, second] = [{ listIndex: undefined }, { listIndex: undefined }];
    const [list, other] = [new UnorderedList<ListElement>(), new UnorderedList<ListElement>()];
    list.add(first);
    other.add(second);
    list.remove(second);
    expect([...list]).toEqual([first]);
    expect([...other]).toEqual([second]);
  });
});

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
