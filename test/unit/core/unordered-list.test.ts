import fc from 'fast-check';
import { expect, it } from 'vitest';
import { type ListElement, UnorderedList } from '../../../src/core/collections.ts';

const ELEMENTS = 8;
const steps = fc.array(fc.record({ isAdded: fc.boolean(), index: fc.nat(ELEMENTS - 1) }), { maxLength: 100 });

it('has the same elements as a Set, in any sequence of additions and removals', () => {
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

it('ignores the removal of an element of another list', () => {
  const [first, second] = [{ listIndex: undefined }, { listIndex: undefined }];
  const [list, other] = [new UnorderedList<ListElement>(), new UnorderedList<ListElement>()];
  list.add(first);
  other.add(second);
  list.remove(second);
  expect([...list]).toEqual([first]);
  expect([...other]).toEqual([second]);
});
