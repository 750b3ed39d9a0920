/** Lists and replays what the shards contain. */

import type { Clock, EpochMilliseconds } from '../../../core/clock.ts';
import { SidegateError } from '../../../core/errors.ts';
import {
  type AttemptRecord,
  type DeliveryFilter,
  type DeliveryPage,
  type Page,
  type ReplayProgress,
  type StoredEvent,
  toSettledLater,
} from '../delivery-queue.ts';
import { toParts } from './append.ts';
import {
  decodeAttempts,
  decodeEvent,
  decodeRow,
  encodeEvent,
  type Position,
  type Row,
  toLetters,
  toList,
  toText,
} from './codec.ts';
import { findShard } from './keys.ts';
import type { Operations } from './operations.ts';

/** The parts that the records use. */
export interface RecordsSettings {
  readonly shards: readonly Operations[];
  readonly clock: Clock;
  readonly onDue: (endpoint: string) => void;
}

/** Events, and deliveries, that one call of the script reads at most. */
const SCAN_STEP = 500;
/** The same of a shard for one page: a page may be shorter than its limit, although more follow. */
const MAX_SCANNED = 50_000;
const REPLAY_STEP = 250;
const MAX_POSITION_LENGTH = 1_000;

export class Records {
  readonly #settings: RecordsSettings;

  constructor(settings: RecordsSettings) {
    this.#settings = settings;
  }

  async getEvent(id: string): Promise<StoredEvent | undefined> {
    const found = await this.#locate(id);
    return found?.event;
  }

  async findAttempts(event: string, endpoint: string): Promise<readonly AttemptRecord[] | undefined> {
    const [attempts] = toList(await this.#shardOf(endpoint).run('attempts', [event, endpoint]));
    return attempts === undefined ? undefined : decodeAttempts(attempts);
  }

  async find(filter: DeliveryFilter, { limit, after }: Page): Promise<DeliveryPage> {
    const from = after === undefined ? undefined : parsePosition(after);
    const { rows, next } = await this.#list(filter, limit, from);
    const page = { deliveries: rows.map(({ record }) => record) };
    return next === undefined ? page : { ...page, next: formatPosition(next) };
  }

  async *replay(filter: DeliveryFilter, now: EpochMilliseconds): AsyncGenerator<ReplayProgress> {
    const states = (filter.states ?? (['delivered', 'dead', 'skipped'] as const)).filter((state) => state !== 'waiting');
    const settled: DeliveryFilter = { ...filter, states };
    let total = 0;
    for await (const rows of this.#steps(settled, now)) total += rows.length;
    if (total === 0 && (await this.#create(filter, now))) {
      yield { replayed: 1, total: 1 };
      return;
    }
    let replayed = 0;
    for await (const rows of this.#steps(settled, now)) {
      // Less than counted if another replay made some of them due meanwhile, or they were pruned.
      replayed += await this.#revive(rows, now);
      yield { replayed, total: Math.max(total, replayed) };
    }
    yield { replayed, total: replayed };
  }

  #shardOf(endpoint: string): Operations {
    const { shards } = this.#settings;
    return shards[findShard(endpoint, shards.length)] as Operations;
  }

  /** Finds an event and the numbers of its shards. */
  async #locate(id: string): Promise<{ event: StoredEvent; numbers: readonly number[] } | undefined> {
    const { shards } = this.#settings;
    const home = findShard(id, shards.length);
    const [value] = shards.length === 1 ? [] : toList(await (shards[home] as Operations).run('shardsOf', [id])).map(toText);
    // While the event is being stored, and in the ID's own shard, nothing says where it is.
    const numbers = value?.startsWith('s') === true ? value.slice(1).split(',').map(Number) : [...shards.keys()];
    const replies = await Promise.all(numbers.map((number) => (shards[number] as Operations).run('event', [id])));
    const found = numbers.filter((_, i) => toList(replies[i]).length > 0);
    for (const reply of replies) {
      const event = decodeEvent(id, reply);
      if (event !== undefined) return { event, numbers: found };
    }
    return undefined;
  }

  /** A page of all shards, with the position where the next one starts. */
  async #list(filter: DeliveryFilter, limit: number, from: Position | undefined): Promise<{ rows: Row[]; next?: Position }> {
    if (filter.states?.length === 0) return { rows: [] };
    const { shards } = this.#settings;
    const asked = filter.endpoint === undefined ? shards : [this.#shardOf(filter.endpoint)];
    const parts = await Promise.all(asked.map((shard) => scanShard(shard, filter, limit, from)));
    if (parts.length === 1 && parts[0] !== undefined) return parts[0];
    return mergeParts(parts, limit);
  }

  /** Rows that were settled when the replay started; each row once, because positions only go back. */
  async *#steps(filter: DeliveryFilter, start: EpochMilliseconds): AsyncGenerator<readonly Row[]> {
    let from: Position | undefined;
    do {
      const { rows, next } = await this.#list(filter, REPLAY_STEP, from);
      from = next;
      const { after, until } = toSettledLater(start, this.#settings.clock.now());
      const found = rows.filter(({ record: { settledAt = 0 } }) => settledAt <= after || settledAt > until);
      if (found.length > 0) yield found;
    } while (from !== undefined);
  }

  /** Returns how many deliveries it made due. */
  async #revive(rows: readonly Row[], now: EpochMilliseconds): Promise<number> {
    const { shards, onDue } = this.#settings;
    const parts = Map.groupBy(rows, ({ endpoint }) => findShard(endpoint, shards.length));
    const replies = await Promise.all(
      [...parts].map(([number, part]) =>
        (shards[number] as Operations).run('replay', [now, 0, ...part.flatMap(({ record }) => [record.event, record.endpoint])]),
      ),
    );
    let changed = 0;
    for (const [count, wake] of replies.map(toList)) {
      changed += Number(count);
      for (const endpoint of toList(wake)) onDue(toText(endpoint));
    }
    return changed;
  }

