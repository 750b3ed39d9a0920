/** The registry of endpoints: those of the config and those of the store, indexed in memory, with changes written through to the store. */
import { randomInt } from 'node:crypto';
import type { CancelTimer, Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { runDetached } from '../../core/safe-events.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import {
  type Endpoint,
  type EndpointIdentity,
  type EndpointRegistry,
  type EndpointStore,
  isSameEndpoint,
  type RoutedEvent,
  type SigningKey,
  STATE_PREFIX,
  type Target,
  toEndpointId,
} from './endpoint.ts';
import { EndpointIndex } from './endpoint-index.ts';
import {
  type ConfigState,
  decodeRecord,
  decodeState,
  type EndpointCipher,
  type EndpointDefaults,
  EndpointMemory,
  type EndpointRecord,
  encodeRecord,
  encodeState,
  MAX_NAMED,
  PLAIN,
  toEndpoint,
  toMissingKey,
} from './endpoint-record.ts';

export type RegistryLogEvent =
  | 'encryption_key_missing'
  | 'endpoint_hidden'
  | 'endpoint_secrets_altered'
  | 'endpoint_secrets_encrypted'
  | 'endpoint_secrets_plain'
  | 'endpoint_secrets_reset'
  | 'endpoint_unreadable';

export type ChangeResult = 'changed' | 'unchanged' | 'not_found' | 'version_mismatch' | 'heap' | 'tenant';

interface Stored {
  readonly version: number;
  readonly json: string;
  /** Undefined if it cannot be read. */
  readonly record?: EndpointRecord | undefined;
  /** Values of the record could not be decrypted: its events are stored, and its deliveries wait. */
  readonly isSealed?: boolean;
  /** The keys that its values are encrypted with. */
  readonly keyIds?: readonly string[];
  readonly state?: ConfigState | undefined;
}

type Change = Omit<Stored, 'version'>;

const MAX_TRIES = 20;
/** After a change by another replica that could not be read, because the store was down. */
const RETRY_MS: Milliseconds = 5_000;
/** Changes by other replicas within this time are read at once: each read is of the whole list. */
const FOLLOW_MS: Milliseconds = 250;
/** Replicas with the config before a rotation may have stored endpoints with the old key since the last time. */
const REENCRYPT_INTERVAL_MS: Milliseconds = 600_000;
const MISSING_HINT = 'add the key to provider.encryption.keys: deliveries to these endpoints wait, and the next start fails';
const ALTERED_HINT = 'its deliveries wait: restore the queue from a backup, or delete the endpoint and create it again';
const HIDDEN_HINT =
  'the config has an endpoint with this ID: delete the one of the API, which would serve again without that of the config';
const RESET_HINT = 'the receiver needs a new secret (sidegate endpoints rotate); set its headers, then enable it';
export class StoredRegistry implements EndpointRegistry {
  readonly #parts;
  readonly #memory: EndpointMemory;
  readonly #stored = new Map<string, Stored>();
  readonly #endpoints = new Map<string, Endpoint>();
  readonly #index = new EndpointIndex();
  readonly #operational = new EndpointIndex();
  #config = new Map<string, Endpoint>();
  #defaults: EndpointDefaults;
  #cipher: EndpointCipher;
  /** The cipher of the latest report that re-encryption is complete. */
  #completed: EndpointCipher | undefined;
  #isReencrypting = false;
  #isClosed = false;
  #isIncomplete = false;
  #sorted: readonly Endpoint[] = [];
  /** Store IDs that this replica changed since the latest list was requested: the list may not have these changes yet. */
  #written = new Set<string>();
  #reloading = Promise.resolve();
  /** One that did not begin. */
  #next: Promise<void> | undefined;
  #stopListening = (): void => undefined;
  #cancelFollowing: CancelTimer | undefined;
  #cancelReencryption: CancelTimer | undefined;

  constructor(parts: {
    readonly store: EndpointStore;
    readonly clock: Clock;
    readonly defaults: EndpointDefaults;
    readonly cipher: EndpointCipher;
    /** Endpoints were added, changed or removed. */
    readonly onChanged: () => void;
    /** Others stored more than the heap can hold: the process has to end. */
    readonly onFatal: (error: SidegateError) => void;
    readonly logger: Pick<Logger<RegistryLogEvent>, 'info' | 'warn' | 'error'>;
    /** Default: the heap of the process. */
    readonly heapBytes?: number;
  }) {
    this.#parts = parts;
    this.#defaults = parts.defaults;
    this.#cipher = parts.cipher;
    this.#memory = new EndpointMemory(parts.heapBytes);
  }

