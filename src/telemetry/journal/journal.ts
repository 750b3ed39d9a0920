/** The most recent requests: the same lines as in the log and what the console shows besides, kept in memory in a bounded ring buffer. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { StageName } from '../../core/refusal.ts';
import type { RequestLine } from '../log/logger.ts';

/** Why the body of a request is not stored, on a route that stores bodies. */
export const BODY_ABSENCES = [
  'not_verified',
  'not_forwarded',
  'too_large',
  'not_json',
  'not_text',
  'has_secret',
  'memory_low',
  'evicted',
  'expired',
] as const;
export type BodyAbsence = (typeof BODY_ABSENCES)[number];

/** A stored body; its content can become absent later. */
export interface JournalBody {
  /** Text in UTF-8, or why there is none. */
  readonly content: Buffer | BodyAbsence;
  /** Only the beginning is stored. */
  readonly isTruncated: boolean;
  /** How many values were replaced. */
  readonly redactions: number;
  /** The journal no longer has the request. */
  release(): void;
}

/** The details of a request that the log does not contain. */
export interface RequestDetails {
  /** Without the query, which may contain credentials; undefined if the head was rejected. */
  readonly path: string | undefined;
  /** One field per line: its name and, unless the value is hidden, a tab and the value. */
  readonly headers: string;
  /** The time that the sender signed. Without `key` in the line, no signature verified it. */
  readonly signedAt: EpochMilliseconds | undefined;
  /** The stage that stopped it, or would have without observe mode; undefined if none did. */
  readonly stoppedAt: StageName | undefined;
  /** The ID of the event in the queue, if that stored the request for the app. */
  readonly queuedAs: string | undefined;
  /** The ID was claimed, so no other request forwards the same event. */
  readonly isClaimed: boolean;
  /** Size of the app's response body. */
  readonly bytesOut: number | undefined;
  /** Undefined if the route stores no bodies. */
  readonly body: JournalBody | undefined;
}

/** One decision. */
export interface JournalEntry {
  /** When the request arrived. */
  readonly at: EpochMilliseconds;
  /** 1 is the first since the start. */
  readonly sequence: number;
  readonly line: RequestLine;
  readonly details: RequestDetails | undefined;
  /** The result of a later analysis of the rejection. */
  readonly explanation: readonly string[] | undefined;
}

/** A filter for entries; omitted fields match everything. */
export interface JournalQuery {
  /** null: requests that matched no route. */
  readonly route?: string | null;
  readonly code?: string;
  readonly reason?: string;
  readonly requestId?: string;
  readonly limit: number;
}

/** The bounds of the journal. */
interface JournalLimits {
  /** How many entries are kept; 0 keeps none. */
  readonly size: number;
  /** Memory for all entries. */
  readonly maxBytes: number;
}

/** Explanations derive from untrusted requests, so their size is bounded. */
const MAX_EXPLANATION_LINES = 20;
const MAX_EXPLANATION_LINE_LENGTH = 500;
/** Memory of an entry besides its texts: its place in the ring, and its share of memory that is not used. */
const ENTRY_BYTES = 128;

/** The parts of an entry that are recorded at once. */
export type RecordedDecision = Pick<JournalEntry, 'at' | 'line' | 'details'>;

/** Data that few entries have. */
interface Extra {
  explanation?: readonly string[];
  explanationBytes?: number;
  readonly body?: JournalBody;
}

/** Whether the request had credentials that were accepted; other clients can cause any number of entries. */
export function isVerified({ key, user, certificate, observed }: RequestLine): boolean {
  return observed === undefined && (key ?? user ?? certificate) !== undefined;
}

/**
 * The journal. Every request adds a decision, so adding one leaves no objects behind; an entry is read only when somebody asks for it. Verified
 * requests and all others have half of it each, and what the other half leaves free: an untrusted client must not push out what was accepted.
 */
export class Journal {
  readonly #verified: DecisionRing;
  readonly #others: DecisionRing;
  readonly #maxBytes: number;
  /** By sequence. */
  readonly #extras = new Map<number, Extra>();
  #recorded = 0;

