/** Runs the operations of the queue's script. Operations on one shard that start while calls are under way share the next one; each has a separate result. */
import { SidegateError, toErrorText } from '../../../core/errors.ts';
import { runDetached, runNextTurn } from '../../../core/safe-events.ts';
import { isOfReplica, type RedisClient } from '../../../state/redis/client.ts';
import { Script } from '../../../state/redis/script.ts';
import { BASE_LUA, RUN_LUA } from './base-script.ts';
import type { Shard } from './keys.ts';
import { LANES_LUA } from './lanes-script.ts';
import { PRUNE_LUA } from './prune-script.ts';
import { RECORDS_LUA } from './records-script.ts';

/** An argument of an operation. */
export type Argument = string | number | Buffer;
/** The result of an operation: Redis gives Lua strings as bytes. */
export type Reply = Buffer | number | readonly Reply[];

/** The names of the operations, which the scripts describe. */
export type OperationName =
  | 'append'
  | 'attempts'
  | 'backlogs'
  | 'begin'
  | 'claim'
  | 'confirm'
  | 'event'
  | 'finish'
  | 'hasten'
  | 'known'
  | 'laneStates'
  | 'listEndpoints'
  | 'orphans'
  | 'part'
  | 'putEndpoint'
  | 'removable'
  | 'remove'
  | 'removeEndpoint'
  | 'replay'
  | 'revision'
  | 'scan'
  | 'settle'
  | 'shardsOf'
  | 'stats'
  | 'sweep'
  | 'take'
  | 'unclaim'
  | 'wake';

/** Callbacks for the outcome of calls. */
export interface OperationEvents {
  onReply(): void;
  /** Returns the message for the operator. */
  onFailure(error: { readonly message?: string }): string;
}

/** How calls are sent. */
export interface OperationSettings {
  readonly client: RedisClient;
  readonly shard: Shard;
  readonly events: OperationEvents;
  /** Waits until a replica has what was written: how long at most, in milliseconds. One batch at a time, so that calls share the wait. */
  readonly confirmWithin?: number;
}

/** For each operation of a call: 1 and its result, or 0 and an error. */
type Replies = readonly (readonly [number, Reply])[];

interface Waiting {
  readonly args: readonly Argument[];
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: SidegateError) => void;
}

const SCRIPT = new Script(`${BASE_LUA}${LANES_LUA}${RECORDS_LUA}${PRUNE_LUA}${RUN_LUA}`);
/** A script blocks Redis while it runs, so a call is limited: 150 events, with ten arguments each, take about 6 ms. */
const MAX_BATCH = 64;
const MAX_BATCH_ARGUMENTS = 1_500;
const MAX_BATCH_BYTES = 1 << 20;
/** At once: one that Redis runs, and one on its way. Meanwhile, operations wait for the next call and share it, which costs less than one each. */
const MAX_CALLS = 2;

/** The operations of one shard. */
export class Operations {
  readonly #settings: OperationSettings;
  readonly #key: string;
  readonly #maxCalls: number;
  #waiting: Waiting[] = [];
  #callsInFlight = 0;
  #isScheduled = false;

  constructor(settings: OperationSettings) {
    this.#settings = settings;
    this.#key = `${settings.shard.prefix}:n`;
    this.#maxCalls = settings.confirmWithin === undefined ? MAX_CALLS : 1;
  }

  /** Rejects with SidegateError `queue_unavailable` and nothing else. */
  run(name: OperationName, args: readonly Argument[]): Promise<Reply> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ args: [name, args.length, ...args], resolve, reject });
      this.#schedule();
    });
  }

  #schedule(): void {
    if (this.#isScheduled || this.#waiting.length === 0 || this.#callsInFlight >= this.#maxCalls) return;
    this.#isScheduled = true;
    runNextTurn(() => {
      this.#isScheduled = false;
      this.#sendWaiting();
    });
  }

  #sendWaiting(): void {
    while (this.#waiting.length > 0 && this.#callsInFlight < this.#maxCalls) runDetached(this.#sendCounted(this.#nextBatch()));
  }

  async #sendCounted(batch: readonly Waiting[]): Promise<void> {
    this.#callsInFlight++;
    try {
      await this.#send(batch);
    } finally {
      this.#callsInFlight--;
      this.#sendWaiting();
    }
  }

  #nextBatch(): readonly Waiting[] {
    let bytes = 0;
    let count = 0;
    let end = 0;
    for (const { args } of this.#waiting) {
      for (const arg of args) bytes += typeof arg === 'number' ? 8 : arg.length;
      count += args.length;
      if (end > 0 && (bytes > MAX_BATCH_BYTES || count > MAX_BATCH_ARGUMENTS || end === MAX_BATCH)) break;
      end++;
    }
    return this.#waiting.splice(0, end);
  }

  async #send(batch: readonly Waiting[]): Promise<void> {
    const args = batch.flatMap((each) => each.args);
    let replies: Replies;
    try {
      replies = (await SCRIPT.call((command, script) => this.#execute(command, script, args))) as Replies;
    } catch (thrown) {
      const error = thrown instanceof SidegateError ? thrown : this.#toUnavailable(toErrorText(thrown), thrown as Error);
      for (const { reject } of batch) reject(error);
      return;
    }
    this.#settings.events.onReply();
    for (const [i, { resolve, reject }] of batch.entries()) {
      const [isDone, reply] = replies[i] ?? [0, Buffer.from('no reply')];
      if (isDone === 1) resolve(reply);
      else reject(this.#toUnavailable(String(reply)));
    }
  }

  async #execute(command: 'evalsha' | 'eval', script: string, args: readonly Argument[]): Promise<unknown> {
    const { client, confirmWithin } = this.#settings;
    // An array: as many arguments of a function as a large batch has would exceed the stack.
    const all = [script, 1, this.#key, ...args];
    if (confirmWithin === undefined) return client.callBuffer(command, all);
    // WAIT confirms what its own connection wrote before. In a Cluster, the key sends the pipeline to the connection of the shard's node.
    const pipeline = client.pipeline();
    pipeline.callBuffer(command, all);
    pipeline.call('wait', 1, confirmWithin);
    const [[failed, replies] = [], [unconfirmed, replicas] = []] = (await pipeline.exec()) ?? [];
    const error = failed ?? unconfirmed;
    if (error !== null && error !== undefined) throw error;
    if (Number(replicas) < 1)
      throw new SidegateError(
        'system',
        'queue_unavailable',
        `no replica of Redis confirmed the events within ${confirmWithin} ms`,
      );
    return replies;
  }

  #toUnavailable(text: string, cause?: Error): SidegateError {
    // Redis responds, and everything but new events is still stored.
    if (text.includes('OOM command not allowed'))
      return new SidegateError('system', 'queue_full', 'the memory of Redis is full (maxmemory)', { cause });
    const message = this.#settings.events.onFailure(cause ?? { message: text });
    // The master was demoted: reconnect to find the new one.
    if (isOfReplica(text)) this.#settings.client.disconnect(true);
    return new SidegateError('system', 'queue_unavailable', message, { cause });
  }
}
