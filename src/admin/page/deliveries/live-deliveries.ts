/** The list of deliveries, kept up to date by the stream of the API. */
import type { DeliveryView } from '../../console/schemas.ts';
import { read, toMessage } from '../api.ts';

/** The state of the stream. */
type ConnectionState = 'connecting' | 'live' | 'lost';

/** The state of the list. */
export interface LiveState {
  readonly rows: readonly DeliveryView[];
  readonly connection: ConnectionState;
  readonly isLoaded: boolean;
  readonly isPaused: boolean;
  /** Deliveries that arrived during the pause. */
  readonly waiting: number;
  /** Position of older ones; null: none exist; undefined: they begin after the last row. */
  readonly cursor: string | null | undefined;
  readonly error: string | undefined;
  /** The store does not respond, so requests of other replicas are missing. */
  readonly areReplicasMissing: boolean;
}

interface DeliveriesPage {
  readonly data: readonly DeliveryView[];
  readonly cursor: string | null;
}

interface Replicas {
  readonly isAvailable: boolean;
}

/** More are not readable, and make a browser slow. */
const MAX_LIVE_ROWS = 100;
const MAX_ROWS = 2_000;
/** Renders that often at most, however many arrive; more cannot be read, and cost the browser its time for the user. */
const RENDER_INTERVAL_MS = 500;
/** After the gate rejected the stream; otherwise the browser reconnects itself. */
const RETRY_MS = 5_000;
/** The gate serves few streams at once, so a tab that nobody looks at for so long closes its stream. */
const MAX_HIDDEN_MS = 30_000;
/** Requests of other replicas arrive late. */
const MAX_DELAY_MS = 5_000;

/** One list with its stream. */
export class LiveDeliveries {
  /** Of the list in the API. */
  readonly #filters: URLSearchParams;
  readonly #onChange: (state: LiveState) => void;
  readonly #abort = new AbortController();
  #state: LiveState;
  #arrived: DeliveryView[] = [];
  #source: EventSource | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #hiding: ReturnType<typeof setTimeout> | undefined;
  /** After the stream was closed, the list may lack requests that arrived later than this; undefined: it lacks none. */
  #completeTo: number | undefined;

