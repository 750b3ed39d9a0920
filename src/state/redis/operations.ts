/** Runs the store's operations in Redis. Operations of one turn of the event loop share a script call; each has a separate result. */
import { createHash } from 'node:crypto';
import { Command } from 'ioredis';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { runNextTurn, whenSettled } from '../../core/safe-events.ts';
import { type StoreFailure, StoreUnavailable } from '../seen-ids.ts';
import { isOfReplica, type RedisClient, TIMED_OUT } from './client.ts';

/**
 * The Lua script of the shared store. One call runs a batch of operations, in the order in which they were submitted; against a
 * Cluster every call has exactly one operation, because all keys of a call must be in one slot. An operation uses one key, or two
 * keys with the same hash tag (`…Both`).
 *
 * Values by kind of key:
 * - ID: `p <token> <fingerprint>` while it is claimed, `h <fingerprint>` once it is handled. The key's TTL is the lease or the
 *   retention.
 * - Resource (ordering): `<version> <until> <token> <until>`, the newest handled version and the token of the event that the app is
 *   handling. Each `until` is the time, by the clock of Redis, from which the part before it counts as absent. An absent part is
 *   `-` and 0. The key's TTL is the later of the two.
 * - Login attempts: the number of failed attempts. The key's TTL is the window, or the ban once the limit is reached.
 *
 * - KEYS: the key of each operation, in order; then the second key of each `…Both`, in order.
 * - ARGV[4i-3 … 4i]: the name and the three arguments of operation i; times in ms.
 * - RETURNS: for each operation the result of its function, or { -1, error }. The failure of one does not affect the others.
 */
