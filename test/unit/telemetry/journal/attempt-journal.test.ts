import { expect, test } from 'vitest';
import { type AttemptEntry, AttemptJournal, type AttemptQuery } from '../../../../src/telemetry/journal/attempt-journal.ts';

const toEntry = (at: number, over: Partial<AttemptEntry> = {}): AttemptEntry => ({
  at,
  endpoint: 'acme',
  event: `e${at}`,
  attempt: 1,
  outcome: 'delivered',
  status: 200,
  duration: 1,
  detail: undefined,
  next: 'none',
  retryAt: undefined,
  ...over,
});
const timesOf = (journal: AttemptJournal, query: Partial<AttemptQuery> = {}): number[] =>
  journal.find({ limit: 100, ...query }).map(({ at }) => at);

test('keeps the latest attempts, newest first, and counts all', () => {
  const journal = new AttemptJournal(3);
  expect(timesOf(journal)).toEqual([]);
  for (let at = 1; at <= 7; at++) journal.add(toEntry(at));
  expect([timesOf(journal), journal.recorded, journal.size]).toEqual([[7, 6, 5], 7, 3]);
});

test('keeps nothing at size 0', () => {
  const journal = new AttemptJournal(0);
  journal.add(toEntry(1));
  expect([timesOf(journal), journal.recorded]).toEqual([[], 0]);
});

test('filters by endpoint, event and outcome, and up to a limit', () => {
  const journal = new AttemptJournal(10);
  journal.add(toEntry(1));
  journal.add(toEntry(2, { endpoint: 'other' }));
  journal.add(toEntry(3, { outcome: 'timeout', event: 'e1' }));
  expect(timesOf(journal, { endpoint: 'acme' })).toEqual([3, 1]);
  expect(timesOf(journal, { event: 'e1' })).toEqual([3, 1]);
  expect(timesOf(journal, { outcome: 'timeout' })).toEqual([3]);
  expect(timesOf(journal, { endpoint: 'other', outcome: 'timeout' })).toEqual([]);
  expect(timesOf(journal, { limit: 2 })).toEqual([3, 2]);
});
