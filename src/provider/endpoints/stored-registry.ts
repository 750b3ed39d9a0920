/** The registry of endpoints: those of the config and those of the store, indexed in memory, with changes written through to the store. */
import type { CancelTimer, Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { runDetached } from '../../core/safe-events.ts';
import type { DisabledReason, Endpoint } from './endpoint.ts';
import { EndpointIndex } from './endpoint-index.ts';
import {
  type ConfigState,
  decodeRecord,
  decodeState,
  type EndpointDefaults,
  type EndpointRecord,
  encodeRecord,
  encodeState,
  toEndpoint,
} from './endpoint-record.ts';
import type { EndpointStore } from './endpoint-store.ts';
import type { EndpointRegistry, RoutedEvent } from './registry.ts';
import type { Target } from './target.ts';

/** The dependencies of the registry. */
export interface RegistryParts {
  readonly store: EndpointStore;
  readonly clock: Clock;
  readonly defaults: EndpointDefaults;
  /** Endpoints were added, changed or removed. */
  readonly onChanged: () => void;
  /** A stored endpoint cannot be read, as if it did not exist. */
  readonly onUnreadable: (id: string) => void;
}

/** How a change ended. */
export type ChangeResult = 'changed' | 'unchanged' | 'not_found' | 'version_mismatch';

interface Stored {
  readonly version: number;
  readonly json: string;
  /** Undefined if it cannot be read. */
  readonly record?: EndpointRecord | undefined;
  readonly state?: ConfigState | undefined;
}

/** The store IDs of the states of config endpoints; no endpoint ID contains a colon. */
const STATE_PREFIX = 'config:';
const MAX_TRIES = 20;
/** After a change by another replica that could not be read, because the store was down. */
const RETRY_MS: Milliseconds = 5_000;
/** Changes by other replicas within this time are read at once: each read is of the whole list. */
const FOLLOW_MS: Milliseconds = 250;
/** More changed endpoints are sorted together. */
const MAX_INSERTED = 16;

/** All endpoints. */
export class StoredRegistry implements EndpointRegistry {
  readonly #store: EndpointStore;
  readonly #parts: RegistryParts;
  readonly #stored = new Map<string, Stored>();
  readonly #endpoints = new Map<string, Endpoint>();
  readonly #index = new EndpointIndex();
  readonly #operational = new EndpointIndex();
  #config = new Map<string, Endpoint>();
  #defaults: EndpointDefaults;
  #sorted: readonly Endpoint[] = [];
  /** Store IDs that this replica changed since the latest list was requested: the list may not have these changes yet. */
  #written = new Set<string>();
  #reloading: Promise<void> | undefined;
  #isOutdated = false;
  #stopListening = (): void => undefined;
  #cancelFollowing: CancelTimer | undefined;

  constructor(parts: RegistryParts) {
    this.#parts = parts;
    this.#store = parts.store;
    this.#defaults = parts.defaults;
  }

  /** Reads the store, and follows the changes by other replicas. */
  async open(): Promise<void> {
    this.#stopListening = this.#store.onChange(() => this.#follow(FOLLOW_MS));
    await this.reload();
  }

  close(): void {
    this.#stopListening();
    this.#cancelFollowing?.();
  }

  /** Replaces the endpoints of the config, and the defaults of all others. Their `disabled` and `enabledAt` come from the store. */
  replaceConfig(endpoints: readonly Endpoint[], defaults: EndpointDefaults): void {
    this.#config = new Map(endpoints.map((endpoint) => [endpoint.id, endpoint]));
    this.#defaults = defaults;
    const ids = [...this.#endpoints.keys(), ...this.#config.keys(), ...this.#stored.keys()].map(toEndpointId);
    this.#rebuild([...new Set(ids)]);
  }

  /** Reads the store again; calls during a reload share the next one. */
  reload(): Promise<void> {
    this.#isOutdated = true;
    this.#reloading ??= this.#reload().finally(() => {
      this.#reloading = undefined;
    });
    return this.#reloading;
  }

  get(id: string): Endpoint | undefined {
    return this.#endpoints.get(id);
  }

  /** Sorted by ID. */
  list(): readonly Endpoint[] {
    return this.#sorted;
  }

  route(event: RoutedEvent): readonly Target[] {
    return this.#index.route(event);
  }

  routeOperational(type: string): readonly Target[] {
    return this.#operational.route({ type, data: {} });
  }

  /** The stored form of an endpoint that was created with the API. */
  find(id: string): { readonly version: number; readonly record: EndpointRecord } | undefined {
    const { version = 0, record } = this.#config.has(id) ? {} : (this.#stored.get(id) ?? {});
    return record === undefined ? undefined : { version, record };
  }

  async disable(id: string, reason: DisabledReason, at: EpochMilliseconds): Promise<boolean> {
    const result = await this.#setState(id, ({ disabled, enabledAt }) =>
      disabled === undefined ? { disabled: { at, reason }, enabledAt } : undefined,
    );
    return result === 'changed';
  }

  /** Returns false if the endpoint is enabled already or does not exist. */
  async enable(id: string, at: EpochMilliseconds): Promise<boolean> {
    const result = await this.#setState(id, ({ disabled }) =>
      disabled === undefined ? undefined : { disabled: undefined, enabledAt: at },
    );
    return result === 'changed';
  }

  /** Stores a new endpoint; returns false if the ID is in use. */
  async create(id: string, record: EndpointRecord): Promise<boolean> {
    if (this.#endpoints.has(id) || this.#stored.has(id)) return false;
    const isStored = await this.#put(id, { version: 1, json: encodeRecord(record), record });
    if (!isStored) await this.reload();
    return isStored;
  }

  /** Applies `change` to the current record, again if another replica was faster. `change` returns undefined to leave it as it is. */
  async update(
    id: string,
    change: (record: EndpointRecord) => EndpointRecord | undefined,
    expectedVersion?: number,
  ): Promise<ChangeResult> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const found = this.find(id);
      if (found === undefined) return 'not_found';
      if (expectedVersion !== undefined && expectedVersion !== found.version) return 'version_mismatch';
      const record = change(found.record);
      if (record === undefined) return 'unchanged';
      if (await this.#put(id, { version: found.version + 1, json: encodeRecord(record), record })) return 'changed';
      await this.reload();
    }
    throw toConflict(id);
  }

  /** Removes an endpoint that was created with the API. */
  async remove(id: string, expectedVersion?: number): Promise<ChangeResult> {
    const found = this.find(id);
    if (found === undefined) return 'not_found';
    if (expectedVersion !== undefined && expectedVersion !== found.version) return 'version_mismatch';
    const isRemoved = await this.#store.remove(id, expectedVersion);
    if (!isRemoved && expectedVersion !== undefined) {
      await this.reload();
      return this.find(id) === undefined ? 'not_found' : 'version_mismatch';
    }
    this.#written.add(id);
    this.#stored.delete(id);
    this.#rebuild([id]);
    return isRemoved ? 'changed' : 'not_found';
  }

  /** Another replica changed an endpoint: reads the store soon, and again later if that fails. */
  #follow(delay: Milliseconds): void {
    this.#cancelFollowing ??= this.#parts.clock.after(delay, () => {
      this.#cancelFollowing = undefined;
      runDetached(this.reload().catch(() => this.#follow(RETRY_MS)));
    });
  }

  async #setState(id: string, change: (state: ConfigState) => ConfigState | undefined): Promise<ChangeResult> {
    if (!this.#config.has(id))
      return this.update(id, (record) => {
        const state = change(record);
        return state === undefined ? undefined : { ...record, ...state };
      });
    const storeId = `${STATE_PREFIX}${id}`;
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const endpoint = this.#endpoints.get(id);
      if (endpoint === undefined) return 'not_found';
      const state = change(endpoint);
      if (state === undefined) return 'unchanged';
      const version = (this.#stored.get(storeId)?.version ?? 0) + 1;
      if (await this.#put(storeId, { version, json: encodeState(state), state })) return 'changed';
      await this.reload();
    }
    throw toConflict(id);
  }

  async #put(id: string, stored: Stored): Promise<boolean> {
    const isStored = await this.#store.put({ id, version: stored.version, json: stored.json });
    if (!isStored) return false;
    this.#written.add(id);
    this.#stored.set(id, stored);
    this.#rebuild([toEndpointId(id)]);
    return true;
  }

  async #reload(): Promise<void> {
    while (this.#isOutdated) {
      this.#isOutdated = false;
      this.#written = new Set();
      this.#apply(await this.#store.list());
    }
  }

  #apply(list: Awaited<ReturnType<EndpointStore['list']>>): void {
    const changed: string[] = [];
    const gone = new Set([...this.#stored.keys()].filter((id) => !this.#written.has(id)));
    for (const { id, version, json } of list) {
      gone.delete(id);
      if (this.#written.has(id)) continue;
      const known = this.#stored.get(id);
      // An endpoint that was removed and created again has a version that was used before.
      if (known?.version === version && known.json === json) continue;
      this.#stored.set(id, this.#decode(id, version, json));
      changed.push(toEndpointId(id));
    }
    for (const id of gone) {
      this.#stored.delete(id);
      changed.push(toEndpointId(id));
    }
    if (changed.length > 0) this.#rebuild(changed);
  }

  #decode(id: string, version: number, json: string): Stored {
    const isState = id.startsWith(STATE_PREFIX);
    const [record, state] = isState ? [undefined, decodeState(json)] : [decodeRecord(json), undefined];
    if (record === undefined && state === undefined) this.#parts.onUnreadable(toEndpointId(id));
    return { version, json, record, state };
  }

  /** Brings the endpoints with these IDs up to date. */
  #rebuild(ids: readonly string[]): void {
    for (const id of ids) {
      const endpoint = this.#build(id);
      if (ids.length <= MAX_INSERTED) this.#sorted = replaceSorted(this.#sorted, id, endpoint);
      this.#index.delete(id);
      this.#operational.delete(id);
      if (endpoint === undefined) this.#endpoints.delete(id);
      else {
        this.#endpoints.set(id, endpoint);
        (endpoint.isOperational ? this.#operational : this.#index).set(endpoint);
      }
    }
    if (ids.length > MAX_INSERTED) this.#sorted = [...this.#endpoints.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
    this.#parts.onChanged();
  }

  #build(id: string): Endpoint | undefined {
    const configured = this.#config.get(id);
    if (configured !== undefined) {
      const { state } = this.#stored.get(`${STATE_PREFIX}${id}`) ?? {};
      return state === undefined ? configured : { ...configured, ...state };
    }
    const record = this.#stored.get(id)?.record;
    return record === undefined ? undefined : toEndpoint(id, record, this.#defaults);
  }
}

/** A list in which `endpoint` takes the place of the one with the same ID; undefined removes that one. */
function replaceSorted(sorted: readonly Endpoint[], id: string, endpoint: Endpoint | undefined): readonly Endpoint[] {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] as Endpoint).id < id) low = middle + 1;
    else high = middle;
  }
  return sorted.toSpliced(low, sorted[low]?.id === id ? 1 : 0, ...(endpoint === undefined ? [] : [endpoint]));
}

function toEndpointId(storeId: string): string {
  return storeId.startsWith(STATE_PREFIX) ? storeId.slice(STATE_PREFIX.length) : storeId;
}

function toConflict(id: string): SidegateError {
  return new SidegateError('system', 'endpoint_conflict', `endpoint ${id} is changed by others all the time`);
}
