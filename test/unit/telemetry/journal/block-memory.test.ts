import { expect, test } from 'vitest';
import { BlockMemory, type Blocks } from '../../../../src/telemetry/journal/block-memory.ts';
import { fc } from '../../../support/property.ts';

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