  constructor(filters: URLSearchParams, onChange: (state: LiveState) => void) {
    this.#filters = filters;
    this.#onChange = onChange;
    this.#state = EMPTY;
    this.#connect();
    const onVisibility = (): void => this.#adaptTo(document.visibilityState);
    document.addEventListener('visibilitychange', onVisibility, { signal: this.#abort.signal });
    onVisibility();
  }

  close(): void {
    this.#abort.abort();
    this.#disconnect();
    clearTimeout(this.#timer);
    clearTimeout(this.#hiding);
  }

  /** Arriving deliveries wait, so that the list stays as it is. */
  pause(isPaused: boolean): void {
    this.#set({ isPaused });
    if (isPaused) return;
    this.#show();
    // The store may have been away during the pause.
    void this.#load();
  }

  /** Appends older deliveries, and pauses. */
  async loadOlder(): Promise<void> {
    const { cursor, rows } = this.#state;
    const last = rows.at(-1);
    if (cursor === null || last === undefined) return;
    this.#set({ isPaused: true });
    await this.#fetch(cursor === undefined ? { to: toNext(last.at) } : { cursor }, (page) => {
      this.#set({ rows: merge([this.#state.rows, page.data], MAX_ROWS), cursor: page.cursor });
    });
  }

  #load(): Promise<void> {
    return this.#fetch({}, ({ data, cursor }) => {
      const rows = merge([data, this.#takeConnected(data, cursor)], MAX_LIVE_ROWS);
      if (this.#source !== undefined) this.#completeTo = undefined;
      this.#set({ rows, cursor: rows.length > data.length ? undefined : cursor, isLoaded: true });
    });
  }

  /** Without older rows if requests may be missing between them and the page: these are loaded as older ones. */
  #takeConnected(page: readonly DeliveryView[], cursor: string | null): readonly DeliveryView[] {
    const { rows } = this.#state;
    const oldest = page.at(-1);
    if (this.#completeTo === undefined || oldest === undefined || cursor === null) return rows;
    if (Date.parse(oldest.at) < this.#completeTo - MAX_DELAY_MS) return rows;
    return rows.filter(({ at }) => at >= oldest.at);
  }

  async #fetch(position: Readonly<Record<string, string>>, take: (page: DeliveriesPage) => void): Promise<void> {
    const query = new URLSearchParams(this.#filters);
    for (const [name, value] of Object.entries({ ...position, limit: '50' })) query.set(name, value);
    try {
      take(await read<DeliveriesPage>(`/deliveries?${query}`, this.#abort.signal));
      this.#set({ error: undefined });
    } catch (error) {
      if (!this.#abort.signal.aborted) this.#set({ error: toMessage(error), isLoaded: true });
    }
  }

  #adaptTo(visibility: DocumentVisibilityState): void {
    clearTimeout(this.#hiding);
    if (visibility === 'hidden') this.#hiding = setTimeout(() => this.#suspend(), MAX_HIDDEN_MS);
    else if (this.#source === undefined) this.#connect();
  }

  #suspend(): void {
    this.#disconnect();
    this.#set({ connection: 'connecting' });
    this.#show();
    this.#markIncomplete();
  }

  #markIncomplete(): void {
    const [newest] = this.#state.rows;
    this.#completeTo ??= newest === undefined ? undefined : Date.parse(newest.at);
  }

  #disconnect(): void {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = undefined;
  }

  #connect(): void {
    const query = new URLSearchParams(this.#filters);
    // All that arrives is new.
    query.delete('last');
    const source = new EventSource(`/api/v1/deliveries/stream?${query}`);
    this.#source = source;
    // Once it is open, so that nothing is missed in between. After an interruption, the stream continues where it ended, or sends `reset`.
    source.addEventListener('open', () => this.#onOpen(), { once: true });
    // A new connection hears of an outage again.
    source.onopen = () => this.#set({ connection: 'live', areReplicasMissing: false });
    source.onmessage = ({ data }) => this.#receive(JSON.parse(String(data)) as DeliveryView);
    source.addEventListener('reset', () => void this.#load());
    source.addEventListener('replicas', ({ data }) => this.#setReplicas(JSON.parse(String(data)) as Replicas));
    source.onerror = () => {
      this.#set({ connection: 'lost' });
      if (!this.#state.isLoaded) void this.#load();
      if (source.readyState !== EventSource.CLOSED) return;
      this.#markIncomplete();
      this.#retry = setTimeout(() => this.#connect(), RETRY_MS);
    };
  }

  /** The end of a pause loads the list, too. */
  #onOpen(): void {
    if (!this.#state.isPaused || !this.#state.isLoaded) void this.#load();
  }

  /** Only the list has requests that arrived while the store was away. */
  #setReplicas({ isAvailable }: Replicas): void {
    this.#set({ areReplicasMissing: !isAvailable });
    if (isAvailable && !this.#state.isPaused) void this.#load();
  }

  #receive(row: DeliveryView): void {
    this.#arrived.push(row);
    if (this.#arrived.length > MAX_ROWS) this.#arrived.splice(0, MAX_ROWS / 2);
    this.#timer ??= setTimeout(() => this.#show(), RENDER_INTERVAL_MS);
  }

  #show(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#state.isPaused) return this.#set({ waiting: this.#arrived.length });
    const arrived = this.#arrived.reverse();
    this.#arrived = [];
    const rows = merge([arrived, this.#state.rows], MAX_LIVE_ROWS);
    const isCut = arrived.length + this.#state.rows.length > rows.length;
    this.#set({ rows, waiting: 0, ...(isCut && { cursor: undefined }) });
  }

  #set(changes: Partial<LiveState>): void {
    if (this.#abort.signal.aborted) return;
    this.#state = { ...this.#state, ...changes };
    this.#onChange(this.#state);
  }
}

/** Before anything is loaded. */
export const EMPTY: LiveState = {
  rows: [],
  connection: 'connecting',
  isLoaded: false,
  isPaused: false,
  waiting: 0,
  cursor: null,
  error: undefined,
  areReplicasMissing: false,
};

/** A millisecond later, as `to` is exclusive. */
function toNext(instant: string): string {
  return new Date(Date.parse(instant) + 1).toISOString();
}

/** One of each ID, in the order of arrival, newest first. */
function merge(parts: readonly (readonly DeliveryView[])[], limit: number): DeliveryView[] {
  const byId = new Map(parts.flat().map((row) => [row.id, row]));
  return [...byId.values()].sort((a, b) => (a.at < b.at ? 1 : a.at > b.at ? -1 : 0)).slice(0, limit);
}
