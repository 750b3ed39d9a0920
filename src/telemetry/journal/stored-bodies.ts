/** The bodies that the journal stores: in memory only, for a limited time, within a number of bytes. */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import type { BodyAbsence, JournalBody } from './journal.ts';

/** Memory of a body besides its content. */
export const BODY_OVERHEAD_BYTES = 512;
const SWEEP_INTERVAL_MS: Milliseconds = 1_000;

/** The stored part of one body. */
export interface RecordedBody {
  /** It is copied. */
  readonly content: Buffer;
  readonly isTruncated: boolean;
  readonly redactions: number;
}

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

/** The bodies of all routes. If they need too much memory, the oldest of the route that has most are removed: a busy route must not push out the others. */
export class StoredBodies {
  readonly #parts;
  readonly #routes = new Map<string, RouteBodies>();
  readonly #memory = new BlockMemory();
  #bytes = 0;
  #cancelSweep: CancelTimer | undefined;

  constructor(parts: {
    readonly clock: Clock;
    /** For all bodies, counted as allocated. */
    readonly maxBytes: number;
    /** A body was removed before its time, because newer ones needed the memory. */
    readonly onEvicted: () => void;
  }) {
    this.#parts = parts;
  }

  /** Memory of all bodies. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Stores a body; all bodies of a route must have the same retention (see `forget`). */
  add(route: string, content: RecordedBody, retention: Milliseconds): JournalBody {
    const { clock, maxBytes } = this.#parts;
    const bodies = this.#routes.get(route) ?? new RouteBodies();
    this.#routes.set(route, bodies);
    const body = new StoredBody(content, clock.monotonic() + retention, this.#memory, () => this.#remove(bodies, body));
    bodies.add(body);
    this.#bytes += body.bytes;
    this.#cancelSweep ??= clock.every(SWEEP_INTERVAL_MS, () => this.#removeExpired());
    while (this.#bytes > maxBytes) this.#evict();
    // After the others have made room, so that no more is allocated than allowed.
    body.store(content.content);
    return body;
  }

  /** Removes half of the bodies: something else needs the memory. */
  shed(): void {
    const kept = this.#bytes / 2;
    while (this.#bytes > kept) this.#evict();
  }

  /** Removes the bodies of a route: its settings have changed. */
  forget(route: string): void {
    for (const body of this.#routes.get(route)?.all ?? []) body.drop('expired');
    this.#routes.delete(route);
  }

  /** Called only while there are bodies. */
  #evict(): void {
    const [largest] = [...this.#routes.values()].sort((a, b) => b.bytes - a.bytes);
    largest?.oldest?.drop('evicted');
    this.#parts.onEvicted();
  }

  #removeExpired(): void {
    const now = this.#parts.clock.monotonic();
    for (const bodies of this.#routes.values())
      for (const body of bodies.all) {
        if (body.expiresAt > now) break;
        body.drop('expired');
      }
  }

  #remove(bodies: RouteBodies, body: StoredBody): void {
    bodies.remove(body);
    this.#bytes -= body.bytes;
    if (this.#bytes > 0) return;
    this.#cancelSweep?.();
    this.#cancelSweep = undefined;
  }
}

/** The bodies of one route, the oldest first. */
class RouteBodies {
  readonly all = new Set<StoredBody>();
  bytes = 0;

  get oldest(): StoredBody | undefined {
    const [oldest] = this.all;
    return oldest;
  }

  add(body: StoredBody): void {
    this.all.add(body);
    this.bytes += body.bytes;
  }

  remove(body: StoredBody): void {
    this.all.delete(body);
    this.bytes -= body.bytes;
  }
}

class StoredBody implements JournalBody {
  readonly isTruncated: boolean;
  readonly redactions: number;
  readonly expiresAt: Milliseconds;
  /** Allocated memory. */
  readonly bytes: number;
  readonly #memory: BlockMemory;
  readonly #onDropped: () => void;
  readonly #length: number;
  #blocks: Blocks = [];
  #absence: BodyAbsence | undefined;

  constructor(
    { content, isTruncated, redactions }: RecordedBody,
    expiresAt: Milliseconds,
    memory: BlockMemory,
    onDropped: () => void,
  ) {
    this.isTruncated = isTruncated;
    this.redactions = redactions;
    this.expiresAt = expiresAt;
    this.bytes = toAllocatedBytes(content.length) + BODY_OVERHEAD_BYTES;
    this.#memory = memory;
    this.#onDropped = onDropped;
    this.#length = content.length;
  }

  /** A copy: the memory of a body is used again. */
  get content(): Buffer | BodyAbsence {
    return this.#absence ?? this.#memory.read(this.#blocks, this.#length);
  }

  /** Does nothing if the body was dropped before, for want of memory. */
  store(content: Buffer): void {
    if (this.#absence === undefined) this.#blocks = this.#memory.write(content);
  }

  release(): void {
    this.drop('evicted');
  }

  drop(absence: BodyAbsence): void {
    if (this.#absence !== undefined) return;
    this.#absence = absence;
    this.#memory.free(this.#blocks);
    this.#blocks = [];
    this.#onDropped();
  }
}

/**
 * Blocks of equal size in a few large segments, which are released when nothing is in them. The allocator of the process would scatter
 * byte strings with different lifetimes among short-lived buffers, whose memory could then not be returned to the system: with 8 MiB of
 * stored bodies it held 45 MiB.
 */
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
