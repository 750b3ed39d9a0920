/** Appends events to the shards of their endpoints. */
import type { Clock, Milliseconds } from '../../../core/clock.ts';
import { SidegateError } from '../../../core/errors.ts';
import type { Target } from '../../endpoints/target.ts';
import type { AppendResult, NewEvent } from '../delivery-queue.ts';
import { encodeEvent, sizeOf, toList, toText } from './codec.ts';
import { findShard } from './keys.ts';
import type { Argument, Operations, Reply } from './operations.ts';

/** The bounds of all shards together. */
export interface QueueBounds {
  readonly maxEvents: number;
  readonly maxBytes: number;
}

/** The parts that appending uses. */
export interface AppenderSettings {
  /** Of each shard, for what must be durable. */
  readonly writers: readonly Operations[];
  /** Of each shard, for everything else. */
  readonly shards: readonly Operations[];
  readonly bounds: QueueBounds;
  readonly clock: Clock;
  /** Duplicates are confirmed again: the replica may not have them. */
  readonly isReplicated: boolean;
  readonly onDue: (endpoint: string) => void;
}

/** The targets of an event by shard: `[number, targets]`. */
type Plan = readonly (readonly [number, readonly Target[]])[];

/** Events, bytes. */
type Usage = readonly [number, number];

const UNUSED: Usage = [0, 0];
/** Other replicas store events, too: what they store within this time can exceed the bounds. */
const MAX_USAGE_AGE_MS = 1_000;

/** Stores events. With one shard, a call of `append` is one operation, which stores all events or none. */
export class Appender {
  readonly #settings: AppenderSettings;
  /** How much each shard contained when it was last asked: the bounds are for all of them together. */
  readonly #usage: Usage[];
  #readAt: Milliseconds = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | undefined;
  /** Of calls that fitted, and may not be stored yet. */
  #pending: Usage = UNUSED;

  constructor(settings: AppenderSettings) {
    this.#settings = settings;
    this.#usage = settings.shards.map(() => UNUSED);
  }

  async append(events: readonly NewEvent[]): Promise<readonly AppendResult[]> {
    if (events.length === 0) return [];
    const { shards } = this.#settings;
    if (shards.length > 1) {
      const size = await this.#reserve(events);
      try {
        const results: AppendResult[] = [];
        // One after the other: an ID that is twice in the call is stored once.
        for (const event of events) results.push(await this.#appendToShards(event));
        return results;
      } finally {
        this.#pending = add(this.#pending, size, -1);
      }
    }
    const stored = await this.#store(
      0,
      events.map((event) => encodeEvent(event, event.targets, '')),
    );
    return stored.map((isNew) => (isNew ? 'stored' : 'duplicate'));
  }