export const OPERATE = `
local operations = {}
local command

-- Remembers the command: if the ACL forbids it, Redis does not name it.
local function call(name, ...)
  command = name
  return redis.call(name, ...)
end

-- 1: claimed for the token, also if the call was sent again because its reply was lost; otherwise { value, remaining ms }
function operations.claim(key, token, fingerprint, lease)
  local value = call('GET', key)
  if value and string.find(value, 'p ' .. token .. ' ', 1, true) ~= 1 then return { value, call('PTTL', key) } end
  call('SET', key, 'p ' .. token .. ' ' .. fingerprint, 'PX', lease)
  return 1
end

-- 1: recorded as handled (the token held the claim, or nobody did); 0: another token holds the claim, or the ID is already handled
function operations.confirm(key, token, fingerprint, retention)
  local value = call('GET', key)
  if value and string.find(value, 'p ' .. token .. ' ', 1, true) ~= 1 then return 0 end
  call('SET', key, 'h ' .. fingerprint, 'PX', retention)
  return 1
end

-- 1: the claim was removed; 0: the token does not hold the claim, and nothing changed
function operations.release(key, token)
  local value = call('GET', key)
  if not value or string.find(value, 'p ' .. token .. ' ', 1, true) ~= 1 then return 0 end
  call('DEL', key)
  return 1
end

-- 0: the key was absent; otherwise { the value that was removed, 0 }
function operations.forget(key)
  local value = call('GET', key)
  if not value then return 0 end
  call('DEL', key)
  return { value, 0 }
end

local function readResource(key)
  local time = call('TIME')
  local resource = { now = time[1] * 1000 + math.floor(time[2] / 1000), newest = '-', newestUntil = 0, token = '-', leaseUntil = 0 }
  local newest, newestUntil, token, leaseUntil = string.match(call('GET', key) or '', '^(%S+) (%d+) (%S+) (%d+)$')
  if newest and tonumber(newestUntil) > resource.now then resource.newest, resource.newestUntil = newest, tonumber(newestUntil) end
  if token and tonumber(leaseUntil) > resource.now then resource.token, resource.leaseUntil = token, tonumber(leaseUntil) end
  return resource
end

-- Formats the times explicitly: by default Lua would write numbers this large with fewer digits.
local function writeResource(key, resource)
  local left = math.max(resource.newestUntil, resource.leaseUntil) - resource.now
  if left <= 0 then return call('DEL', key) end
  local value = string.format('%s %.0f %s %.0f', resource.newest, resource.newestUntil, resource.token, resource.leaseUntil)
  call('SET', key, value, 'PX', string.format('%.0f', left))
end

-- 1: the token holds the resource; 0: a newer version was handled; otherwise { '', ms until the other token's lease ends }
function operations.enter(key, version, token, lease)
  local resource = readResource(key)
  if resource.newest ~= '-' and version < resource.newest then return 0 end
  if resource.token ~= '-' and resource.token ~= token then return { '', resource.leaseUntil - resource.now } end
  resource.token, resource.leaseUntil = token, resource.now + tonumber(lease)
  writeResource(key, resource)
  return 1
end

-- Frees the resource if the token holds it, and records the version, if there is one, as handled.
-- 1: the token held it, or it was free and the version was recorded; 0: another token holds it, or there was nothing to do
function operations.leave(key, token, version, retention)
  local resource = readResource(key)
  local isHolder, isFree = resource.token == token, resource.token == '-'
  if isHolder then resource.token, resource.leaseUntil = '-', 0 end
  if version ~= '' and (resource.newest == '-' or version >= resource.newest) then
    local forgottenAt = resource.now + tonumber(retention)
    if version == resource.newest then forgottenAt = math.max(forgottenAt, resource.newestUntil) end
    resource.newest, resource.newestUntil = version, forgottenAt
  end
  if isHolder or version ~= '' then writeResource(key, resource) end
  return (isHolder or (isFree and version ~= '')) and 1 or 0
end

-- The remaining ban of the key in ms, or 0. Writes only if the TTL of a ban is missing.
local function readBan(key, failures, ban)
  if tonumber(call('GET', key) or '0') < failures then return 0 end
  local left = call('PTTL', key)
  if left == -1 then
    call('PEXPIRE', key, ban)
    left = tonumber(ban)
  end
  return math.max(left, 1)
end

local function countAttempt(key, failures, per, ban)
  local count = call('INCR', key)
  if count >= failures then call('PEXPIRE', key, ban)
  elseif count == 1 then call('PEXPIRE', key, per) end
end

-- 0: the attempt was counted for all keys; otherwise { number of the banned key, remaining ban in ms }, and nothing was counted
function operations.attempt(key, failures, per, ban, other)
  failures = tonumber(failures)
  local left = readBan(key, failures, ban)
  if left > 0 then return { '1', left } end
  if other then
    left = readBan(other, failures, ban)
    if left > 0 then return { '2', left } end
    countAttempt(other, failures, per, ban)
  end
  countAttempt(key, failures, per, ban)
  return 0
end

local function revertAttempt(key, failures, per)
  local count = tonumber(call('GET', key) or '0')
  if count <= 1 then return call('DEL', key) end
  call('DECR', key)
  if count == tonumber(failures) then call('PEXPIRE', key, per) end
end

-- 0: the count of the attempt was reverted
function operations.refund(key, failures, per, _, other)
  if other then revertAttempt(other, failures, per) end
  revertAttempt(key, failures, per)
  return 0
end

-- The remaining ban of the key in ms, or 0
function operations.ban(key, failures, ban)
  return readBan(key, tonumber(failures), ban)
end

-- 1: the failed attempts of the key were forgotten; 0: it had none
function operations.lift(key)
  return call('DEL', key)
end

operations.attemptBoth, operations.refundBoth = operations.attempt, operations.refund

local replies, extra = {}, #ARGV / 4
for i = 1, #ARGV / 4 do
  local at, other = 4 * i, nil
  local name = ARGV[at - 3]
  if string.sub(name, -4) == 'Both' then
    extra = extra + 1
    other = KEYS[extra]
  end
  local ok, reply = pcall(operations[name], KEYS[i], ARGV[at - 2], ARGV[at - 1], ARGV[at], other)
  if not ok then reply = { -1, (type(reply) == 'table' and reply.err or tostring(reply)) .. ' (' .. command .. ')' } end
  replies[i] = reply
end
return replies
`;

/** The script's reply to an operation: the new entry and its result. */
export type RedisReply = number | readonly [value: string, remainingMs: Milliseconds];
type RawReply = RedisReply | readonly [failed: -1, error: string];

/** One operation of the script. */
interface StoreOperation {
  readonly name:
    | 'claim'
    | 'confirm'
    | 'release'
    | 'forget'
    | 'enter'
    | 'leave'
    | 'ban'
    | 'lift'
    | `${'attempt' | 'refund'}${'' | 'Both'}`;
  readonly key: string;
  /** Only for `…Both`. In a Cluster it must be in the same slot as `key`. */
  readonly otherKey?: string;
  /** At most three. */
  readonly args: readonly (string | number)[];
}

