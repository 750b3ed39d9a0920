/**
 * Memory for many byte strings with different lifetimes. The allocator of the process would scatter them among short-lived buffers, whose
 * memory could then not be returned to the system: with 8 MiB of stored bodies it held 45 MiB.
 */

/** The unit of allocation; half of it is wasted on average. */
const BLOCK_BYTES = 1_024;
const BLOCKS_PER_SEGMENT = 256;
/** Of the number of a block, in the list of a byte string. */
const NUMBER_BYTES = 8;

/** Blocks of one byte string, in order. */
export type Blocks = readonly number[];

/** A part of the memory that is allocated, and released, at once. */
interface BlockSegment {
  readonly memory: Buffer;
  /** The indexes of the blocks that are free. */
  readonly free: number[];
}

/** Blocks of equal size in a few large segments, which are released when nothing is in them. */
export class BlockMemory {
  readonly #segments: (BlockSegment | undefined)[] = [];

  /** Copies the content. */
  write(content: Buffer): Blocks {
    const blocks: number[] = [];
    let at = 0;
    for (let index = 0; at < content.length; index++) {
      const segment = this.#segments[index] ?? allocateSegment();
      this.#segments[index] = segment;
      while (at < content.length) {
        const block = segment.free.pop();
        if (block === undefined) break;
        blocks.push(index * BLOCKS_PER_SEGMENT + block);
        content.copy(segment.memory, block * BLOCK_BYTES, at, at + BLOCK_BYTES);
        at += BLOCK_BYTES;
      }
    }
    return blocks;
  }

  /** A copy of the content that was written to these blocks. */
  read(blocks: Blocks, length: number): Buffer {
    const content = Buffer.allocUnsafe(length);
    for (const [index, block] of blocks.entries()) {
      const from = (block % BLOCKS_PER_SEGMENT) * BLOCK_BYTES;
      this.#segments[toSegment(block)]?.memory.copy(content, index * BLOCK_BYTES, from, from + BLOCK_BYTES);
    }
    return content;
  }

  /** Makes the blocks available again. Each may be freed only once. */
  free(blocks: Blocks): void {
    for (const block of blocks) {
      const segment = this.#segments[toSegment(block)];
      segment?.free.push(block % BLOCKS_PER_SEGMENT);
      if (segment?.free.length === BLOCKS_PER_SEGMENT) this.#segments[toSegment(block)] = undefined;
    }
  }
}

/** Returns the memory that a byte string of this length takes. */
export function toAllocatedBytes(length: number): number {
  return Math.ceil(length / BLOCK_BYTES) * (BLOCK_BYTES + NUMBER_BYTES);
}

function allocateSegment(): BlockSegment {
  return {
    memory: Buffer.allocUnsafeSlow(BLOCKS_PER_SEGMENT * BLOCK_BYTES),
    free: Array.from({ length: BLOCKS_PER_SEGMENT }, (_, i) => BLOCKS_PER_SEGMENT - 1 - i),
  };
}

function toSegment(block: number): number {
  return Math.floor(block / BLOCKS_PER_SEGMENT);
}
