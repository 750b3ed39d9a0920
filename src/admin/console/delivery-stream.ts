/** Streams recent deliveries to browsers as server-sent events: read from the journal at an interval, so that requests do nothing for it. */
import type { ServerResponse } from 'node:http';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { type PauseOwner, pauseUntilDrained } from '../../core/reading.ts';
import { onEvent, runDetached } from '../../core/safe-events.ts';
import type { Journal } from '../../telemetry/journal/journal.ts';
import { redactView, type ViewContext } from './delivery-view.ts';
import { type Row, toOwnRow, toSharedRow } from './recent-deliveries.ts';
import type { SharedEntries } from './shared-entries.ts';

/** Far fewer than the admin port's connections, so that the kubelet's probes always get one. */
export const MAX_STREAMS = 8;
/** Often enough to look live; each flush costs the gate CPU. */
const FLUSH_INTERVAL_MS: Milliseconds = 500;
/** Requests of other replicas, while clients are connected. */
const READ_INTERVAL_MS: Milliseconds = 1_000;
/** Shorter than the idle timeouts of proxies. */
const KEEP_ALIVE_MS: Milliseconds = 15_000;
/** Events of one flush and one source; a browser cannot show more. Each has up to 8 KiB. */
const MAX_EVENTS = 100;
/** A client that has not read a flush for so long is disconnected; browsers reconnect and continue. */
const SEND_TIMEOUT_MS: Milliseconds = 30_000;
/** The numbers of the last own request and, with Redis, of the last one of other replicas. */
const EVENT_ID = /^([0-9a-f]{8})-(\d{1,15})(?:-(\d{1,15}))?$/;

/** Whether a client's filters select a row. */
type IsSelected = (row: Row) => boolean;

/** Whether the token is still the one of the config, or the user still has the password. */
type IsAuthorized = () => boolean;

interface StreamClient extends StreamRequest {
  readonly response: ServerResponse;
  /** The number of the last own request that was sent or skipped. */
  seen: number;
  /** The same for requests of other replicas; undefined until those that the list has are read. */
  seenShared: number | undefined;
  /** Whether requests of other replicas are missing, as far as the client knows. */
  isMissingShared: boolean;
  writtenAt: Milliseconds;
}

/** The request of a client for the stream. */
interface StreamRequest {
  readonly owner: PauseOwner;
  readonly isSelected: IsSelected;
  readonly isAuthorized: IsAuthorized;
}

/** The requests of this replica, or of the others, that clients may not have seen. */
interface RowSource {
  /** The number of the last request. */
  readonly newest: number;
  /** The oldest first. */
  readonly arrivals: readonly NumberedRow[];
}

interface NumberedRow {
  readonly number: number;
  readonly row: Row;
}

/** The clients of the stream. */
export class DeliveryStream {
  readonly #parts;
  readonly #clients = new Set<StreamClient>();
  #timers: readonly CancelTimer[] = [];

  constructor(parts: {
    readonly clock: Clock;
    readonly journal: Pick<Journal, 'recorded' | 'find'>;
    /** Requests of other replicas; undefined without Redis. */
    readonly shared: Pick<SharedEntries, 'read' | 'since' | 'received' | 'isAvailable'> | undefined;
    /** Distinguishes the numbers of this process from those of an earlier one: 8 hexadecimal digits. */
    readonly instance: string;
    /** Called once for all rows of a flush. */
    readonly context: () => ViewContext;
    /** A client was disconnected because it read too slowly. */
    readonly onDropped: () => void;
  }) {
    this.#parts = parts;
  }

  get isFull(): boolean {
    return this.#clients.size >= MAX_STREAMS;
  }

