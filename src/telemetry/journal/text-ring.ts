/**
 * Keeps texts in the order in which they were added, as UTF-8 outside the heap of JavaScript. Objects that each request adds, and that live
 * for many requests, would be moved by every garbage collection: 5 µs for each delivery (bench/builds.ts).
 */

const SEGMENT_BYTES = 65_536;
/** The most bytes of UTF-8 for a code unit of UTF-16. */
const MAX_BYTES_PER_UNIT = 3;

interface Segment {
  readonly memory: Buffer;
  used: number;
  /** How many of its texts are still kept. */
  kept: number;
}

/** A ring buffer of a fixed number of texts. Remove the oldest before another one would exceed the size. */
export class TextRing {
  readonly size: number;
  /** Where each text is. */
  readonly #segments: (Segment | undefined)[] = [];
  readonly #starts: Uint32Array;
  readonly #ends: Uint32Array;
  #newest: Segment | undefined;
  /** The last segment that became free, for the next one. */
  #spare: Segment | undefined;
  #next = 0;
  #length = 0;

  /** `size`: the maximum number of texts. */
  constructor(size: number) {
    this.size = size;
    this.#starts = new Uint32Array(size);
    this.#ends = new Uint32Array(size);
  }

  /** How many texts are kept now. */
  get length(): number {
    return this.#length;
  }

  /** Adds a text, and returns its size in bytes. */
  add(text: string): number {
    const segment = this.#toSegment(text.length * MAX_BYTES_PER_UNIT);
    const start = segment.used;
    const bytes = segment.memory.write(text, start);
    const place = this.#next;
    this.#segments[place] = segment;
    this.#starts[place] = start;
    this.#ends[place] = start + bytes;
    segment.used += bytes;
    segment.kept++;
    this.#next = place + 1 === this.size ? 0 : place + 1;
    this.#length++;
    return bytes;
  }

  /** Removes the oldest text, and returns its size in bytes. Call it only if there are texts. */
  removeOldest(): number {
    const place = this.#toPlace(this.#length);
    const segment = this.#segments[place] as Segment;
    this.#segments[place] = undefined;
    this.#length--;
    segment.kept--;
    if (segment.kept === 0) this.#free(segment);
    return (this.#ends[place] as number) - (this.#starts[place] as number);
  }

  /** The text of this age: 1 is the newest, `length` the oldest. */
  at(age: number): string {
    const place = this.#toPlace(age);
    return (this.#segments[place] as Segment).memory.toString('utf8', this.#starts[place], this.#ends[place]);
  }

  #toSegment(bytes: number): Segment {
    const newest = this.#newest;
    if (newest !== undefined && newest.used + bytes <= newest.memory.length) return newest;
    const spare = this.#spare;
    this.#spare = undefined;
    const isSpareEnough = spare !== undefined && bytes <= spare.memory.length;
    this.#newest = isSpareEnough ? spare : allocate(Math.max(bytes, SEGMENT_BYTES));
    return this.#newest;
  }

  #free(segment: Segment): void {
    segment.used = 0;
    // A segment for one long text is not kept.
    if (segment !== this.#newest && segment.memory.length === SEGMENT_BYTES) this.#spare = segment;
  }

  #toPlace(age: number): number {
    const place = this.#next - age;
    return place < 0 ? place + this.size : place;
  }
}

function allocate(bytes: number): Segment {
  return { memory: Buffer.allocUnsafeSlow(bytes), used: 0, kept: 0 };
}
