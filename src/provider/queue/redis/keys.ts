/** How the keys of a queue are named, and how endpoints and events are distributed over its shards. */

const SLOTS = 16_384;

/** A shard: keys that are on one node of a Redis Cluster. */
export interface Shard {
  readonly number: number;
  /** Starts every key of the shard, except for the colon that follows. */
  readonly prefix: string;
}

/** The shards of a queue, spread evenly over the slots of a Cluster: by chance, the tags of a few shards would be on the same node. */
export function buildShards(keyPrefix: string, count: number): readonly Shard[] {
  return Array.from({ length: count }, (_, number) => ({ number, prefix: `${keyPrefix}q{${findTag(number, count)}}` }));
}

/** The key that says how the queue is laid out. Its name does not depend on the layout. */
export function toLayoutKey(keyPrefix: string): string {
  return `${keyPrefix}q:layout`;
}

/** The number of the shard that an endpoint, or the ID of an event, belongs to. */
export function findShard(name: string, count: number): number {
  return count === 1 ? 0 : toCrc16(name) % count;
}

/** Finds a tag in the shard's part of the slots: `q0`, or the first of `q0.1`, `q0.2` and so on. */
function findTag(number: number, count: number): string {
  for (let attempt = 0; ; attempt++) {
    const tag = attempt === 0 ? `q${number}` : `q${number}.${attempt}`;
    if (count === 1 || Math.floor(((toCrc16(tag) % SLOTS) * count) / SLOTS) === number) return tag;
  }
}

/** CRC-16/XMODEM, by which a Cluster assigns keys to slots (Redis Cluster specification, "Key distribution model"). */
function toCrc16(text: string): number {
  let crc = 0;
  for (const byte of Buffer.from(text)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = (crc & 0x8000) === 0 ? (crc << 1) & 0xffff : ((crc << 1) ^ 0x1021) & 0xffff;
  }
  return crc;
}
