import { describe, expect, test } from 'vitest';
import { TextRing } from '../../../../src/telemetry/journal/journal.ts';
import { fc } from '../../../support/property.ts';

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
