/** Shares requests with the consoles of other replicas, and reads theirs: in batches, at an interval, only while a console is open. */
import * as z from 'zod';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { SharedStreams } from '../../state/shared-streams.ts';
import { isVerified, type Journal, type JournalEntry } from '../../telemetry/journal/journal.ts';
import type { SharedLabel } from '../admin-metrics.ts';
import { WATCH_MS } from './overview.ts';
import { type DeliveryDetail, deliveryDetail } from './schemas.ts';

/** Dependencies of the sharing. */
export interface SharedEntriesParts {
  readonly clock: Clock;
  readonly journal: Pick<Journal, 'find' | 'recorded'>;
  /** Undefined without Redis. */
  readonly shared: SharedStreams | undefined;
  readonly onShared: (outcome: SharedLabel, count: number) => void;
}

/** A request as another replica showed it, without its secrets. */
export interface SharedEntry {
  /** Distinguishes processes on one host. */
  readonly instance: string;
  readonly sequence: number;
  readonly detail: DeliveryDetail;
}

interface KeptEntry extends SharedEntry {
  /** About how long its text was: the average of its batch. */
  readonly length: number;
}

/** Each is a write in Redis. */
const WATCH_INTERVAL_MS: Milliseconds = 5_000;
const RESUMED_AFTER_MS: Milliseconds = 10_000;
/** Of all other replicas. */
const MAX_KEPT = 2_000;
/** Replicas bound their entries, but those of another version may not. */
const MAX_KEPT_CHARACTERS = 4_194_304;
const batch = z.array(z.strictObject({ instance: z.string(), sequence: z.int(), detail: deliveryDetail }));

/** Of one replica at once. */
const MAX_SHARED = 200;
const MAX_BATCH_CHARACTERS = 65_536;
/** About what a usual delivery with many headers needs. */
const MAX_DETAIL_CHARACTERS = 3_072;
const MAX_TEXT_LENGTH = 256;
const MAX_HEADERS_CHARACTERS = 768;
const MAX_FINDINGS_CHARACTERS = 1_024;
/** As where the journal truncates. */
const ELLIPSIS = '...';

interface ReplicaEntries {
  readonly entries: JournalEntry[];
  /** Characters of those that were taken. */
  length: number;
}

interface TakenText {
  readonly sequence: number;
  readonly text: string;
}

/** The requests of other replicas. */
export class SharedEntries {
  readonly #instance: string;
  readonly #parts: SharedEntriesParts;
  /** The newest that were read. */
  #kept: readonly KeptEntry[] = [];
  #received = 0;
  #readUpTo = '0';
  #reading: Promise<readonly SharedEntry[]> | undefined;
  #isAvailable = true;
  #watchedAt: Milliseconds = Number.NEGATIVE_INFINITY;
  /** Number of the last own request that was shared or dropped. */
  #published = 0;
  /** Number of the last own request at the previous turn: the analysis of a rejection takes a moment. */
  #settled = 0;
  #sharedAt: Milliseconds = Number.NEGATIVE_INFINITY;

  constructor(instance: string, parts: SharedEntriesParts) {
    this.#instance = instance;
    this.#parts = parts;
  }

  /** How many requests of other replicas were read since the start. */
  get received(): number {
    return this.#received;
  }

  /** Whether the store responded last time. */
  get isAvailable(): boolean {
    return this.#isAvailable;
  }

  /** Those that were read after the first `count`, as far as they are kept, in the order in which they were read. */
  since(count: number): readonly SharedEntry[] {
    return this.#kept.slice(Math.max(0, this.#kept.length - Math.max(0, this.#received - count)));
  }

  /** Publishes what finished before the previous call. */
  async share(shared: SharedStreams, toDetail: (entry: JournalEntry) => DeliveryDetail): Promise<void> {
    const { clock, journal, onShared } = this.#parts;
    const now = clock.monotonic();
    // Nobody watched meanwhile: share the newest, and do not count the others as dropped.
    const isResumed = now - this.#sharedAt > RESUMED_AFTER_MS;
    this.#sharedAt = now;
    const to = this.#settled;
    const from = isResumed ? Math.max(0, to - MAX_SHARED) : this.#published;
    this.#settled = journal.recorded;
    this.#published = to;
    if (to === from) return;
    const fresh = journal.find({ limit: journal.recorded - from }).filter(({ sequence }) => sequence <= to && sequence > from);
    const texts = selectBatch(fresh, (entry) => {
      const own: SharedEntry = {
        instance: this.#instance,
        sequence: entry.sequence,
        detail: shortenDetail(toDetail(entry)),
      };
      return JSON.stringify(own);
    });
    onShared('dropped', to - from - texts.length);
    // Redis keeps the last batches of all replicas: an empty one would push out another.
    if (texts.length === 0) return;
    try {
      await shared.publish('deliveries', `[${texts.join(',')}]`);
      onShared('sent', texts.length);
    } catch {
      onShared('failed', texts.length);
    }
  }

