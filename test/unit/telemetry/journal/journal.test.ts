import { describe, expect, test } from 'vitest';
import { Journal, type JournalQuery } from '../../../../src/telemetry/journal/journal.ts';
import type { RequestLine } from '../../../../src/telemetry/log/logger.ts';
import { fc } from '../../../support/property.ts';
import { makeRequestLine } from '../../../support/request-line.ts';

const create = (size: number, maxBytes = 1_048_576): Journal => new Journal({ size, maxBytes });
const toLine = (requestId: string, over: Partial<RequestLine> = {}): RequestLine => makeRequestLine({ requestId, ...over });
const ids = (journal: Journal, query: Partial<JournalQuery> = {}): string[] =>
  journal.find({ limit: 100, ...query }).map(({ line }) => line.requestId);

describe('the journal', () => {
  test('returns the latest decisions, newest first, and counts all', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 7 }), fc.integer({ min: 0, max: 30 }), (size, total) => {
        const journal = create(size);
        const all = Array.from({ length: total }, (_, i) => String(i));
        for (const [i, id] of all.entries()) journal.add(i, toLine(id));
        expect(ids(journal)).toEqual(all.reverse().slice(0, size));
        expect(journal.recorded).toBe(total);
      }),
    );
  });

  test('keeps the line of the log, not a copy', () => {
    const journal = create(2);
    const line = toLine('x');
    journal.add(7, line);
    expect(journal.find({ limit: 1 })[0]?.line).toBe(line);
    expect(journal.find({ limit: 1 })[0]?.at).toBe(7);
  });

  test('keeps nothing at size 0', () => {
    const journal = create(0);
    journal.add(1, toLine('x'));
    expect([ids(journal), journal.recorded, journal.explain('x', ['y'])]).toEqual([[], 0, false]);
  });

  test('filters by route, by no route, by code, by reason, by request, and up to a limit', () => {
    const journal = create(10);
    journal.add(1, toLine('pass'));
    journal.add(2, toLine('lost', { route: undefined, code: 'route_not_found', reason: 'route_not_found' }));
    journal.add(3, toLine('old', { route: 'b', code: 'timestamp_outside_tolerance', reason: 'timestamp_old' }));
    journal.add(4, toLine('early', { route: 'b', code: 'timestamp_outside_tolerance', reason: 'timestamp_future' }));
    expect(ids(journal, { route: 'b' })).toEqual(['early', 'old']);
    expect(ids(journal, { route: null })).toEqual(['lost']);
    expect(ids(journal, { code: 'forwarded' })).toEqual(['pass']);
    expect(ids(journal, { reason: 'timestamp_old' })).toEqual(['old']);
    expect(ids(journal, { requestId: 'early' })).toEqual(['early']);
    expect(ids(journal, { limit: 2 })).toEqual(['early', 'old']);
    expect(ids(journal, { route: 'a', code: 'route_not_found' })).toEqual([]);
  });

  test('adds an explanation later if the decision is still kept, and never to the one that replaced it', () => {
    const journal = create(2);
    journal.add(1, toLine('first'));
    journal.add(2, toLine('second'));
    expect(journal.explain('first', ['it would match with the body trimmed'])).toBe(true);
    expect(journal.find({ limit: 9 }).map(({ explanation }) => explanation)).toEqual([
      undefined,
      ['it would match with the body trimmed'],
    ]);
    journal.add(3, toLine('third'));
    expect(journal.find({ limit: 9 }).map(({ explanation }) => explanation)).toEqual([undefined, undefined]);
    expect(journal.explain('first', ['too late'])).toBe(false);
  });

  test('limits the size of an explanation', () => {
    const journal = create(1);
    journal.add(1, toLine('x'));
    journal.explain('x', Array(50).fill('y'.repeat(5_000)));
    const explanation = journal.find({ limit: 1 })[0]?.explanation ?? [];
    expect([explanation.length, explanation[0]?.length]).toEqual([20, 500]);
  });

  test('removes the oldest decisions early if they need too much memory, but never the newest', () => {
    const long = {
      path: '/',
      targetLength: 1,
      headers: 'x'.repeat(50_000),
      signedAt: undefined,
      isClaimed: false,
      bytesOut: 0,
      body: undefined,
    };
    const journal = create(1_000, 200_000);
    for (let i = 0; i < 10; i++) journal.add(i, toLine(String(i)), long);
    expect(ids(journal)).toEqual(['9', '8', '7']);
    expect(journal.bytes).toBeLessThan(200_000);
    journal.add(10, toLine('huge'), { ...long, headers: 'x'.repeat(500_000) });
    expect([ids(journal), journal.recorded]).toEqual([['huge'], 11]);
    for (let i = 0; i < 100; i++) journal.add(i, toLine(`small ${i}`));
    expect([journal.length, ids(journal).at(-1)]).toEqual([100, 'small 0']);
    for (let i = 0; i < 100; i++) journal.explain(`small ${i}`, ['y'.repeat(500)]);
    expect([journal.length, journal.bytes <= 200_000]).toEqual([98, true]);
  });

  test('numbers the decisions from the start', () => {
    const journal = create(2);
    for (const id of ['a', 'b', 'c']) journal.add(1, toLine(id));
    expect(journal.find({ limit: 9 }).map(({ sequence }) => sequence)).toEqual([3, 2]);
  });
});