  /** Creates the delivery of an event to an endpoint that it was not for. */
  async #create(filter: DeliveryFilter, now: EpochMilliseconds): Promise<boolean> {
    const { event: id, endpoint, type, states, from, to } = filter;
    if (id === undefined || endpoint === undefined || states !== undefined) return false;
    const found = await this.#locate(id);
    if (found === undefined) return false;
    const { event, numbers } = found;
    if (type !== undefined && type !== event.type) return false;
    if (event.createdAt < (from ?? event.createdAt) || event.createdAt >= (to ?? event.createdAt + 1)) return false;
    const { shards, onDue } = this.#settings;
    const number = findShard(endpoint, shards.length);
    const shard = shards[number] as Operations;
    if (!numbers.includes(number)) {
      const all = [...numbers, number];
      await (shards[findShard(id, shards.length)] as Operations).run('confirm', [id, all.join(',')]);
      // As if there were no bounds: the event is stored already, only not in this shard.
      const unbounded = [now, Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER, 0, 1];
      await shard.run('append', [...unbounded, ...encodeEvent(event, [], toParts(all, number))]);
    }
    const [changed, wake] = toList(await shard.run('replay', [now, 1, id, endpoint]));
    for (const each of toList(wake)) onDue(toText(each));
    return changed === 1;
  }
}

interface Part {
  readonly rows: Row[];
  readonly next?: Position;
}

async function scanShard(shard: Operations, filter: DeliveryFilter, limit: number, from: Position | undefined): Promise<Part> {
  const { from: start, to: end, states, endpoint = '', type = '', event = '' } = filter;
  const rows: Row[] = [];
  let at = from;
  for (let scanned = 0; ; scanned += SCAN_STEP) {
    const to = at?.score ?? (end === undefined ? '+inf' : `(${end}`);
    const position = [at?.score ?? '', at?.member ?? '', at?.endpoint ?? ''];
    const left = limit - rows.length;
    const [found, ...next] = toList(
      await shard.run('scan', [start ?? '-inf', to, ...position, left, toLetters(states), endpoint, type, event, SCAN_STEP]),
    );
    rows.push(...toList(found).map(decodeRow));
    if (next.length === 0) return { rows };
    const [score = '', member = '', last = ''] = next.map(toText);
    at = { score, member, endpoint: last };
    if (rows.length >= limit || scanned + SCAN_STEP >= MAX_SCANNED) return { rows, next: at };
  }
}

/** The first rows of all shards, up to where every shard was read. */
function mergeParts(parts: readonly Part[], limit: number): Part {
  const ends = parts.flatMap(({ next }) => (next === undefined ? [] : [next]));
  const [end] = ends.toSorted(comparePositions);
  const rows = parts.flatMap((part) => part.rows).filter((row) => end === undefined || comparePositions(row, end) <= 0);
  const sorted = rows.toSorted(comparePositions);
  const page = sorted.slice(0, limit);
  const last = page.at(-1);
  if (sorted.length > limit && last !== undefined) return { rows: page, next: toPosition(last) };
  return end === undefined ? { rows: page } : { rows: page, next: end };
}

/** Newest first, as the script lists them. */
function comparePositions(one: Position, other: Position): number {
  if (one.score !== other.score) return Number(other.score) - Number(one.score);
  if (one.member !== other.member) return one.member < other.member ? 1 : -1;
  if (one.endpoint === other.endpoint) return 0;
  return one.endpoint < other.endpoint ? 1 : -1;
}

function toPosition({ score, member, endpoint }: Position): Position {
  return { score, member, endpoint };
}

function formatPosition({ score, member, endpoint }: Position): string {
  return Buffer.from(JSON.stringify([score, member, endpoint])).toString('base64url');
}

function parsePosition(text: string): Position {
  const invalid = new SidegateError('user', 'invalid_position', 'the position is not one that a list returned');
  if (text === '' || text.length > MAX_POSITION_LENGTH) throw invalid;
  try {
    const [score, member, endpoint] = JSON.parse(Buffer.from(text, 'base64url').toString()) as unknown[];
    if (
      typeof score === 'string' &&
      typeof member === 'string' &&
      typeof endpoint === 'string' &&
      Number.isFinite(Number(score)) &&
      score !== ''
    )
      return { score, member, endpoint };
  } catch {
    throw invalid;
  }
  throw invalid;
}