  /** The requests of other replicas; those that were known before if the store does not respond. */
  async read(): Promise<readonly SharedEntry[]> {
    const { shared } = this.#parts;
    if (shared === undefined) return [];
    // Two reads at once would both add the same requests.
    this.#reading ??= this.#read(shared);
    return this.#reading;
  }

  async #read(shared: SharedStreams): Promise<readonly SharedEntry[]> {
    try {
      await this.#watch(shared);
      for (const { id, text } of await shared.read('deliveries', this.#readUpTo)) {
        this.#readUpTo = id;
        // Publishers write the newest first.
        const entries = parseBatch(text).filter(({ instance }) => instance !== this.#instance);
        this.#kept = takeNewest([...this.#kept, ...entries.toReversed()]);
        this.#received += entries.length;
      }
      this.#isAvailable = true;
    } catch {
      this.#isAvailable = false;
      // It may have lost that a console is open.
      this.#watchedAt = Number.NEGATIVE_INFINITY;
    }
    this.#reading = undefined;
    return this.#kept;
  }

  async #watch(shared: SharedStreams): Promise<void> {
    const now = this.#parts.clock.monotonic();
    if (now - this.#watchedAt < WATCH_INTERVAL_MS) return;
    await shared.watch(WATCH_MS);
    this.#watchedAt = now;
  }
}

/** The newest that may be kept; the oldest first. */
function takeNewest(entries: readonly KeptEntry[]): readonly KeptEntry[] {
  let length = 0;
  const last = entries.findLastIndex((entry, index) => {
    length += entry.length;
    return length > MAX_KEPT_CHARACTERS || index < entries.length - MAX_KEPT;
  });
  return last === -1 ? entries : entries.slice(last + 1);
}

/** Empty if a replica of another version wrote it. */
function parseBatch(text: string): readonly KeptEntry[] {
  try {
    const entries = batch.parse(JSON.parse(text));
    return entries.map((entry) => ({ ...entry, length: text.length / entries.length }));
  } catch {
    return [];
  }
}

/**
 * The texts of the newest entries that fit into a batch, newest first. Verified requests and others get the same space, and either may use what
 * the other does not need: a flood of requests that nobody verified must not push out valid deliveries.
 */
function selectBatch(newestFirst: readonly JournalEntry[], format: (entry: JournalEntry) => string): string[] {
  const groups = [true, false].map(
    (isOf): ReplicaEntries => ({
      entries: newestFirst
        .filter(({ line }) => isVerified(line) === isOf)
        .slice(0, MAX_SHARED)
        .reverse(),
      length: 0,
    }),
  );
  const taken: TakenText[] = [];
  let length = 0;
  while (taken.length < MAX_SHARED) {
    const [group] = groups.filter(({ entries }) => entries.length > 0).sort((a, b) => a.length - b.length);
    const entry = group?.entries.pop();
    if (group === undefined || entry === undefined) break;
    const text = format(entry);
    length += text.length;
    if (length > MAX_BATCH_CHARACTERS) break;
    group.length += text.length;
    taken.push({ sequence: entry.sequence, text });
  }
  return taken.sort((a, b) => b.sequence - a.sequence).map(({ text }) => text);
}

/** Without the rest of its longest texts if it is much longer than a usual one. */
function shortenDetail(full: DeliveryDetail): DeliveryDetail {
  if (JSON.stringify(full).length <= MAX_DETAIL_CHARACTERS) return full;
  const { path, detail, user, certificate, stages, headers, findings, commands } = full;
  const shown = takeFirst(headers, MAX_HEADERS_CHARACTERS);
  return {
    ...full,
    path: cut(path),
    detail: cut(detail),
    user: cut(user),
    certificate: cut(certificate),
    stages: stages.map((stage) => ({ ...stage, detail: cut(stage.detail) })),
    headers: shown.length === headers.length ? shown : [...shown, { name: ELLIPSIS, value: null }],
    findings: takeFirst(findings, MAX_FINDINGS_CHARACTERS),
    // It contains the path and all headers.
    commands: { ...commands, repeat: null },
  };
}

function takeFirst<T>(items: readonly T[], maxCharacters: number): T[] {
  let length = 0;
  const end = items.findIndex((item) => {
    length += JSON.stringify(item).length;
    return length > maxCharacters;
  });
  return items.slice(0, end === -1 ? items.length : end);
}

function cut(text: string | null): string | null {
  return text === null || text.length <= MAX_TEXT_LENGTH ? text : text.slice(0, MAX_TEXT_LENGTH) + ELLIPSIS;
}
