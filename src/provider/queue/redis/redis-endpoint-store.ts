/** Endpoints in Redis. Replicas learn of changes by a message; messages can be lost, so each replica also asks now and then. */
import type { CancelTimer, Clock } from '../../../core/clock.ts';
import { onEvent, runDetached, runTimer } from '../../../core/safe-events.ts';
import type { RedisClient } from '../../../state/redis/client.ts';
import type { EndpointStore, StoredEndpoint } from '../../endpoints/endpoint-store.ts';
import { toList, toText } from './codec.ts';
import type { Operations } from './operations.ts';

/** The parts that the store uses. */
export interface RedisEndpointStoreSettings {
  /** Of the first shard. */
  readonly operations: Operations;
  /** Where changes are published. */
  readonly channel: string;
  readonly publisher: RedisClient;
  /** Opens a connection for messages. */
  readonly subscribe: () => RedisClient;
  readonly clock: Clock;
}

const POLL_INTERVAL_MS = 10_000;

export class RedisEndpointStore implements EndpointStore {
  readonly #settings: RedisEndpointStoreSettings;
  readonly #listeners = new Set<() => void>();
  #subscriber: RedisClient | undefined;
  #stopPolling: CancelTimer = () => undefined;
  /** The newest revision that this replica knows. */
  #revision: number | undefined;

  constructor(settings: RedisEndpointStoreSettings) {
    this.#settings = settings;
  }

  /** Remembers the revision, so that only later changes are reported. */
  async open(): Promise<void> {
    this.#revision = Number(await this.#settings.operations.run('revision', []));
  }

  async list(): Promise<readonly StoredEndpoint[]> {
    const values = toList(await this.#settings.operations.run('listEndpoints', [])).map(toText);
    const endpoints: StoredEndpoint[] = [];
    for (let i = 0; i + 1 < values.length; i += 2) {
      const value = values[i + 1] ?? '';
      const end = value.indexOf('\n');
      endpoints.push({ id: values[i] ?? '', version: Number(value.slice(0, end)), json: value.slice(end + 1) });
    }
    return endpoints;
  }

  async put({ id, version, json }: StoredEndpoint): Promise<boolean> {
    return this.#change(Number(await this.#settings.operations.run('putEndpoint', [id, version, json])));
  }

  async remove(id: string, version?: number): Promise<boolean> {
    return this.#change(Number(await this.#settings.operations.run('removeEndpoint', [id, version ?? ''])));
  }

  onChange(listener: () => void): () => void {
    // A new function, so that a listener can be added twice.
    const added = (): void => listener();
    this.#listeners.add(added);
    if (this.#subscriber === undefined) this.#listen();
    return () => {
      this.#listeners.delete(added);
    };
  }

  close(): void {
    this.#listeners.clear();
    this.#stopPolling();
    this.#subscriber?.disconnect();
    this.#subscriber = undefined;
  }

  #change(revision: number): boolean {
    if (revision === 0) return false;
    // A change by another replica in between is still to be reported.
    if (revision === (this.#revision ?? 0) + 1) this.#revision = revision;
    this.#settings.publisher.publish(this.#settings.channel, String(revision)).catch(() => undefined);
    return true;
  }

  #listen(): void {
    const { subscribe, channel, clock } = this.#settings;
    const subscriber = subscribe();
    this.#subscriber = subscriber;
    onEvent(subscriber, 'message', () => this.#poll());
    onEvent(subscriber, 'error', () => undefined);
    runDetached(
      subscriber.subscribe(channel).then(
        () => this.#poll(),
        () => undefined,
      ),
    );
    this.#stopPolling = clock.every(POLL_INTERVAL_MS, () => this.#poll());
  }

  async #poll(): Promise<void> {
    if (this.#subscriber === undefined) return;
    let revision: number;
    try {
      revision = Number(await this.#settings.operations.run('revision', []));
    } catch {
      return;
    }
    const isChanged = this.#revision !== undefined && revision !== this.#revision;
    this.#revision = revision;
    if (isChanged) for (const listener of [...this.#listeners]) runTimer(listener);
  }
}
