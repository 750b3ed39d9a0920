/** Streams recent deliveries to browsers as server-sent events: read from the journal at an interval, so that requests do nothing for it. */
import type { ServerResponse } from 'node:http';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { onEvent } from '../../core/safe-events.ts';
import type { Journal, JournalEntry } from '../../telemetry/journal/journal.ts';

/** Far fewer than the admin port's connections, so that the kubelet's probes always get one. */
export const MAX_STREAMS = 8;
const FLUSH_INTERVAL_MS: Milliseconds = 250;
/** Shorter than the idle timeouts of proxies. */
const KEEP_ALIVE_MS: Milliseconds = 15_000;
/** Events of one flush; a browser cannot show more. */
const MAX_EVENTS = 500;
/** A client that reads too slowly for so much is disconnected; browsers reconnect and continue. */
const MAX_UNSENT_BYTES = 1_048_576;
const EVENT_ID = /^([0-9a-f]{8})-(\d{1,15})$/;

/** Dependencies of the stream. */
export interface StreamParts {
  readonly clock: Clock;
  readonly journal: Pick<Journal, 'recorded' | 'find'>;
  /** Distinguishes the numbers of this process from those of an earlier one: 8 hexadecimal digits. */
  readonly instance: string;
  /** Returns the function that formats an entry as JSON in one line; called once for all entries of a flush. */
  readonly createFormat: () => (entry: JournalEntry) => string;
  /** A client was disconnected because it read too slowly. */
  readonly onDropped: () => void;
}

interface Client {
  readonly response: ServerResponse;
  readonly isSelected: (entry: JournalEntry) => boolean;
  /** The number of the last entry that was sent or skipped. */
  seen: number;
  writtenAt: Milliseconds;
}

/** The clients of the stream. */
export class DeliveryStream {
  readonly #parts: StreamParts;
  readonly #clients = new Set<Client>();
  #cancel: CancelTimer | undefined;

  constructor(parts: StreamParts) {
    this.#parts = parts;
  }

  get isFull(): boolean {
    return this.#clients.size >= MAX_STREAMS;
  }

  /** Adds a client after its head was written; `lastId`: its Last-Event-ID. */
  open(response: ServerResponse, lastId: string | undefined, isSelected: Client['isSelected']): void {
    const { clock, journal } = this.#parts;
    const seen = this.#toSeen(lastId);
    const client: Client = { response, isSelected, seen: seen ?? journal.recorded, writtenAt: clock.monotonic() };
    // After a restart, numbers start at 1 again: the client must reload the list.
    response.write(lastId !== undefined && seen === undefined ? 'event: reset\ndata: {}\n\n' : ': open\n\n');
    this.#clients.add(client);
    onEvent(response, 'close', () => this.#remove(client));
    this.#cancel ??= clock.every(FLUSH_INTERVAL_MS, () => this.#flush());
  }

  #toSeen(lastId: string | undefined): number | undefined {
    const [, instance, number] = EVENT_ID.exec(lastId ?? '') ?? [];
    return instance === this.#parts.instance ? Math.min(Number(number), this.#parts.journal.recorded) : undefined;
  }

  #remove(client: Client): void {
    this.#clients.delete(client);
    if (this.#clients.size > 0) return;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #flush(): void {
    const { journal } = this.#parts;
    const newest = journal.recorded;
    const missing = Math.max(...[...this.#clients].map(({ seen }) => newest - seen));
    const entries = missing > 0 ? journal.find({ limit: Math.min(missing, MAX_EVENTS) }) : [];
    const format = entries.length > 0 ? remember(this.#parts.createFormat()) : undefined;
    for (const client of this.#clients) this.#send(client, entries, format);
  }

  /** `entries`: the newest first. */
  #send(client: Client, entries: readonly JournalEntry[], format: ((entry: JournalEntry) => string) | undefined): void {
    const { clock, journal, onDropped } = this.#parts;
    const fresh = entries.filter(({ sequence }) => sequence > client.seen);
    const skipped = journal.recorded - client.seen - fresh.length;
    client.seen = journal.recorded;
    const events = fresh
      .toReversed()
      .flatMap((entry) => (format !== undefined && client.isSelected(entry) ? [this.#toEvent(entry, format(entry))] : []));
    if (skipped > 0) events.unshift(`event: gap\ndata: {"skipped":${skipped}}\n\n`);
    const now = clock.monotonic();
    if (events.length === 0 && now - client.writtenAt < KEEP_ALIVE_MS) return;
    client.writtenAt = now;
    client.response.write(events.length === 0 ? ': keep-alive\n\n' : events.join(''));
    if (client.response.writableLength <= MAX_UNSENT_BYTES) return;
    onDropped();
    client.response.destroy();
  }

  #toEvent({ sequence }: JournalEntry, text: string): string {
    return `id: ${this.#parts.instance}-${sequence}\ndata: ${text}\n\n`;
  }
}

/** Formats each entry once, for all clients. */
function remember(format: (entry: JournalEntry) => string): (entry: JournalEntry) => string {
  const texts = new Map<JournalEntry, string>();
  return (entry) => {
    const text = texts.get(entry) ?? format(entry);
    texts.set(entry, text);
    return text;
  };
}
