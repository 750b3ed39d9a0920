import { describe, expect, test } from 'vitest';
import { Journal, type JournalBody } from '../../../../src/telemetry/journal/journal.ts';
import {
  BlockMemory,
  type Blocks,
  BODY_OVERHEAD_BYTES,
  StoredBodies,
  toAllocatedBytes,
} from '../../../../src/telemetry/journal/stored-bodies.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { fc } from '../../../support/property.ts';
import { makeRequestLine } from '../../../support/request-line.ts';

const HOUR = 3_600_000;

function open(maxBytes = 10_000) {
  const clock = new FakeClock();
  const counts = { evicted: 0 };
  const bodies = new StoredBodies({ clock, maxBytes, onEvicted: () => counts.evicted++ });
  const add = (route: string, size: number, retention = HOUR): JournalBody =>
    bodies.add(route, { content: Buffer.allocUnsafeSlow(size).fill('x'), isTruncated: false, redactions: 0 }, retention);
  return { clock, bodies, counts, add };
}

/** Allocated memory of one body. */
const toBytes = (size: number): number => toAllocatedBytes(size) + BODY_OVERHEAD_BYTES;
const isStored = ({ content }: JournalBody): boolean => Buffer.isBuffer(content);

describe('stored bodies', () => {
  test('stay for their retention, and no longer', async () => {
    const { clock, bodies, add } = open();
    const [long, short] = [add('a', 100), add('b', 100, 5_000)];
    await clock.advance(4_000);
    expect([isStored(long), isStored(short)]).toEqual([true, true]);
    await clock.advance(2_000);
    expect([isStored(long), short.content, bodies.bytes]).toEqual([true, 'expired', toBytes(100)]);
    await clock.advance(HOUR);
    expect([long.content, bodies.bytes, clock.timers]).toEqual(['expired', 0, 0]);
  });

  test('make room for newer ones, the oldest of the same route first', () => {
    const { bodies, counts, add } = open(4 * toBytes(1_000));
    const all = Array.from({ length: 6 }, () => add('a', 1_000));
    expect(all.map(isStored)).toEqual([false, false, true, true, true, true]);
    expect([all[0]?.content, counts.evicted, bodies.bytes]).toEqual(['evicted', 2, 4 * toBytes(1_000)]);
  });

  test('of a quiet route are not pushed out by a busy one', () => {
    const { add } = open();
    const quiet = add('quiet', 500);
    const busy = Array.from({ length: 500 }, () => add('busy', 100));
    expect(isStored(quiet)).toBe(true);
    expect(isStored(busy.at(-1) as JournalBody)).toBe(true);
  });

  test('are removed if even one is too large, and with their route', () => {
    const { bodies, add } = open();
    expect(add('a', 20_000).content).toBe('evicted');
    const [a, b] = [add('a', 100), add('b', 100)];
    bodies.forget('a');
    bodies.forget('none');
    expect([a.content, isStored(b), bodies.bytes]).toEqual(['expired', true, toBytes(100)]);
  });

  test('keep their content when the buffer that they came from is used again, and in every size', () => {
    const { bodies, add } = open(1_000_000);
    const buffer = Buffer.alloc(300_000);
    const sizes = [0, 1, 1_023, 1_024, 1_025, 65_536, 262_144];
    const all = sizes.map((size, i) => {
      const content = buffer.subarray(0, size).fill(65 + i);
      return bodies.add('a', { content, isTruncated: false, redactions: 0 }, HOUR);
    });
    buffer.fill(0);
    add('b', 5_000);
    expect(all.map(({ content }) => content.toString())).toEqual(
      sizes.map((size, i) => String.fromCharCode(65 + i).repeat(size)),
    );
  });

  test('give half of their memory back if something else needs it', () => {
    const { bodies, add } = open(1_000_000);
    const all = Array.from({ length: 8 }, () => add('a', 1_000));
    bodies.shed();
    expect(all.map(isStored)).toEqual([false, false, false, false, true, true, true, true]);
    for (let i = 0; i < 5; i++) bodies.shed();
    expect([bodies.bytes, all.some(isStored)]).toEqual([0, false]);
    bodies.shed();
  });

  test('never take more than allowed, and their memory is counted right, whatever happens', () => {
    const step = fc.oneof(
      fc.record({ route: fc.constantFrom('a', 'b', 'c'), size: fc.nat({ max: 4_000 }) }),
      fc.record({ forget: fc.constantFrom('a', 'b', 'c') }),
      fc.record({ release: fc.nat({ max: 30 }) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const { bodies, add } = open();
        const all: JournalBody[] = [];
        for (const each of steps) {
          if ('size' in each) all.push(add(each.route, each.size));
          else if ('forget' in each) bodies.forget(each.forget);
          else all[each.release]?.release();
          const stored = all.filter(isStored);
          expect(bodies.bytes).toBe(stored.reduce((sum, { content }) => sum + toBytes(content.length), 0));
          expect(bodies.bytes).toBeLessThanOrEqual(10_000);
        }
      }),
    );
  });
});

test('a body goes with its entry of the journal, which has the usual bounds', () => {
  const { bodies, add } = open(1_000_000);
  const journal = new Journal({ size: 3, maxBytes: 1_000_000 });
  const details = {
    path: '/',
    headers: '',
    signedAt: undefined,
    stoppedAt: undefined,
    queuedAs: undefined,
    isClaimed: true,
    bytesOut: 0,
  };
  const all = Array.from({ length: 5 }, () => add('a', 100));
  for (const body of all) journal.add(1, makeRequestLine(), { ...details, body });
  expect(all.map(isStored)).toEqual([false, false, true, true, true]);
  expect(bodies.bytes).toBe(3 * toBytes(100));
});

const size = fc.oneof(fc.nat({ max: 5_000 }), fc.nat({ max: 400_000 }));

test('returns what was written, in whatever order it is written and freed', () => {
  const step = fc.oneof(fc.record({ size }), fc.record({ drop: fc.nat({ max: 20 }) }));
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const memory = new BlockMemory();
      const written = new Map<number, { blocks: Blocks; content: Buffer }>();
      for (const [index, each] of steps.entries()) {
        if ('size' in each) {
          const content = Buffer.alloc(each.size, `content ${index}`);
          written.set(index, { content, blocks: memory.write(content) });
        } else {
          memory.free(written.get(each.drop)?.blocks ?? []);
          written.delete(each.drop);
        }
        for (const { blocks, content } of written.values())
          expect(memory.read(blocks, content.length).equals(content)).toBe(true);
      }
      const blocks = [...written.values()].flatMap((each) => each.blocks);
      expect(new Set(blocks).size).toBe(blocks.length);
    }),
    { numRuns: 50 },
  );
});

test('uses freed memory again, and does not grow', () => {
  const memory = new BlockMemory();
  const content = Buffer.alloc(100_000, 'x');
  const first = [memory.write(content), memory.write(content)].flat();
  memory.free(first);
  const held: Blocks[] = [];
  for (let i = 0; i < 1_000; i++) {
    held.push(memory.write(content));
    if (held.length === 2) memory.free(held.shift() ?? []);
  }
  expect(Math.max(...held.flat())).toBeLessThanOrEqual(Math.max(...first));
});
