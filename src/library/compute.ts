/**
 * Runs the code of the gate, which computes hashes and signatures synchronously, where the platform computes them asynchronously: WebCrypto.
 * The code is a pure function of the request, so it can run again: where it needs a result that is not there yet, it stops, the result is
 * computed, and the code runs from the start. Results are found by their inputs, never by their order.
 */

/** The input of an operation: bytes, text, or the identity of a key. */
type Input = Uint8Array | string | object;

/** An operation of WebCrypto, and its result once there is one. */
class Computation<Result> {
  readonly name: string;
  readonly inputs: readonly Input[];
  readonly start: () => Promise<Result>;
  result: Result | undefined;

  constructor(name: string, inputs: readonly Input[], start: () => Promise<Result>) {
    this.name = name;
    this.inputs = inputs;
    this.start = start;
  }
}

/** More than any request needs: each signature may have to be tried with each key. */
const MAX_OPERATIONS = 1_000;

/** The results for the work that runs right now; undefined between two turns of it. Work never runs inside other work. */
const CURRENT: { operations?: Computation<unknown>[] | undefined; reused?: Reused[] | undefined } = {};

/** A result of earlier runs of the work. It is one object for all of them, which needs no comparison as an input. */
interface Reused {
  readonly inputs: readonly Input[];
  readonly result: Buffer;
}

/** Makes bytes from inputs, once for all runs of the work. */
export function reuse(inputs: readonly Input[], make: () => Buffer): Buffer {
  const { reused = [] } = CURRENT;
  const known = reused.find((each) => areSame(each.inputs, inputs));
  if (known !== undefined) return known.result;
  const result = make();
  reused.push({ inputs, result });
  return result;
}

/** The result of an operation. Throws to stop the work that `compute` runs, if it must be computed first. */
export function need<Result>(name: string, inputs: readonly Input[], start: () => Promise<Result>): Result {
  const { operations } = CURRENT;
  if (operations === undefined) throw new Error(`${name} outside of compute()`);
  const known = operations.find((each) => each.name === name && areSame(each.inputs, inputs));
  if (known !== undefined) return known.result as Result;
  throw new Computation(name, inputs, start);
}

/** Runs `work` until everything that it needs is computed. All its cryptography must come before its first `await`. */
export async function compute<Result>(work: () => Result | Promise<Result>): Promise<Result> {
  const operations: Computation<unknown>[] = [];
  const reused: Reused[] = [];
  while (operations.length <= MAX_OPERATIONS) {
    try {
      return await runWith({ operations, reused }, work);
    } catch (thrown) {
      if (!(thrown instanceof Computation)) throw thrown;
      thrown.result = await thrown.start();
      operations.push(thrown);
    }
  }
  throw new Error('the request needs too many operations');
}

function runWith<Result>(results: typeof CURRENT, work: () => Result): Result {
  Object.assign(CURRENT, results);
  try {
    return work();
  } finally {
    Object.assign(CURRENT, { operations: undefined, reused: undefined });
  }
}

function areSame(one: readonly Input[], other: readonly Input[]): boolean {
  return one.length === other.length && one.every((input, at) => isSame(input, other[at]));
}

function isSame(one: Input, other: Input | undefined): boolean {
  if (one === other) return true;
  if (!(one instanceof Uint8Array) || !(other instanceof Uint8Array) || one.length !== other.length) return false;
  for (let at = 0; at < one.length; at++) if (one[at] !== other[at]) return false;
  return true;
}
