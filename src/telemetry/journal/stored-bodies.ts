/** The bodies that the journal stores: in memory only, for a limited time, within a number of bytes. */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { BlockMemory, type Blocks, toAllocatedBytes } from './block-memory.ts';
import type { BodyAbsence, JournalBody } from './journal.ts';

/** Memory of a body besides its content. */
export const BODY_OVERHEAD_BYTES = 512;
const SWEEP_INTERVAL_MS: Milliseconds = 1_000;

/** The dependencies of the bodies. */
interface StoredBodiesParts {
  readonly clock: Clock;
  /** For all bodies, counted as allocated. */
  readonly maxBytes: number;
  /** A body was removed before its time, because newer ones needed the memory. */
  readonly onEvicted: () => void;
}

/** The stored part of one body. */
export interface RecordedBody {
  /** It is copied. */
  readonly content: Buffer;
  readonly isTruncated: boolean;
  readonly redactions: number;
}

/** The bodies of all routes. If they need too much memory, the oldest of the route that has most are removed: a busy route must not push out the others. */
export class StoredBodies {
  readonly #parts: StoredBodiesParts;
  readonly #routes = new Map<string, RouteBodies>();
  readonly #memory = new BlockMemory();
  #bytes = 0;
  #cancelSweep: CancelTimer | undefined;

  constructor(parts: StoredBodiesParts) {
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
