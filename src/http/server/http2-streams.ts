/** Limits the unfinished streams of all HTTP/2 connections of a port. */
import type { ServerHttp2Stream } from 'node:http2';
import type { Milliseconds } from '../../core/clock.ts';
import { type ListElement, UnorderedList } from '../../core/collections.ts';
import { onceEvent } from '../../core/safe-events.ts';
import { EVICTED_SHARE, type Holder, pickVictims } from './body-budget.ts';
import type { TrackedResponse, Upload } from './connection-limiter.ts';
import type { OnLimit } from './limits.ts';
import type { MemoryPressure } from './memory-guard.ts';

/** A stream with its request and response. */
interface StreamParts {
  readonly stream: ServerHttp2Stream;
  readonly source: Upload;
  readonly body: Pick<Holder, 'network'>;
  readonly response: TrackedResponse;
  /** The size of the fields as RFC 9113 §6.5.2 counts it. */
  readonly headBytes: number;
  readonly fieldLines: number;
}

type StreamMemory = Pick<MemoryPressure, 'isTight' | 'onBytes' | 'onGarbage'>;

class UnfinishedStream implements Holder, ListElement {
  readonly startedAt: Milliseconds;
  readonly parts: StreamParts;
  readonly bytes: number;
  listIndex: number | undefined;

  constructor(startedAt: Milliseconds, parts: StreamParts) {
    this.startedAt = startedAt;
    this.parts = parts;
    this.bytes = STREAM_BYTES + parts.headBytes + parts.fieldLines * FIELD_BYTES;
  }

  get network(): string {
    return this.parts.body.network;
  }

  /** Nothing unless the stream waits for its client: to take the end of the response, or to send the rest of the body. Other streams are not ended. */
  get held(): number {
    const { source, response } = this.parts;
    return response.writableEnded || (source.declaredLength !== 0 && !source.isComplete) ? this.bytes : 0;
  }
}

/** The memory of a stream with its request and response, without the fields. */
const STREAM_BYTES = 8 * 1024;
/** The memory of a field in addition to its name and value. */
const FIELD_BYTES = 256;
/** The share of the streams that are kept while memory is tight. */
const KEPT_WHILE_TIGHT = 1 / 8;

/**
 * Each stream takes kilobytes of the heap. A connection can have 100 of them, and a client that takes no response keeps each until
 * `sendTimeout`, also those that were rejected, which no limit on requests counts. In HTTP/1.1, the limit on connections is enough.
 */
export class Http2Streams {
  readonly #max: number;
  readonly #memory: StreamMemory;
  readonly #onLimit: OnLimit;
  readonly #streams = new UnorderedList<UnfinishedStream>();
  #count = 0;
  #bytes = 0;

  constructor(max: number, memory: StreamMemory, onLimit: OnLimit) {
    this.#max = max;
    this.#memory = memory;
    this.#onLimit = onLimit;
  }

  /**
   * Adds a stream. If there are too many, or their heads are too large, ends the oldest of the client that keeps most waiting. Returns false if
   * there are too many, and none of them waits.
   */
  add(parts: StreamParts, now: Milliseconds): boolean {
    const added = new UnfinishedStream(now, parts);
    this.#memory.onBytes(added.bytes);
    const max = this.#memory.isTight ? this.#max * KEPT_WHILE_TIGHT : this.#max;
    const isFull = this.#count >= max;
    if ((isFull || this.#bytes >= max * STREAM_BYTES) && !this.#evict() && isFull) return false;
    this.#streams.add(added);
    this.#count++;
    this.#bytes += added.bytes;
    onceEvent(parts.stream, 'close', () => this.#remove(added));
    return true;
  }

  #evict(): boolean {
    const victims = pickVictims([...this.#streams], this.#max * STREAM_BYTES * EVICTED_SHARE, Number.POSITIVE_INFINITY);
    for (const victim of victims) {
      this.#remove(victim);
      victim.parts.response.destroy();
      this.#memory.onGarbage(victim.bytes);
    }
    this.#onLimit('client_requests');
    return victims.length > 0;
  }

  #remove(stream: UnfinishedStream): void {
    if (stream.listIndex === undefined) return;
    this.#streams.remove(stream);
    this.#count--;
    this.#bytes -= stream.bytes;
  }
}