interface WaitingOperation {
  readonly operation: StoreOperation;
  readonly onReply: (reply: RedisReply) => void;
  readonly reject: (error: unknown) => void;
}

/** As Redis writes its errors. */
const UNEXPECTED = 'ERR the reply is not one of the script of sidegate; is a proxy in front of Redis?';
const TEXT_REPLY = { replyEncoding: 'utf8' } as const;
/** A script blocks Redis while it runs; this many operations take well under a millisecond. */
const MAX_BATCH = 64;
/** The longest time that a confirm waits for a claim to share its call. */
const CONFIRM_WAIT_MS: Milliseconds = 2;
const RECONNECT_INTERVAL_MS: Milliseconds = 2_000;
/** How much the last gap between two claims counts in their average. */
const GAP_WEIGHT = 1 / 8;
/** After a quiet time, a few claims are enough to notice that they are frequent again. */
const MAX_GAP_MS: Milliseconds = 10;

/** Collects operations and sends them in batches. */
export class StoreOperations {
  readonly #client: RedisClient;
  /** Returns the message for the operator. */
  readonly #onFailure: (error: { readonly message?: string }) => string;
  readonly #maxBatch: number;
  #waiting: WaitingOperation[] = [];
  /** The waiting operations are sent in the next turn. */
  #isDue = false;
  #cancelWait: CancelTimer | undefined;
  readonly #clock: Clock;
  readonly #replyWithin: Milliseconds;
  readonly #script = new Script(OPERATE);
  #claimedAt: Milliseconds;
  #reconnectAt: Milliseconds = 0;
  #claimGap: Milliseconds = CONFIRM_WAIT_MS;

  constructor(
    client: RedisClient,
    onFailure: (error: { readonly message?: string }) => string,
    clock: Clock,
    replyWithin: Milliseconds,
  ) {
    this.#client = client;
    this.#onFailure = onFailure;
    this.#clock = clock;
    this.#replyWithin = replyWithin;
    this.#claimedAt = clock.monotonic();
    // In a Cluster all keys of a script call must be in one slot, so each operation is a call.
    this.#maxBatch = client.isCluster ? 1 : MAX_BATCH;
  }