  /** Reads how full the shards are, for the bounds of the next calls. */
  refresh(): Promise<void> {
    if (this.#settings.shards.length === 1) return Promise.resolve();
    this.#reading ??= this.#readUsage().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #readUsage(): Promise<void> {
    const read = async (number: number, shard: Operations): Promise<void> => {
      const [events, bytes] = toList(await shard.run('stats', []));
      // In the turn of the reply: what is stored after it is counted on top.
      this.#usage[number] = [Number(events), Number(bytes)];
    };
    await Promise.all(this.#settings.shards.map((shard, number) => read(number, shard)));
    this.#readAt = this.#settings.clock.monotonic();
  }

  /**
   * The ID's own shard decides whether the event is new, and keeps the plan until all parts are stored: posting the event again after a crash
   * completes the parts that are missing.
   */
  async #appendToShards(event: NewEvent): Promise<AppendResult> {
    const { shards } = this.#settings;
    const home = findShard(event.id, shards.length);
    const homeShard = shards[home] as Operations;
    let plan = planParts(event.targets, home, shards.length);
    if (plan.length === 1 && plan[0]?.[0] === home) {
      const [isNew] = await this.#store(home, [encodeEvent(event, event.targets, '')]);
      return isNew === true ? 'stored' : 'duplicate';
    }
    const [state, pending] = toList(await homeShard.run('claim', [event.id, JSON.stringify(plan)])).map(toText);
    if (state === 'stored') return this.#confirmDuplicate(pending ?? '', home);
    if (state === 'pending') plan = JSON.parse(pending ?? '[]') as Plan;
    const numbers = plan.map(([number]) => number);
    const results = await Promise.all(
      plan.map(([number, targets]) => this.#store(number, [encodeEvent(event, targets, toParts(numbers, number))])),
    );
    await homeShard.run('confirm', [event.id, numbers.join(',')]);
    return results.some(([isNew]) => isNew) ? 'stored' : 'duplicate';
  }

  async #confirmDuplicate(numbers: string, home: number): Promise<AppendResult> {
    if (this.#settings.isReplicated) {
      const parts = numbers === '' ? [home] : numbers.split(',').map(Number);
      await Promise.all(parts.map((number) => this.#store(number, [])));
    }
    return 'duplicate';
  }

  async #store(number: number, encoded: readonly Argument[][]): Promise<boolean[]> {
    const { writers, bounds, clock, isReplicated, onDue } = this.#settings;
    const [otherEvents, otherBytes] = this.#countOthers(number);
    const limits = [Math.max(bounds.maxEvents - otherEvents, 0), Math.max(bounds.maxBytes - otherBytes, 0)];
    const head = [clock.now(), ...limits, isReplicated ? 1 : 0, encoded.length];
    const [isStored, results, wake] = toList(await (writers[number] as Operations).run('append', [...head, ...encoded.flat()]));
    if (isStored === 0) {
      await this.refresh();
      throw this.#toFull();
    }
    const added: boolean[] = toList(results).map((each: Reply) => each === 1);
    this.#count(number, added, encoded);
    for (const endpoint of toList(wake)) onDue(toText(endpoint));
    return added;
  }

  /** Before anything is stored, so that a call that does not fit stores nothing. Returns what it added to `#pending`. */
  async #reserve(events: readonly NewEvent[]): Promise<Usage> {
    const size = this.#sizeOf(events);
    const isOld = this.#settings.clock.monotonic() - this.#readAt >= MAX_USAGE_AGE_MS;
    if (isOld) await this.refresh();
    if (this.#tryReserve(size)) return size;
    if (!isOld) await this.refresh();
    if (this.#tryReserve(size)) return size;
    const isKnown = await Promise.all(events.map(({ id }) => this.#isKnown(id)));
    const sizeOfNew = this.#sizeOf(events.filter((_, i) => isKnown[i] !== true));
    if (this.#tryReserve(sizeOfNew)) return sizeOfNew;
    throw this.#toFull();
  }

  /** In one turn: calls at the same time must not all fit into the same room. */
  #tryReserve(size: Usage): boolean {
    const { bounds } = this.#settings;
    const pending = add(this.#pending, size, 1);
    const [events, bytes] = add(this.#countOthers(undefined), pending, 1);
    if (events > bounds.maxEvents || bytes > bounds.maxBytes) return false;
    this.#pending = pending;
    return true;
  }

  #sizeOf(events: readonly NewEvent[]): Usage {
    const { length } = this.#settings.shards;
    const bytes = events.reduce((sum, event) => sum + sizeOf(event, countParts(event.targets, length)), 0);
    return [new Set(events.map(({ id }) => id)).size, bytes];
  }

  async #isKnown(id: string): Promise<boolean> {
    const { shards } = this.#settings;
    const [isKnown] = toList(await (shards[findShard(id, shards.length)] as Operations).run('known', [id]));
    return isKnown === 1;
  }

  #toFull(): SidegateError {
    const { maxEvents, maxBytes } = this.#settings.bounds;
    return new SidegateError(
      'system',
      'queue_full',
      `the queue is full: it holds its maximum of ${maxEvents} events or ${maxBytes} bytes`,
    );
  }

  #countOthers(number: number | undefined): Usage {
    let [events, bytes] = UNUSED;
    for (const [other, used] of this.#usage.entries()) {
      if (other === number) continue;
      events += used[0];
      bytes += used[1];
    }
    return [events, bytes];
  }

  #count(number: number, added: readonly boolean[], encoded: readonly Argument[][]): void {
    if (this.#usage.length === 1) return;
    let [events, bytes] = this.#usage[number] ?? UNUSED;
    for (const [i, isNew] of added.entries()) {
      if (!isNew) continue;
      const [, , , size, , parts] = encoded[i] ?? [];
      if (!String(parts).startsWith('-')) events++;
      bytes += Number(size);
    }
    this.#usage[number] = [events, bytes];
  }
}

function add([events, bytes]: Usage, [moreEvents, moreBytes]: Usage, sign: 1 | -1): Usage {
  return [events + sign * moreEvents, bytes + sign * moreBytes];
}

function countParts(targets: readonly Target[], shards: number): number {
  return Math.max(1, new Set(targets.map(({ endpoint }) => findShard(endpoint, shards))).size);
}

function planParts(targets: readonly Target[], home: number, shards: number): Plan {
  const parts = new Map<number, Target[]>();
  for (const target of targets) {
    const number = findShard(target.endpoint, shards);
    const part = parts.get(number);
    if (part === undefined) parts.set(number, [target]);
    else part.push(target);
  }
  return parts.size === 0 ? [[home, []]] : [...parts].toSorted(([one], [other]) => one - other);
}

/** The shards of an event as its part in shard `number` names them; the first one removes the others, which start with a dash. */
export function toParts(numbers: readonly number[], number: number): string {
  if (numbers.length < 2) return '';
  return `${number === numbers[0] ? '' : '-'}${numbers.join(',')}`;
}
