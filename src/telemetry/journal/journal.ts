/** The most recent requests: the same lines as in the log and what the console shows besides, kept in memory in a bounded ring buffer. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { RequestLine } from '../log/logger.ts';
import { Ring } from './ring.ts';

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
  /** Characters of memory that `path` keeps alive. */
  readonly targetLength: number;
  /** One field per line: its name and, unless the value is hidden, a tab and the value. */
  readonly headers: string;
  /** The time that the sender signed. Without `key` in the line, no signature verified it. */
  readonly signedAt: EpochMilliseconds | undefined;
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
export interface JournalLimits {
  /** How many entries are kept; 0 keeps none. */
  readonly size: number;
  /** Memory for all entries. */
  readonly maxBytes: number;
}

/** Explanations derive from untrusted requests, so their size is bounded. */
const MAX_EXPLANATION_LINES = 20;
const MAX_EXPLANATION_LINE_LENGTH = 500;
/** Memory of an entry without its texts of variable length: more than the 0.6 KiB that an entry of a typical delivery takes. */
const ENTRY_BYTES = 1_024;

/** The parts of an entry that are recorded at once. */
export type Decision = Pick<JournalEntry, 'at' | 'line' | 'details'>;

interface Recorded extends Decision {
  bytes: number;
  explanation: readonly string[] | undefined;
}

/** The journal. Adding a decision allocates one small object, because every request does it; texts are formatted when they are asked for. */
export class Journal {
  readonly #entries: Ring<Recorded>;
  readonly #maxBytes: number;
  #bytes = 0;
  #recorded = 0;

  constructor({ size, maxBytes }: JournalLimits) {
    this.#entries = new Ring(size);
    this.#maxBytes = maxBytes;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** How many decisions are kept now. */
  get length(): number {
    return this.#entries.length;
  }

  /** Memory of the entries. */
  get bytes(): number {
    return this.#bytes;
  }

  /** How many decisions were recorded since the start, including those no longer kept. */
  get recorded(): number {
    return this.#recorded;
  }

  /** Replaces the oldest decision. Neither object is copied: the caller must not change them later. */
  add(at: EpochMilliseconds, line: RequestLine, details?: RequestDetails): void {
    const { size, length } = this.#entries;
    if (size === 0) return;
    if (length === size) this.#forgetOldest();
    const bytes = toBytes(line, details);
    this.#entries.add({ at, line, details, bytes, explanation: undefined });
    this.#bytes += bytes;
    this.#recorded++;
    this.#keepWithinBytes();
  }

  /** Adds an explanation to a decision; returns false if the journal no longer has it. */
  explain(requestId: string, explanation: readonly string[]): boolean {
    for (let age = 1; age <= this.#entries.length; age++) {
      const entry = this.#entries.at(age);
      if (entry.line.requestId !== requestId) continue;
      const lines = explanation.slice(0, MAX_EXPLANATION_LINES).map((text) => text.slice(0, MAX_EXPLANATION_LINE_LENGTH));
      const bytes = 2 * lines.join('').length;
      entry.explanation = lines;
      entry.bytes += bytes;
      this.#bytes += bytes;
      this.#keepWithinBytes();
      return true;
    }
    return false;
  }

  /** Removes all decisions, which another journal is to keep, and returns them with the oldest first. */
  takeAll(): Decision[] {
    const taken: Decision[] = [];
    for (let age = this.#entries.length; age >= 1; age--) {
      const { at, line, details } = this.#entries.at(age);
      taken.push({ at, line, details });
    }
    while (this.#entries.length > 0) this.#forgetOldest();
    return taken;
  }

  /** The matching entries, newest first. */
  find(query: JournalQuery): JournalEntry[] {
    const found: JournalEntry[] = [];
    for (let age = 1; age <= this.#entries.length && found.length < query.limit; age++) {
      const entry = this.#entries.at(age);
      if (isMatch(entry.line, query)) found.push({ ...entry, sequence: this.#recorded - age + 1 });
    }
    return found;
  }

  /** The newest stays, so that at least one entry explains what takes so much memory. */
  #keepWithinBytes(): void {
    while (this.#bytes > this.#maxBytes && this.#entries.length > 1) this.#forgetOldest();
  }

  #forgetOldest(): void {
    const { bytes, details } = this.#entries.takeOldest();
    this.#bytes -= bytes;
    details?.body?.release();
  }
}

/** Two bytes per character, except of texts that node:http reads as Latin-1. */
function toBytes({ detail, webhookId, user, certificate, key }: RequestLine, details: RequestDetails | undefined): number {
  const texts = toLength(detail) + toLength(webhookId) + toLength(user) + toLength(certificate) + toLength(key);
  return ENTRY_BYTES + 2 * texts + (details === undefined ? 0 : details.headers.length + details.targetLength);
}

function toLength(text: string | undefined): number {
  return text === undefined ? 0 : text.length;
}

function isMatch(line: RequestLine, { route, code, reason, requestId }: JournalQuery): boolean {
  return (
    (route === undefined || (line.route ?? null) === route) &&
    (code === undefined || line.code === code) &&
    (reason === undefined || line.reason === reason) &&
    (requestId === undefined || line.requestId === requestId)
  );
}
