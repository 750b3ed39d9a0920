import { describe, expect, test } from 'vitest';
import { STAGES } from '../../../../src/core/refusal.ts';
import { Journal, type JournalQuery, TextRing } from '../../../../src/telemetry/journal/journal.ts';
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

  test.each([
    ['number', 8, 1_048_576],
    ['memory', 1_000, 4_000],
  ])(
    'keeps verified decisions within half of its %s, whatever other clients send, and the newest of both in order',
    (_, size, max) => {
      for (const credential of [{ key: 'current' }, { user: 'alice' }, { certificate: 'client' }]) {
        const journal = create(size, max);
        journal.add(1, toLine('verified-1', credential));
        journal.add(2, toLine('verified-2', credential));
        for (let i = 0; i <= size; i++)
          journal.add(3, toLine(`other-${i}`, i % 2 === 0 ? {} : { ...credential, observed: 'duplicate' }));
        journal.add(4, toLine('verified-3', credential));
        expect(ids(journal).slice(0, 2)).toEqual(['verified-3', `other-${size}`]);
        expect(ids(journal).slice(-2)).toEqual(['verified-2', 'verified-1']);
        expect([journal.length <= size, journal.bytes <= max]).toEqual([true, true]);
        for (let i = 0; i < 2 * size; i++) journal.add(5, toLine(`verified-${i}`, credential));
        expect(ids(journal)).toContain(`other-${size}`);
      }
    },
  );

  test('returns the line and the details as they were added', () => {
    const text = fc.string({ unit: 'grapheme', maxLength: 40 });
    const amount = fc.option(fc.nat(), { nil: undefined });
    const toDetails = {
      path: fc.option(text, { nil: undefined }),
      headers: text,
      signedAt: amount,
      stoppedAt: fc.option(fc.constantFrom(...STAGES), { nil: undefined }),
      queuedAs: fc.option(fc.constant('in_-_09az'), { nil: undefined }),
      isClaimed: fc.boolean(),
      bytesOut: amount,
    };
    const decision = fc.record({
      at: fc.nat(),
      requestId: text,
      detail: text,
      details: fc.option(fc.record(toDetails), { nil: undefined }),
    });
    fc.assert(
      fc.property(fc.array(decision, { maxLength: 20 }), (decisions) => {
        const journal = create(20);
        const added = decisions.map(({ at, requestId, detail, details }) => ({
          at,
          line: toLine(requestId, { detail, route: undefined }),
          details: details && { ...details, body: undefined },
        }));
        for (const { at, line, details } of added) journal.add(at, line, details);
        expect(journal.takeAll()).toEqual(added);
        expect([journal.length, journal.bytes]).toEqual([0, 0]);
      }),
    );
  });

  test('releases the body of a decision that it forgets, once', () => {
    const released: string[] = [];
    const toDetails = (name: string) => ({
      path: '/',
      headers: '',
      signedAt: undefined,
      stoppedAt: undefined,
      queuedAs: undefined,
      isClaimed: true,
      bytesOut: 0,
      body: { content: Buffer.from(name), isTruncated: false, redactions: 0, release: () => void released.push(name) },
    });
    const journal = create(2);
    for (const name of ['a', 'b', 'c']) journal.add(1, toLine(name), toDetails(name));
    expect(journal.find({ limit: 9 }).map(({ details }) => String(details?.body?.content))).toEqual(['c', 'b']);
    expect(released).toEqual(['a']);
    journal.takeAll();
    expect(released).toEqual(['a', 'b', 'c']);
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
      headers: 'x'.repeat(50_000),
      signedAt: undefined,
      stoppedAt: undefined,
      queuedAs: undefined,
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
    // 1,000 bytes each: at most 200 of them.
    for (let i = 0; i < 250; i++) journal.add(i, toLine(`more ${i}`));
    for (let i = 0; i < 250; i++) journal.explain(`more ${i}`, ['y'.repeat(500)]);
    expect(journal.length).toBeLessThan(200);
    expect(journal.length).toBeGreaterThan(100);
    expect(journal.bytes).toBeLessThanOrEqual(200_000);
  });

  test('numbers the decisions from the start', () => {
    const journal = create(2);
    for (const id of ['a', 'b', 'c']) journal.add(1, toLine(id));
    expect(journal.find({ limit: 9 }).map(({ sequence }) => sequence)).toEqual([3, 2]);
  });
});

describe('TextRing', () => {
  const readAll = (ring: TextRing): string[] => Array.from({ length: ring.length }, (_, i) => ring.at(i + 1));

  describe('the ring of texts', () => {
    test('keeps the newest texts exactly, of any size', () => {
      const text = fc.oneof(
        fc.string({ unit: 'grapheme' }),
        fc.integer({ min: 0, max: 100_000 }).map((length) => 'é'.repeat(length)),
      );
      fc.assert(
        fc.property(
          fc.integer({ min: 1, max: 5 }),
          fc.array(fc.option(text, { nil: undefined }), { maxLength: 40 }),
          (size, steps) => {
            const ring = new TextRing(size);
            const kept: string[] = [];
            for (const step of steps) {
              if (kept.length > 0 && (step === undefined || kept.length === size))
                expect(ring.removeOldest()).toBe(Buffer.byteLength(kept.pop() as string));
              if (step === undefined) continue;
              expect(ring.add(step)).toBe(Buffer.byteLength(step));
              kept.unshift(step);
            }
            expect(readAll(ring)).toEqual(kept);
          },
        ),
      );
    });

    test('uses the same memory again for as many texts as come', () => {
      const ring = new TextRing(100);
      const before = process.memoryUsage().arrayBuffers;
      for (let i = 0; i < 100_000; i++) {
        if (ring.length === 100) ring.removeOldest();
        ring.add('x'.repeat(1_000));
      }
      // 100 KB of texts are in at most three segments of 64 KiB; one more is kept for the next texts.
      expect(process.memoryUsage().arrayBuffers - before).toBeLessThanOrEqual(5 * 65_536);
    });
  });
});
