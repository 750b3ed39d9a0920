/** Runs the store's operations in Redis: all of one turn of the event loop in one script call, each with a result of its own. */
import type { Result } from 'ioredis';
import type { Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { runDetached, runNextTurn } from '../../core/safe-events.ts';
import { type StoreFailure, StoreUnavailable } from '../claims/seen-ids.ts';
import type { RedisClient } from './client.ts';
import { OPERATE } from './scripts.ts';

/** What the script answers an operation (scripts.ts). */
export type Reply = number | readonly [value: string, remainingMs: Milliseconds];
type RawReply = Reply | readonly [failed: -1, error: string];

declare module 'ioredis' {
  interface RedisCommander<Context> {
    sidegateOperate(...keysAndArguments: (string | number)[]): Result<RawReply[], Context>;
    sidegateOperateBoth(...keysAndArguments: (string | number)[]): Result<RawReply[], Context>;
  }
}

/** One operation, as the script knows it. */
export interface Operation {
  readonly name: 'claim' | 'confirm' | 'release' | 'forget' | 'enter' | 'leave' | `${'attempt' | 'refund'}${'' | 'Both'}`;
  readonly key: string;
  /** Only of `…Both`. In a Cluster it must be in the slot of `key`. */
  readonly otherKey?: string;
  /** At most three. */
  readonly args: readonly (string | number)[];
}

/** Told how the store does, after each call. */
export interface OperationEvents {
  onAnswer(): void;
  /** Returns what the operator is shown. */
  onFailure(error: { readonly message?: string }): string;
}

interface Waiting {
  readonly operation: Operation;
  readonly resolve: (reply: Reply) => void;
  readonly reject: (failure: StoreUnavailable) => void;
}

/** A script blocks Redis while it runs: so many take well under a millisecond. */
const MOST_TOGETHER = 64;

/** Gathers operations and sends them. */
export class Operations {
  readonly #client: RedisClient;
  readonly #events: OperationEvents;
  readonly #mostTogether: number;
  #waiting: Waiting[] = [];

  constructor(client: RedisClient, events: OperationEvents) {
    this.#client = client;
    this.#events = events;
    // A script's keys must share a Cluster's slot: there each operation is a call, and ioredis sends those of a turn together.
    this.#mostTogether = client.isCluster ? 1 : MOST_TOGETHER;
    // ioredis finds a call's slot by its first argument, so that must be the key there, not the number of keys.
    // For a Cluster, ioredis must know which arguments are keys before it chooses a node.
    const define = (name: string, keys: number): void =>
      client.defineCommand(name, { lua: OPERATE, ...(client.isCluster ? { numberOfKeys: keys } : undefined) });
    define('sidegateOperate', 1);
    define('sidegateOperateBoth', 2);
  }

  /** Rejects with StoreUnavailable and nothing else. */
  run(operation: Operation): Promise<Reply> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ operation, resolve, reject });
      if (this.#waiting.length >= this.#mostTogether) this.#send();
      else if (this.#waiting.length === 1) runNextTurn(() => this.#send());
    });
  }

  #send(): void {
    const batch = this.#waiting;
    this.#waiting = [];
    // It was full before the turn was over.
    if (batch.length > 0) runDetached(this.#call(batch));
  }

  async #call(batch: readonly Waiting[]): Promise<void> {
    const keys: string[] = [];
    const args: (string | number)[] = [];
    for (const { operation } of batch) {
      keys.push(operation.key);
      const [first = '', second = '', third = ''] = operation.args;
      args.push(operation.name, first, second, third);
    }
    for (const { operation } of batch) if (operation.otherKey !== undefined) keys.push(operation.otherKey);
    let replies: readonly RawReply[];
    try {
      replies = await this.#operate(keys, args);
    } catch (thrown) {
      const failure = this.#toUnavailable(toErrorText(thrown), thrown as Error);
      for (const { reject } of batch) reject(failure);
      return;
    }
    for (const [i, { resolve, reject }] of batch.entries()) {
      const reply = replies[i] as RawReply;
      if (isFailure(reply)) {
        reject(this.#toUnavailable(reply[1]));
      } else {
        this.#events.onAnswer();
        resolve(reply);
      }
    }
  }

  #operate(keys: readonly string[], args: readonly (string | number)[]): Promise<RawReply[]> {
    if (!this.#client.isCluster) return this.#client.sidegateOperate(keys.length, ...keys, ...args);
    if (keys.length === 1) return this.#client.sidegateOperate(...keys, ...args);
    return this.#client.sidegateOperateBoth(...keys, ...args);
  }

  #toUnavailable(text: string, cause?: Error): StoreUnavailable {
    const message = this.#events.onFailure(cause ?? { message: text });
    // A demoted master: go and find the new one.
    if (text.startsWith('READONLY')) this.#client.disconnect(true);
    return new StoreUnavailable(toFailure(text), message, { cause });
  }
}

function isFailure(reply: RawReply): reply is readonly [-1, string] {
  return typeof reply === 'object' && reply[0] === -1;
}

function toFailure(text: string): StoreFailure {
  if (text === 'Command timed out') return 'timeout';
  if (text.startsWith('OOM')) return 'full';
  return /^(?:[A-Z]+ |ReplyError)/.test(text) ? 'error' : 'unreachable';
}
