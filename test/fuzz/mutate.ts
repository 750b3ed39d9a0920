/** Mutates inputs: bytes, and pieces of the input's own language. */
import type { Random } from './random.ts';

/** What the mutations of a target are made of. */
export interface Material {
  /** Inputs that are kept: the seeds, and those that ran new code. */
  readonly corpus: readonly Buffer[];
  /** Pieces of the input's language, as Latin-1. */
  readonly pieces: readonly string[];
  /** Of an input. */
  readonly maxBytes: number;
}

const MAX_STEPS = 6;
const MAX_COPY = 64;
const EDGES = [
  '0',
  '-1',
  '1',
  '255',
  '256',
  '65535',
  '65536',
  '2147483648',
  '4294967296',
  '9007199254740993',
  '1e999',
  '00',
  '+1',
];

type Mutation = (input: Buffer, random: Random, material: Material) => Buffer;

const MUTATIONS: readonly Mutation[] = [
  (input, random) => replace(input, random, 1, Buffer.from([random.below(256)])),
  (input, random) => replace(input, random, 1, Buffer.from([(input[random.below(input.length)] ?? 0) ^ (1 << random.below(8))])),
  (input, random) => replace(input, random, random.below(MAX_COPY), Buffer.alloc(0)),
  (input, random) => replace(input, random, 0, cut(input, random)),
  (input, random) => replace(input, random, 0, Buffer.alloc(random.below(MAX_COPY), cut(input, random, 4))),
  (input, random, { pieces }) => replace(input, random, 0, toPiece(random, pieces)),
  (input, random, { pieces }) => replace(input, random, random.below(8), toPiece(random, pieces)),
  (input, random, { pieces }) => replace(input, random, random.below(8), toPiece(random, pieces)),
  (input, random) => replace(input, random, random.below(4), Buffer.from(random.pick(EDGES))),
  (input, random, { corpus }) => replace(input, random, random.below(MAX_COPY), cut(random.pick(corpus), random)),
  (input, random, { corpus }) => {
    const other = random.pick(corpus);
    return Buffer.concat([input.subarray(0, random.below(input.length + 1)), other.subarray(random.below(other.length + 1))]);
  },
];

/** Mutates one of the corpus. */
export function makeInput(random: Random, material: Material): Buffer {
  let input = random.pick(material.corpus);
  for (let steps = 1 + random.below(MAX_STEPS); steps > 0; steps--) input = random.pick(MUTATIONS)(input, random, material);
  return input.subarray(0, material.maxBytes);
}

/** Removes all that the failure does not need; `fails` says whether it still happens. */
export async function shrink(input: Buffer, fails: (smaller: Buffer) => Promise<boolean>): Promise<Buffer> {
  let smallest = input;
  for (let size = Math.ceil(input.length / 2); size > 0; size = Math.floor(size / 2))
    for (let at = 0; at < smallest.length; ) {
      const smaller = Buffer.concat([smallest.subarray(0, at), smallest.subarray(at + size)]);
      if (await fails(smaller)) smallest = smaller;
      else at += size;
    }
  return smallest;
}

/** An expression that a test can contain. */
export function toSource(input: Buffer): string {
  return `Buffer.from(${JSON.stringify(input.toString('latin1'))}, 'latin1')`;
}

function replace(input: Buffer, random: Random, length: number, by: Buffer): Buffer {
  const at = random.below(input.length + 1);
  return Buffer.concat([input.subarray(0, at), by, input.subarray(at + length)]);
}

function cut(input: Buffer, random: Random, max = MAX_COPY): Buffer {
  const at = random.below(input.length);
  const part = input.subarray(at, at + 1 + random.below(max));
  return part.length === 0 ? Buffer.from('x') : part;
}

function toPiece(random: Random, pieces: readonly string[]): Buffer {
  return Buffer.from(random.pick(pieces), 'latin1');
}
