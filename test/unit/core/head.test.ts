import { expect, test } from 'vitest';
import { rememberByName } from '../../../src/core/head.ts';

function countCalls(): { decide: (name: string) => boolean; calls: () => number } {
  let calls = 0;
  const decide = rememberByName((name) => {
    calls++;
    return name.startsWith('x-');
  });
  return { decide, calls: () => calls };
}

test('decides once for a name, also if the answer is no', () => {
  const { decide, calls } = countCalls();
  expect([decide('x-event'), decide('host'), decide('x-event'), decide('host')]).toEqual([true, false, true, false]);
  expect(calls()).toBe(2);
});

test('does not remember long names, by which a client could fill memory', () => {
  const { decide, calls } = countCalls();
  const long = `x-${'a'.repeat(63)}`;
  decide(long);
  decide(long);
  expect(calls()).toBe(2);
});

test('forgets all names once there are too many, and remembers those after them', () => {
  const { decide, calls } = countCalls();
  for (let i = 0; i < 1_001; i++) decide(`x-${i}`);
  decide('x-1000');
  expect(calls()).toBe(1_001);
  decide('x-0');
  expect(calls()).toBe(1_002);
});