  /** Adds a client after its head was written; `lastId`: its Last-Event-ID. */
  open(response: ServerResponse, lastId: string | undefined, request: StreamRequest): void {
    // Its client left while its password was checked: no `close` would remove it, so it would count as connected forever.
    if (response.destroyed) return;
    // Passwords of several clients were checked at once.
    if (this.isFull) {
      response.end();
      return;
    }
    const { clock, journal, shared } = this.#parts;
    const seen = this.#toSeen(lastId);
    // After a restart, numbers start at 1 again: the client must reload the list.
    response.write(lastId !== undefined && seen === undefined ? 'event: reset\ndata: {}\n\n' : ': open\n\n');
    const start = seen ?? { seen: journal.recorded, seenShared: undefined };
    const client: StreamClient = { ...request, response, ...start, isMissingShared: false, writtenAt: clock.monotonic() };
    this.#clients.add(client);
    onEvent(response, 'close', () => this.#remove(client));
    if (shared !== undefined) runDetached(this.#readShared(shared));
    if (this.#timers.length === 0) this.#timers = this.#start();
  }

  #toSeen(lastId: string | undefined): Pick<StreamClient, 'seen' | 'seenShared'> | undefined {
    const { instance, journal, shared } = this.#parts;
    const [, given, own, ofOthers] = EVENT_ID.exec(lastId ?? '') ?? [];
    if (given !== instance) return undefined;
    const seenShared = ofOthers === undefined || shared === undefined ? undefined : Math.min(Number(ofOthers), shared.received);
    return { seen: Math.min(Number(own), journal.recorded), seenShared };
  }

  #start(): CancelTimer[] {
    const { clock, shared } = this.#parts;
    const flushing = clock.every(FLUSH_INTERVAL_MS, () => this.#flush());
    if (shared === undefined) return [flushing];
    return [flushing, clock.every(READ_INTERVAL_MS, () => runDetached(this.#readShared(shared)))];
  }

  #remove(client: StreamClient): void {
    this.#clients.delete(client);
    if (this.#clients.size > 0) return;
    for (const cancel of this.#timers) cancel();
    this.#timers = [];
  }

  /** New clients get only what arrives from now on: the list has all that is read now. */
  async #readShared(shared: Pick<SharedEntries, 'read' | 'received' | 'isAvailable'>): Promise<void> {
    await shared.read();
    if (!shared.isAvailable) return;
    for (const client of this.#clients) client.seenShared ??= shared.received;
  }

  #flush(): void {
    let known: ViewContext | undefined;
    const context = (): ViewContext => (known ??= this.#parts.context());
    // The token was rotated, or the user removed: new requests are rejected, and a stream may last for days.
    for (const { response, isAuthorized } of this.#clients) if (!isAuthorized()) response.destroy();
    // The others get what they missed, or how much it was, once they have read the last flush.
    const ready = [...this.#clients].filter(({ response }) => !response.destroyed && !response.writableNeedDrain);
    const own = this.#listOwn(ready, context);
    const shared = this.#listShared(ready);
    const format = remember(({ view }) => JSON.stringify(redactView(view, context().redact)));
    for (const client of ready) this.#send(client, own, shared, format);
  }

  #listOwn(clients: readonly StreamClient[], context: () => ViewContext): RowSource {
    const { journal } = this.#parts;
    const newest = journal.recorded;
    const missing = Math.max(...clients.map(({ seen }) => newest - seen));
    const entries = missing > 0 ? journal.find({ limit: Math.min(missing, MAX_EVENTS) }) : [];
    return {
      newest,
      arrivals: entries.toReversed().map((entry) => ({ number: entry.sequence, row: toOwnRow(entry, context()) })),
    };
  }

  #listShared(clients: readonly StreamClient[]): RowSource {
    const { shared } = this.#parts;
    if (shared === undefined) return { newest: 0, arrivals: [] };
    const newest = shared.received;
    const oldest = Math.min(newest, ...clients.flatMap(({ seenShared }) => seenShared ?? []));
    const entries = shared.since(Math.max(oldest, newest - MAX_EVENTS));
    const first = newest - entries.length + 1;
    return { newest, arrivals: entries.map((entry, index) => ({ number: first + index, row: toSharedRow(entry) })) };
  }

  #send(client: StreamClient, own: RowSource, shared: RowSource, format: (row: Row) => string): void {
    const { seen, seenShared, isSelected } = client;
    const ownFresh = own.arrivals.filter(({ number }) => number > seen);
    const sharedFresh = seenShared === undefined ? [] : shared.arrivals.filter(({ number }) => number > seenShared);
    const skipped = own.newest - seen + (seenShared === undefined ? 0 : shared.newest - seenShared);
    client.seen = own.newest;
    if (seenShared !== undefined) client.seenShared = shared.newest;
    const gap = skipped - ownFresh.length - sharedFresh.length;
    const toEvent = (position: readonly (number | undefined)[], row: Row): string[] =>
      isSelected(row) ? [this.#toEvent(position, format(row))] : [];
    this.#write(client, [
      ...(gap > 0 ? [`event: gap\ndata: {"skipped":${gap}}\n\n`] : []),
      ...ownFresh.flatMap(({ number, row }) => toEvent([number, seenShared], row)),
      ...sharedFresh.flatMap(({ number, row }) => toEvent([own.newest, number], row)),
      ...this.#toAvailability(client),
    ]);
  }

  #toAvailability(client: StreamClient): string[] {
    const { shared } = this.#parts;
    if (shared === undefined || client.isMissingShared === !shared.isAvailable) return [];
    client.isMissingShared = !shared.isAvailable;
    return [`event: replicas\ndata: {"isAvailable":${shared.isAvailable}}\n\n`];
  }

  #write(client: StreamClient, events: readonly string[]): void {
    const { clock, onDropped } = this.#parts;
    const now = clock.monotonic();
    if (events.length === 0 && now - client.writtenAt < KEEP_ALIVE_MS) return;
    client.writtenAt = now;
    const { response } = client;
    const isTaken = response.write(events.length === 0 ? ': keep-alive\n\n' : events.join(''));
    if (isTaken) return;
    pauseUntilDrained(response, client.owner, SEND_TIMEOUT_MS, () => {
      onDropped();
      response.destroy();
    });
  }

  #toEvent(position: readonly (number | undefined)[], text: string): string {
    const id = [this.#parts.instance, ...position.filter((number) => number !== undefined)].join('-');
    return `id: ${id}\ndata: ${text}\n\n`;
  }
}

/** Formats each row once, for all clients. */
function remember(format: (row: Row) => string): (row: Row) => string {
  const texts = new Map<Row, string>();
  return (row) => {
    const text = texts.get(row) ?? format(row);
    texts.set(row, text);
    return text;
  };
}