  /** Resolves with what `convert` makes of the reply; it throws for one that the script never gives. Rejects with StoreUnavailable only. */
  run<T>(operation: StoreOperation, convert: (reply: RedisReply) => T): Promise<T> {
    return new Promise((resolve, reject) => {
      const onReply = (reply: RedisReply): void => {
        // A reply that cannot be converted must not keep the others of its batch waiting.
        try {
          resolve(convert(reply));
        } catch {
          reject(this.#toUnavailable(UNEXPECTED));
        }
      };
      this.#waiting.push({ operation, onReply, reject });
      if (operation.name === 'claim') this.#noteClaim();
      if (this.#waiting.length >= this.#maxBatch) this.#send();
      else if (operation.name === 'confirm' && this.#claimGap < CONFIRM_WAIT_MS) this.#sendSoon();
      else this.#sendNextTurn();
    });
  }

  #noteClaim(): void {
    const now = this.#clock.monotonic();
    const gap = Math.min(now - this.#claimedAt, MAX_GAP_MS);
    this.#claimedAt = now;
    this.#claimGap += (gap - this.#claimGap) * GAP_WEIGHT;
  }

  #sendNextTurn(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    runNextTurn(() => this.#send());
  }

  /** While claims are frequent, a confirm goes with the next one: each call less saves a write, and waking up for its response. */
  #sendSoon(): void {
    if (!this.#isDue) this.#cancelWait ??= this.#clock.after(CONFIRM_WAIT_MS, () => this.#send());
  }

  #send(): void {
    this.#isDue = false;
    this.#cancelWait?.();
    this.#cancelWait = undefined;
    const batch = this.#waiting;
    this.#waiting = [];
    // The batch is empty if it was full, and so was sent, before the turn ended.
    if (batch.length > 0) this.#call(batch);
  }

  #call(batch: readonly WaitingOperation[]): void {
    let command: Command;
    const replies = this.#script.call((name, script) => {
      command = toCommand(name, script, batch);
      return this.#client.sendCommand(command) as Promise<unknown>;
    });
    // After a time without CPU, the timer runs before the socket is read: a reply that is already here counts.
    const cancel = this.#clock.after(this.#replyWithin, () => runNextTurn(() => command.reject(new Error(TIMED_OUT))));
    const end = (settle: () => void): void => {
      cancel();
      settle();
    };
    whenSettled(
      replies,
      (given) => end(() => this.#settle(batch, given)),
      (thrown) => end(() => this.#fail(batch, thrown)),
    );
  }

  #fail(batch: readonly WaitingOperation[], thrown: unknown): void {
    const failure = this.#toUnavailable(toErrorText(thrown), thrown as Error);
    for (const { reject } of batch) reject(failure);
  }

  #settle(batch: readonly WaitingOperation[], replies: unknown): void {
    if (!Array.isArray(replies) || replies.length !== batch.length) return this.#fail(batch, new Error(UNEXPECTED));
    for (let i = 0; i < batch.length; i++) {
      const { onReply, reject } = batch[i] as WaitingOperation;
      const reply: unknown = replies[i];
      if (!isRawReply(reply)) reject(this.#toUnavailable(UNEXPECTED));
      else if (isFailure(reply)) reject(this.#toUnavailable(reply[1]));
      else onReply(reply);
    }
  }

  /** The master was demoted: finds the new one. Not again and again if this is a replica without another master. */
  #reconnect(): void {
    const now = this.#clock.monotonic();
    if (now < this.#reconnectAt) return;
    this.#reconnectAt = now + RECONNECT_INTERVAL_MS;
    this.#client.disconnect(true);
  }

  #toUnavailable(text: string, cause?: Error): StoreUnavailable {
    const message = this.#onFailure(cause ?? { message: text });
    // In a Cluster, ioredis follows the redirections.
    if (isOfReplica(text) && !this.#client.isCluster) this.#reconnect();
    return new StoreUnavailable(toFailure(text), message, { cause });
  }
}

/** Sends a script by its digest, or as a whole. */
type Execute<T> = (command: 'evalsha' | 'eval', script: string) => Promise<T>;

/** A script, which Redis keeps under its digest. */
export class Script {
  readonly #text: string;
  readonly #digest: string;

  constructor(text: string) {
    this.#text = text;
    this.#digest = createHash('sha1').update(text).digest('hex');
  }

  /** Calls the script by its digest. Sends the text if Redis does not have it: it was restarted or failed over, or its scripts were flushed. */
  call<T>(execute: Execute<T>): Promise<T> {
    return execute('evalsha', this.#digest).catch((error: unknown) => {
      if (!toErrorText(error).startsWith('NOSCRIPT')) throw error;
      return execute('eval', this.#text);
    });
  }
}

function toCommand(name: 'evalsha' | 'eval', script: string, batch: readonly WaitingOperation[]): Command {
  const keys = batch.map(({ operation }) => operation.key);
  const args: (string | number)[] = [];
  for (const { operation } of batch) {
    const [first = '', second = '', third = ''] = operation.args;
    args.push(operation.name, first, second, third);
    if (operation.otherKey !== undefined) keys.push(operation.otherKey);
  }
  const command = new Command(name, [script, keys.length, ...keys, ...args], TEXT_REPLY);
  // The deadline replaces its timer. A function literal here would stay in the old generation of V8, and keep the command there.
  command.setTimeout = noTimer;
  return command;
}

function noTimer(): void {
  // Sets none.
}

function isRawReply(reply: unknown): reply is RawReply {
  if (!Array.isArray(reply)) return Number.isSafeInteger(reply);
  const [first, second] = reply as readonly unknown[];
  return first === -1 ? typeof second === 'string' : typeof first === 'string' && Number.isSafeInteger(second);
}

function isFailure(reply: RawReply): reply is readonly [-1, string] {
  return typeof reply === 'object' && reply[0] === -1;
}

function toFailure(text: string): StoreFailure {
  if (text === TIMED_OUT) return 'timeout';
  if (text.startsWith('OOM')) return 'full';
  return /^(?:[A-Z]+ |ReplyError)/.test(text) ? 'error' : 'unreachable';
}