  constructor({ size, maxBytes }: JournalLimits) {
    this.#verified = new DecisionRing(size);
    this.#others = new DecisionRing(size);
    this.#maxBytes = maxBytes;
  }

  get size(): number {
    return this.#verified.size;
  }

  /** How many decisions are kept now. */
  get length(): number {
    return this.#verified.length + this.#others.length;
  }

  /** Memory of the entries. */
  get bytes(): number {
    return this.#verified.bytes + this.#others.bytes;
  }

  /** How many decisions were recorded since the start, including those no longer kept. */
  get recorded(): number {
    return this.#recorded;
  }

  /** Replaces the oldest decision of the half that has too many. `text`: the line in JSON, if the caller has it already. */
  add(at: EpochMilliseconds, line: RequestLine, details?: RequestDetails, text = JSON.stringify(line)): void {
    if (this.size === 0) return;
    if (this.length === this.size) this.#forgetOldest('length');
    this.#recorded++;
    const ring = isVerified(line) ? this.#verified : this.#others;
    ring.add(details === undefined ? text : text + formatDetails(details), at, this.#recorded);
    if (details?.body !== undefined) this.#extras.set(this.#recorded, { body: details.body });
    this.#keepWithinBytes();
  }

  /** Adds an explanation to a decision; returns false if the journal no longer has it. */
  explain(requestId: string, explanation: readonly string[]): boolean {
    for (const { ring, text, sequence } of this.#list()) {
      if (!text.includes(requestId) || parseLine(text).requestId !== requestId) continue;
      const lines = explanation.slice(0, MAX_EXPLANATION_LINES).map((each) => each.slice(0, MAX_EXPLANATION_LINE_LENGTH));
      const explanationBytes = 2 * lines.join('').length;
      const extra = this.#extras.get(sequence);
      this.#extras.set(sequence, { ...extra, explanation: lines, explanationBytes });
      ring.bytes += explanationBytes - (extra?.explanationBytes ?? 0);
      this.#keepWithinBytes();
      return true;
    }
    return false;
  }

  /** Removes all decisions, which another journal is to keep, and returns them with the oldest first. */
  takeAll(): RecordedDecision[] {
    const taken = this.find({ limit: this.length }).map(({ at, line, details }) => ({ at, line, details }));
    while (this.length > 0) this.#forgetOldest('length');
    return taken.reverse();
  }

  /** The matching entries, newest first. */
  find(query: JournalQuery): JournalEntry[] {
    const found: JournalEntry[] = [];
    if (query.limit <= 0) return found;
    for (const { text, at, sequence } of this.#list()) {
      const line = parseLine(text);
      if (!isMatch(line, query)) continue;
      const { explanation, body } = this.#extras.get(sequence) ?? {};
      found.push({ at, sequence, line, details: parseDetails(text, body), explanation });
      if (found.length >= query.limit) break;
    }
    return found;
  }

  /** All decisions, newest first. */
  *#list() {
    const ages = [1, 1] as [number, number];
    for (let left = this.length; left > 0; left--) {
      const isOther = this.#others.sequenceAt(ages[1]) > this.#verified.sequenceAt(ages[0]);
      const ring = isOther ? this.#others : this.#verified;
      const age = ages[isOther ? 1 : 0]++;
      yield { ring, text: ring.at(age), at: ring.timeAt(age), sequence: ring.sequenceAt(age) };
    }
  }

  /** The newest stays, so that at least one entry explains what takes so much memory. */
  #keepWithinBytes(): void {
    while (this.bytes > this.#maxBytes && this.length > 1) this.#forgetOldest('bytes');
  }

  #forgetOldest(measure: 'length' | 'bytes'): void {
    const [verified, others] = [this.#verified, this.#others];
    const larger = verified[measure] > others[measure] ? verified : others;
    const isNewest = larger.sequenceAt(larger.length) === this.#recorded && this.length > 1;
    const ring = isNewest ? (larger === verified ? others : verified) : larger;
    const sequence = ring.sequenceAt(ring.length);
    ring.removeOldest();
    const extra = this.#extras.get(sequence);
    if (extra === undefined) return;
    this.#extras.delete(sequence);
    ring.bytes -= extra.explanationBytes ?? 0;
    extra.body?.release();
  }
}

