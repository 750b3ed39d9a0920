/** Removes events whose retention is over from the shards. */
import type { EpochMilliseconds } from '../../../core/clock.ts';
import { toList, toText } from './codec.ts';
import { findShard } from './keys.ts';
import type { Operations } from './operations.ts';

const PRUNE_STEP = 200;
/** Open events of a shard that one prune checks for parts without a first part: about a millisecond of Redis. */
const CHECKED_PER_PRUNE = 500;

interface PruneTimes {
  readonly settledBefore: EpochMilliseconds;
  readonly deadBefore: EpochMilliseconds;
  readonly before: EpochMilliseconds;
}

export class Pruner {
  readonly #shards: readonly Operations[];
  /** Of each shard: where the search for orphaned parts goes on. */
  readonly #ranks: number[];

  constructor(shards: readonly Operations[]) {
    this.#shards = shards;
    this.#ranks = shards.map(() => 0);
  }

  /** Removes events oldest first; returns how many. */
  async prune(settledBefore: EpochMilliseconds, deadBefore: EpochMilliseconds, most: number): Promise<number> {
    let removed = 0;
    for (const number of this.#shards.keys()) {
      for (const [set, before] of [
        ['fin', settledBefore],
        ['bad', deadBefore],
      ] as const)
        if (removed < most) removed += await this.#pruneSet(number, set, { settledBefore, deadBefore, before }, most - removed);
    }
    if (this.#shards.length > 1)
      for (const number of this.#shards.keys()) await this.#removeOrphans(number, Math.min(settledBefore, deadBefore));
    return removed;
  }

  async #pruneSet(number: number, set: 'fin' | 'bad', times: PruneTimes, most: number): Promise<number> {
    const shard = this.#shards[number] as Operations;
    let removed = 0;
    let kept = 0;
    let [score, member] = ['', ''];
    while (removed < most) {
      const step = Math.min(PRUNE_STEP, most - removed);
      const found = toList(await shard.run('removable', [set, times.before, score, member, step, kept])).map(toText);
      const ids: string[] = [];
      for (let i = 0; i < found.length; i += 3) {
        [member, score] = [found[i] ?? '', found[i + 1] ?? ''];
        const id = member.slice(10);
        if (await this.#release(number, id, found[i + 2] ?? '', set, times, Number(score))) ids.push(id);
        else kept++;
      }
      removed += await removeAll(shard, ids);
      if (found.length < 3 * step) break;
    }
    return removed;
  }

  /** Removes what other shards know of an event; false if it has to stay. */
  async #release(number: number, id: string, parts: string, set: string, times: PruneTimes, createdAt: number): Promise<boolean> {
    const shards = this.#shards;
    if (shards.length === 1) return true;
    const others = parts.split(',').filter((each) => each !== '' && Number(each) !== number);
    const operations = others.map((other) => shards[Number(other)] as Operations);
    const replies = await Promise.all(operations.map((other) => other.run('part', [id])));
    for (const reply of replies) {
      const [waiting, failed] = toList(reply).map(Number);
      if ((waiting ?? 0) > 0) return false;
      if ((failed ?? 0) > 0 && set === 'fin' && createdAt >= times.deadBefore) return false;
    }
    await (shards[findShard(id, shards.length)] as Operations).run('unclaim', [id]);
    await Promise.all(operations.map((other) => removeAll(other, [id])));
    return true;
  }

  /**
   * The first part of an event removes the others. It does not exist if it could not be stored and the event was not posted again, or if a
   * failover lost it. While the ID is claimed, the event may still be completed.
   */
  async #removeOrphans(number: number, before: EpochMilliseconds): Promise<void> {
    const shards = this.#shards;
    const shard = shards[number] as Operations;
    const [next, ...found] = toList(await shard.run('orphans', [this.#ranks[number] ?? 0, before, CHECKED_PER_PRUNE]));
    this.#ranks[number] = Number(next);
    const remove = async (id: string, parts: string): Promise<void> => {
      const first = Number.parseInt(parts.slice(1), 10);
      if (toList(await (shards[first] as Operations).run('part', [id])).length > 0) return;
      const home = shards[findShard(id, shards.length)] as Operations;
      const [claim = ''] = toList(await home.run('shardsOf', [id])).map(toText);
      if (claim.startsWith('p')) return;
      await home.run('unclaim', [id]);
      await removeAll(shard, [id]);
    };
    const texts = found.map(toText);
    await Promise.all(texts.flatMap((id, i) => (i % 2 === 0 ? [remove(id, texts[i + 1] ?? '')] : [])));
  }
}

/** A call of the script removes a bounded number of deliveries. */
async function removeAll(shard: Operations, ids: readonly string[]): Promise<number> {
  let removed = 0;
  for (let left = ids; left.length > 0; ) {
    const [some = 0, read = left.length] = toList(await shard.run('remove', left)).map(Number);
    removed += some;
    left = left.slice(read);
  }
  return removed;
}