  /**
   * Reads the store, and follows the changes by other replicas. Rejects with a SidegateError of kind `user` if endpoints are encrypted with a
   * key that the config does not have. Those under one of `lostKeys` get a secret of `createKey`, and are disabled.
   */
  async open(lost?: { readonly lostKeys: readonly string[]; readonly createKey: () => SigningKey }): Promise<void> {
    this.close();
    this.#isClosed = false;
    this.#cancelReencryption = undefined;
    this.#stopListening = this.#parts.store.onChange(() => this.#follow(FOLLOW_MS));
    await this.reload();
    const { missing } = this.#findSealed([...this.#stored.keys()]);
    const needed = missing.filter(({ key }) => lost?.lostKeys.includes(key) !== true);
    if (needed.length > 0) throw toMissingKey(needed);
    const ids = missing.flatMap(({ endpoints }) => endpoints);
    if (ids.length > 0 && lost !== undefined) await this.#reset(ids, lost.createKey);
    this.#reportSealed([...this.#stored.keys()]);
    const count = [...this.#stored.values()].filter(({ keyIds }) => keyIds?.includes(PLAIN)).length;
    if (this.#cipher.keyId === PLAIN && count > 0)
      this.#parts.logger.warn('endpoint_secrets_plain', { count, hint: 'set provider.encryption.keys' });
    this.#cancelReencryption = this.#parts.clock.every(REENCRYPT_INTERVAL_MS, () => this.#reencryptSoon());
    this.#reencryptSoon();
  }

  close(): void {
    this.#isClosed = true;
    this.#stopListening();
    this.#cancelFollowing?.();
    this.#cancelReencryption?.();
  }

  /** Encrypts with the first key of `cipher` from now on, also what is stored already. */
  replaceCipher(cipher: EndpointCipher): void {
    if (String(cipher.keyIds) === String(this.#cipher.keyIds)) return;
    this.#cipher = cipher;
    const sealed = [...this.#stored].filter(([, { isSealed }]) => isSealed === true);
    for (const [id, { version, json }] of sealed) this.#keep(id, this.#decode(id, version, json));
    if (sealed.length > 0) this.#rebuild(sealed.map(([id]) => id));
    this.#reportSealed(sealed.map(([id]) => id));
    // Those that were decrypted with a key that is gone are encrypted again from memory.
    this.#reencryptSoon();
  }

  /** Replaces the endpoints of the config, and the defaults of all others. Their `disabled` and `enabledAt` come from the store. */
  replaceConfig(endpoints: readonly Endpoint[], defaults: EndpointDefaults): void {
    this.#config = new Map(endpoints.map((endpoint) => [endpoint.id, endpoint]));
    this.#defaults = defaults;
    this.#rebuild([...this.#endpoints.keys(), ...this.#config.keys(), ...this.#stored.keys()].map(toEndpointId));
  }

  /** Reads the store again; calls during a reload share the next one. */
  reload(): Promise<void> {
    this.#next ??= this.#reloading = this.#reloading
      .catch(() => undefined)
      .then(() => {
        this.#next = undefined;
        return this.#reload();
      });
    return this.#next;
  }

  async catchUp(id: string, version?: number): Promise<void> {
    const stored = version ?? (await this.#parts.store.readVersion(id));
    const known = (this.#stored.get(id)?.version ?? 0) + (this.#stored.get(`${STATE_PREFIX}${id}`)?.version ?? 0);
    if (stored !== known) await this.reload();
  }

  get(id: string): Endpoint | undefined {
    return this.#endpoints.get(id);
  }

  /** Whether deliveries to the endpoint wait, because its secrets cannot be decrypted here. */
  isElsewhere(id: string): boolean {
    return !this.#config.has(id) && this.#stored.get(id)?.isSealed === true;
  }

  /** Sorted by ID. */
  list(): readonly Endpoint[] {
    return this.#sorted;
  }

  /** Where an event goes. Disabled endpoints are included, marked `isSkipped`; operational ones are not. Throws if endpoints are missing. */
  route(event: RoutedEvent): readonly Target[] {
    if (this.#isIncomplete) throw new SidegateError('system', 'queue_unavailable', 'the endpoints do not fit into memory');
    return this.#index.route(event);
  }

  /** The target of an event if this endpoint, which is not an operational one, selects it. */
  match(id: string, event: RoutedEvent): Target | undefined {
    return this.#index.match(id, event);
  }

  routeOperational(type: string, tenant: string | undefined): readonly Target[] {
    return this.#operational.route({ type, tenant, data: {} });
  }

  /** The stored form of an endpoint that was created with the API. */
  find(id: string): { readonly version: number; readonly record: EndpointRecord } | undefined {
    const { version = 0, record, isSealed } = this.#config.has(id) ? {} : (this.#stored.get(id) ?? {});
    return record === undefined || isSealed === true ? undefined : { version, record };
  }

  async disable(...[id, reason, at, identity]: Parameters<EndpointRegistry['disable']>): Promise<boolean> {
    return this.#setState(id, ({ disabled, ...current }) =>
      disabled === undefined && isSameEndpoint(current, identity ?? current)
        ? { disabled: { at, reason }, enabledAt: current.enabledAt }
        : undefined,
    );
  }

  /** Returns false if the endpoint is enabled already or does not exist. */
  async enable(id: string, at: EpochMilliseconds): Promise<boolean> {
    return this.#setState(id, ({ disabled }) => (disabled === undefined ? undefined : { disabled: undefined, enabledAt: at }));
  }

  /** Stores a new endpoint; returns false if the ID is in use. */
  async create(id: string, record: EndpointRecord): Promise<boolean> {
    return !this.#endpoints.has(id) && !this.#stored.has(id) && this.#put(id, this.#encode(id, record));
  }

  /** Applies `change` to the current record, again if another replica was faster. `change` returns undefined to leave it as it is. */
  async update(id: string, change: (record: EndpointRecord) => EndpointRecord | undefined, expectedVersion?: number) {
    return this.#change(id, () => {
      const found = this.find(id);
      if (found === undefined) return 'not_found';
      if (expectedVersion !== undefined && expectedVersion !== found.version) return 'version_mismatch';
      const record = change(found.record);
      if (record === undefined) return 'unchanged';
      const changed = this.#encode(id, record);
      // Without room, it can still be disabled.
      const full = record.disabled === found.record.disabled ? this.#memory.findFull(this.#stored.get(id), changed) : undefined;
      return full ?? changed;
    });
  }

  /** Names the part without room for a new or changed endpoint: what is accepted has to fit into the heap at the next start. */
  findFull(id: string, record: EndpointRecord): 'heap' | 'tenant' | undefined {
    return this.#memory.findFull(this.#stored.get(id), this.#encode(id, record));
  }

  /** Removes an endpoint that was created with the API, also one that the config hides. */
  async remove(id: string, expectedVersion?: number): Promise<ChangeResult> {
    const found = this.#stored.get(id);
    if (found === undefined) return 'not_found';
    if (expectedVersion !== undefined && expectedVersion !== found.version) return 'version_mismatch';
    if (!(await this.#parts.store.remove(id, expectedVersion))) {
      await this.reload();
      return this.#stored.has(id) ? 'version_mismatch' : 'not_found';
    }
    this.#written.add(id);
    this.#keep(id, undefined);
    this.#rebuild([id]);
    return 'changed';
  }

  /** Another replica changed an endpoint: reads the store soon, and again later if that fails. */
  #follow(delay: Milliseconds): void {
    this.#cancelFollowing ??= this.#parts.clock.after(delay, () => {
      this.#cancelFollowing = undefined;
      runDetached(this.reload().catch(() => this.#follow(RETRY_MS)));
    });
  }

  async #setState(id: string, change: (endpoint: ConfigState & EndpointIdentity) => ConfigState | undefined): Promise<boolean> {
    const storeId = `${STATE_PREFIX}${id}`;
    const result = this.#config.has(id)
      ? this.#change(storeId, () => {
          const state = change(this.#endpoints.get(id) as Endpoint);
          return state === undefined ? 'unchanged' : { json: encodeState(state), state };
        })
      : this.update(id, (record) => {
          const state = change({ ...record.settings, ...record });
          return state === undefined ? undefined : { ...record, ...state };
        });
    return (await result) === 'changed';
  }

  /** Stores what follows the current version, again if another replica was faster. `toNext`: or why nothing does. */
  async #change(storeId: string, toNext: () => Change | ChangeResult): Promise<ChangeResult> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const next = toNext();
      if (typeof next === 'string') return next;
      if (await this.#put(storeId, next)) return 'changed';
      await this.reload();
    }
    throw new SidegateError('system', 'endpoint_conflict', `endpoint ${toEndpointId(storeId)} is changed by others all the time`);
  }

  async #put(id: string, change: Change): Promise<boolean> {
    const isStored = await this.#write(id, change);
    if (isStored) this.#rebuild([toEndpointId(id)]);
    return isStored;
  }

  /** With a random version: a replica may still know an endpoint that was removed, or that a failover of the database lost, or a client its ETag. */
  async #write(id: string, change: Change): Promise<boolean> {
    const version = randomInt(2 ** 47);
    const before = this.#stored.get(id);
    // Others that are written meanwhile need room beside it.
    this.#memory.replace(before, change);
    const put = this.#parts.store.put({ id, version, json: change.json }, before?.version);
    if (!(await put.finally(() => this.#memory.replace(change, before)))) return false;
    this.#written.add(id);
    this.#keep(id, { ...change, version });
    return true;
  }

  #reencryptSoon(): void {
    // Before the store is open, nothing is known of what it has.
    if (this.#cancelReencryption === undefined || this.#isReencrypting || this.#cipher.keyId === PLAIN) return;
    this.#isReencrypting = true;
    const run = this.#reencrypt().finally(() => {
      this.#isReencrypting = false;
    });
    // The store is down, which the queue reports: what is left follows at the next time.
    runDetached(run.catch(() => undefined));
  }

  /**
   * Stores the endpoints again that are not encrypted with the first key, one after the other. Another replica may do the same, or have the
   * keys in another order during an update: two passes at most, so that the two never work against each other for long.
   */
  async #reencrypt(): Promise<void> {
    let reencrypted = 0;
    for (let outdated = this.#findOutdated(), pass = 1; outdated.length > 0 && pass <= 2; pass++) {
      for (const id of outdated) if (await this.#reencryptOne(id)) reencrypted++;
      await this.reload();
      outdated = this.#findOutdated();
    }
    if (this.#findOutdated().length > 0 || (reencrypted === 0 && this.#completed === this.#cipher)) return;
    this.#completed = this.#cipher;
    const [key = PLAIN, ...unusedKeys] = this.#cipher.keyIds;
    if (reencrypted > 0 || unusedKeys.length > 0)
      this.#parts.logger.info('endpoint_secrets_encrypted', { count: reencrypted, key, unusedKeys });
  }

  /** Changes nothing that others see, so no endpoint is rebuilt. Returns false if another replica was faster. */
  async #reencryptOne(id: string): Promise<boolean> {
    const { record, isSealed } = this.#stored.get(id) ?? {};
    if (record === undefined || isSealed === true || this.#isClosed) return false;
    return this.#write(id, this.#encode(id, record));
  }

  #findOutdated(): string[] {
    const { keyId } = this.#cipher;
    return [...this.#stored].flatMap(([id, { isSealed, keyIds = [] }]) =>
      isSealed === true || keyIds.every((each) => each === keyId) ? [] : [id],
    );
  }

  /** Endpoints whose key is lost get a new secret, lose the header values, and are disabled until somebody has set them again. */
  async #reset(ids: readonly string[], createKey: () => SigningKey): Promise<void> {
    let count = 0;
    for (const id of ids) {
      const record = this.#stored.get(id)?.record;
      if (record === undefined) continue;
      const disabled = { at: this.#parts.clock.now(), reason: 'manual' } as const;
      if (!(await this.#put(id, this.#encode(id, { ...record, keys: [createKey()], disabled })))) continue;
      count++;
      this.#parts.logger.error('endpoint_secrets_reset', { endpoint: id, hint: RESET_HINT });
    }
    // Another replica may have been faster.
    if (count < ids.length) await this.reload();
  }

  /** Endpoints among `ids` that cannot be decrypted: by the key that is missing, and those whose values were altered. */
  #findSealed(ids: readonly string[]) {
    const sealed = ids.filter((id) => this.#stored.get(id)?.isSealed === true);
    const groups = Map.groupBy(sealed, (id) => this.#stored.get(id)?.keyIds?.find((keyId) => !this.#cipher.has(keyId)));
    const altered = groups.get(undefined) ?? [];
    const missing = [...groups].flatMap(([key, endpoints]) => (key === undefined ? [] : [{ key, endpoints }]));
    return { missing, altered };
  }

  #reportSealed(ids: readonly string[]): void {
    const { missing, altered } = this.#findSealed(ids);
    for (const { key, endpoints } of missing) {
      const named = endpoints.slice(0, MAX_NAMED);
      this.#parts.logger.error('encryption_key_missing', { key, count: endpoints.length, endpoints: named, hint: MISSING_HINT });
    }
    // Their values were changed outside of sidegate, or moved from another endpoint.
    for (const endpoint of altered) this.#parts.logger.error('endpoint_secrets_altered', { endpoint, hint: ALTERED_HINT });
  }

  #encode(id: string, record: EndpointRecord): Change {
    return { json: encodeRecord(id, record, this.#cipher), record, keyIds: [this.#cipher.keyId] };
  }

  async #reload(): Promise<void> {
    this.#written = new Set();
    const changed: string[] = [];
    const isOpen = this.#cancelReencryption !== undefined;
    let isRead = false;
    try {
      await this.#readAll(changed, isOpen);
      isRead = true;
    } finally {
      // If the start fails, they are not built: there may be no memory for it.
      if (changed.length > 0 && (isRead || isOpen)) this.#rebuild(changed);
      // Those that are found at the start prevent it.
      if (isOpen) this.#reportSealed(changed);
    }
  }

  /** In pages. The store reports what others change meanwhile. */
  async #readAll(changed: string[], isOpen: boolean): Promise<void> {
    const gone = new Set(this.#stored.keys());
    for (let page = await this.#parts.store.list(); page.length > 0; page = await this.#parts.store.list(page.at(-1)?.id))
      for (const { id, version, json } of page) {
        gone.delete(id);
        const known = this.#stored.get(id);
        if (this.#written.has(id) || (known?.version === version && known.json === json)) continue;
        const stored = this.#decode(id, version, json);
        this.#checkRoom(known, stored, isOpen);
        this.#keep(id, stored);
        changed.push(toEndpointId(id));
      }
    for (const id of gone) {
      if (this.#written.has(id)) continue;
      this.#keep(id, undefined);
      changed.push(toEndpointId(id));
    }
  }

  /** A process that runs has to know all: events that it accepts would miss their endpoints. */
  #checkRoom(known: Stored | undefined, stored: Stored, isOpen: boolean): void {
    if (this.#memory.canRead(known, stored)) return;
    const text = `the queue stores more endpoints of the API than the heap of ${Math.round(this.#memory.heapBytes / 2 ** 20)} MiB can hold, which is full with ${this.#stored.size}. Raise the memory limit (docs/sizing.md); then you can delete endpoints`;
    const error = new SidegateError('user', 'endpoints_too_large', text);
    if (isOpen && !this.#isIncomplete) this.#parts.onFatal(error);
    this.#isIncomplete = isOpen;
    throw error;
  }

  #keep(id: string, stored: Stored | undefined): void {
    this.#memory.replace(this.#stored.get(id), stored);
    if (stored === undefined) this.#stored.delete(id);
    else this.#stored.set(id, stored);
  }

  #decode(id: string, version: number, json: string): Stored {
    const decoded = id.startsWith(STATE_PREFIX) ? decodeState(json) : decodeRecord(id, json, this.#cipher);
    // As if it did not exist.
    if (decoded === undefined) this.#parts.logger.error('endpoint_unreadable', { endpoint: toEndpointId(id) });
    return { version, json, ...decoded };
  }

  /** Brings the endpoints with these IDs up to date. */
  #rebuild(ids: readonly string[]): void {
    const rebuilt = new Set(ids);
    const added: Endpoint[] = [];
    for (const id of rebuilt) {
      const endpoint = this.#build(id);
      // Events are stored for the endpoint even while its secrets cannot be decrypted.
      const served = this.isElsewhere(id) ? undefined : endpoint;
      if (served !== undefined) added.push(served);
      this.#index.delete(id);
      this.#operational.delete(id);
      if (served === undefined) this.#endpoints.delete(id);
      else this.#endpoints.set(id, served);
      if (endpoint !== undefined) (endpoint.isOperational ? this.#operational : this.#index).set(endpoint);
    }
    const sorted = [...this.#sorted.filter(({ id }) => !rebuilt.has(id)), ...added];
    // In linear time for few changes: all others are in order.
    this.#sorted = sorted.sort((a, b) => (a.id < b.id ? -1 : 1));
    this.#parts.onChanged();
  }

  #build(id: string): Endpoint | undefined {
    const configured = this.#config.get(id);
    if (configured !== undefined) {
      if (this.#stored.has(id)) this.#parts.logger.warn('endpoint_hidden', { endpoint: id, hint: HIDDEN_HINT });
      const { state } = this.#stored.get(`${STATE_PREFIX}${id}`) ?? {};
      return state === undefined ? configured : { ...configured, ...state };
    }
    const record = this.#stored.get(id)?.record;
    if (record === undefined) return undefined;
    const { settings, keys, disabled, enabledAt } = record;
    return toEndpoint(settings, { id, source: 'api', keys, disabled, enabledAt }, this.#defaults);
  }
}