/** The decisions of one half. By age: 1 is the newest, `length` the oldest. */
class DecisionRing {
  readonly #texts: TextRing;
  readonly #times: Float64Array;
  readonly #sequences: Float64Array;
  #added = 0;
  /** Memory of the entries. */
  bytes = 0;

  constructor(size: number) {
    this.#texts = new TextRing(size);
    this.#times = new Float64Array(size);
    this.#sequences = new Float64Array(size);
  }

  get size(): number {
    return this.#texts.size;
  }

  get length(): number {
    return this.#texts.length;
  }

  add(text: string, at: EpochMilliseconds, sequence: number): void {
    const place = this.#added++ % this.size;
    this.#times[place] = at;
    this.#sequences[place] = sequence;
    this.bytes += this.#texts.add(text) + ENTRY_BYTES;
  }

  removeOldest(): void {
    this.bytes -= this.#texts.removeOldest() + ENTRY_BYTES;
  }

  at(age: number): string {
    return this.#texts.at(age);
  }

  timeAt(age: number): EpochMilliseconds {
    return this.#times[(this.#added - age) % this.size] as EpochMilliseconds;
  }

  /** 0 if there are fewer decisions. */
  sequenceAt(age: number): number {
    return age > this.length ? 0 : (this.#sequences[(this.#added - age) % this.size] as number);
  }
}

/** JSON has no line break, so the first one ends the line of the log; the second one ends the short values. The path and the headers follow. */
function formatDetails({ path, headers, signedAt, stoppedAt, queuedAs, isClaimed, bytesOut }: RequestDetails): string {
  const values = `${signedAt ?? ''},${isClaimed ? 1 : ''},${bytesOut ?? ''},${path?.length ?? ''},${stoppedAt ?? ''},${queuedAs ?? ''}`;
  return `\n${values}\n${path ?? ''}${headers}`;
}

function parseLine(text: string): RequestLine {
  const end = text.indexOf('\n');
  return JSON.parse(end === -1 ? text : text.slice(0, end)) as RequestLine;
}

function parseDetails(text: string, body: JournalBody | undefined): RequestDetails | undefined {
  const end = text.indexOf('\n');
  if (end === -1) return undefined;
  const valuesEnd = text.indexOf('\n', end + 1);
  const values = text.slice(end + 1, valuesEnd).split(',');
  const [signedAt = '', isClaimed, bytesOut = '', pathLength = '', stoppedAt = '', queuedAs = ''] = values;
  const pathEnd = valuesEnd + 1 + Number(pathLength);
  return {
    path: pathLength === '' ? undefined : text.slice(valuesEnd + 1, pathEnd),
    headers: text.slice(pathEnd),
    signedAt: toNumber(signedAt),
    stoppedAt: stoppedAt === '' ? undefined : (stoppedAt as StageName),
    queuedAs: queuedAs === '' ? undefined : queuedAs,
    isClaimed: isClaimed === '1',
    bytesOut: toNumber(bytesOut),
    body,
  };
}

function toNumber(text: string): number | undefined {
  return text === '' ? undefined : Number(text);
}

function isMatch(line: RequestLine, { route, code, reason, requestId }: JournalQuery): boolean {
  return (
    (route === undefined || (line.route ?? null) === route) &&
    (code === undefined || line.code === code) &&
    (reason === undefined || line.reason === reason) &&
    (requestId === undefined || line.requestId === requestId)
  );
}

const SEGMENT_BYTES = 65_536;
/** The most bytes of UTF-8 for a code unit of UTF-16. */
const MAX_BYTES_PER_UNIT = 3;

interface Segment {
  readonly memory: Buffer;
  used: number;
  /** How many of its texts are still kept. */
  kept: number;
}

/**
 * A ring buffer of a fixed number of texts, as UTF-8 outside the heap of JavaScript. Objects that each request adds, and that live for many
 * requests, would be moved by every garbage collection: 5 µs for each delivery (bench/builds.ts). Remove the oldest before another one would
 * exceed the size.
 */
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
