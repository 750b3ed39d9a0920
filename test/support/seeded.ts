/** Random numbers that repeat with their seed (mulberry32), so that a failed run can be run again. */

/** From 0 to below `limit`, whole. */
export type Random = (limit: number) => number;

/** A generator; equal seeds give equal numbers. */
export function createRandom(seed: number): Random {
  let state = seed;
  return (limit) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit;
  };
}

/** That many random bytes. */
export function randomBytes(random: Random, length: number): Buffer {
  return Buffer.from(Array.from({ length }, () => random(256)));
}

/** `bytes` with up to `most` of them replaced, removed or repeated. */
export function mutate(random: Random, bytes: Buffer, most: number): Buffer {
  let mutated = bytes;
  for (let count = random(most) + 1; count > 0; count--) {
    const at = random(mutated.length + 1);
    const end = Math.min(mutated.length, at + random(4));
    mutated = Buffer.concat([mutated.subarray(0, at), randomBytes(random, random(4)), mutated.subarray(end)]);
  }
  return mutated;
}
