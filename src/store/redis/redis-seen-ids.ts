/** Seen ids in Redis, shared by all replicas: one script and one round trip for each operation, answered within a bounded time. */
import type { Result } from 'ioredis';
import type { Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { type ClaimRequest, type ClaimResult, type SeenIds, type StoreFailure, StoreUnavailable } from '../seen-ids.ts';
import { openRedis, type RedisClient } from './client.ts';
import type { RedisStoreOptions } from './options.ts';
import { CLAIM, CONFIRM, RELEASE } from './scripts.ts';

declare module 'ioredis' {
  interface RedisCommander<Context> {
    sidegateClaim(key: string, token: string, fingerprint: string, lease: number): Result<[string, number] | null, Context>;
    sidegateConfirm(key: string, token: string, fingerprint: string, retention: number): Result<number, Context>;
    sidegateRelease(key: string, token: string): Result<number, Context>;
  }
}

/** Told what the operator should know; texts hold no credentials. */
export interface RedisStoreEvents {
  onUp(): void;
  onDown(message: string): void;
  onWarning(message: string): void;
}

/** Connects in the background; until then, and whenever Redis is away, every call rejects at once. */
export function createRedisSeenIds(options: RedisStoreOptions, events: RedisStoreEvents): SeenIds {
  return new RedisSeenIds(options, events);
}

class RedisSeenIds implements SeenIds {
  readonly #client: RedisClient;
  readonly #events: RedisStoreEvents;
  readonly #prefix: string;
  #isUp: boolean | undefined;
  #isClosing = false;

  constructor(options: RedisStoreOptions, events: RedisStoreEvents) {
    this.#events = events;
    this.#prefix = options.keyPrefix;
    this.#client = openRedis(options);
    this.#client.defineCommand('sidegateClaim', { numberOfKeys: 1, lua: CLAIM });
    this.#client.defineCommand('sidegateConfirm', { numberOfKeys: 1, lua: CONFIRM });
    this.#client.defineCommand('sidegateRelease', { numberOfKeys: 1, lua: RELEASE });
    this.#client.on('ready', () => this.#onReady());
    this.#client.on('error', (error: Error) => this.#markDown(error.message));
    this.#client.on('close', () => this.#markDown('the connection to Redis is closed'));
  }

  async claim(request: ClaimRequest): Promise<ClaimResult> {
    const { key, token, fingerprint, leaseMs } = request;
    const found = await this.#run(() => this.#client.sidegateClaim(this.#prefix + key, token, fingerprint, leaseMs));
    if (found === null) return { state: 'new' };
    const [value, remainingMs] = found;
    const sameContent = value.endsWith(` ${fingerprint}`);
    return value.startsWith('h ')
      ? { state: 'handled', sameContent }
      : { state: 'in-progress', remainingMs: Math.max(remainingMs, 0), sameContent };
  }

  async confirm(key: string, token: string, fingerprint: string, retentionMs: Milliseconds): Promise<boolean> {
    return (await this.#run(() => this.#client.sidegateConfirm(this.#prefix + key, token, fingerprint, retentionMs))) === 1;
  }

  async release(key: string, token: string): Promise<boolean> {
    return (await this.#run(() => this.#client.sidegateRelease(this.#prefix + key, token))) === 1;
  }

  isUp(): boolean {
    return this.#isUp === true;
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    this.#client.disconnect();
  }

  async #run<T>(command: () => Promise<T>): Promise<T> {
    try {
      const result = await command();
      if (this.#isUp !== true) this.#markUp();
      return result;
    } catch (thrown) {
      const failure = toFailure(thrown);
      const message = `Redis: ${toErrorText(thrown)}`;
      this.#markDown(message);
      throw new StoreUnavailable(failure, message, { cause: thrown });
    }
  }

  #onReady(): void {
    this.#markUp();
    void this.#warnAboutEviction();
  }

  #markUp(): void {
    if (this.#isUp === true || this.#isClosing) return;
    this.#isUp = true;
    this.#events.onUp();
  }

  #markDown(message: string): void {
    if (this.#isUp === false || this.#isClosing) return;
    this.#isUp = false;
    this.#events.onDown(message);
  }

  /** Best effort: an ACL may forbid CONFIG, and then nobody is worse off. */
  async #warnAboutEviction(): Promise<void> {
    try {
      const found = toMap((await this.#client.config('GET', 'maxmemory*')) as unknown[]);
      const policy = found.get('maxmemory-policy') ?? 'noeviction';
      if (found.get('maxmemory') === '0' || policy === 'noeviction') return;
      this.#events.onWarning(
        `Redis may evict ids before their time (maxmemory-policy ${policy}): an evicted id can be replayed; set noeviction`,
      );
    } catch {
      return;
    }
  }
}

/** The flat list of names and values that CONFIG GET answers. */
function toMap(flat: readonly unknown[]): Map<string, string> {
  const map = new Map<string, string>();
  for (let i = 0; i + 1 < flat.length; i += 2) map.set(String(flat[i]), String(flat[i + 1]));
  return map;
}

function toFailure(thrown: unknown): StoreFailure {
  const text = toErrorText(thrown);
  if (text === 'Command timed out') return 'timeout';
  if (text.startsWith('OOM')) return 'full';
  return /^(?:[A-Z]+ |ReplyError)/.test(text) ? 'error' : 'unreachable';
}
