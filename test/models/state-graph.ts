/** Reads the states of a store's model, and walks through all operations in all of them. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type Check, runTlc } from './tlc.ts';

/** A value that TLC printed: a record is an object, a sequence is an array. */
export type Value = string | number | boolean | readonly Value[] | { readonly [name: string]: Value };

/** An operation that is possible in a state. */
export interface Offer {
  readonly fields: Readonly<Record<string, Value>>;
  readonly reply: Value;
  readonly next: Value;
  /** Names the next state. */
  readonly nextKey: string;
}

/** Runs the operations of a walk on the real store. */
export interface Walker {
  /** Begins again with an empty store. */
  restart(): Promise<void> | void;
  /** Runs the operation, and compares the reply and the store with what the model says. */
  step(offer: Offer): Promise<void>;
}

interface Node {
  readonly offers: readonly Offer[];
  /** Offers that were not walked yet. */
  left: Offer[];
}

/** A state on a way, and the operation that leads to it. */
interface Step {
  readonly key: string;
  readonly offer: Offer | undefined;
  readonly before: Step | undefined;
}

const CACHE = resolve('.cache', 'models');
const TOKEN = /<<|>>|\|->|[[\]{},]|"[^"]*"|-?\d+|\w+/g;

/** The states of one model; every state has the variables `state` and `offers`. */
export class StateGraph {
  readonly #nodes = new Map<string, Node>();
  #start = '';

  constructor(dump: string) {
    for (const text of dump.split(/^State \d+:$/m).slice(1)) {
      const variables = readVariables(text);
      const key = JSON.stringify(variables['state']);
      const offers = (variables['offers'] as readonly Record<string, Value>[]).map(toOffer);
      if (this.#nodes.size === 0) this.#start = key;
      this.#nodes.set(key, { offers, left: [...offers] });
    }
  }

  get size(): number {
    return this.#nodes.size;
  }

  /** Walks until every operation was run in every state; returns the number of different pairs. Only operations that `isIncluded` selects. */
  async cover(walker: Walker, isIncluded: (offer: Offer) => boolean = () => true): Promise<number> {
    for (const node of this.#nodes.values()) node.left = node.offers.filter(isIncluded);
    let walked = 0;
    let at: string | undefined;
    for (;;) {
      const path = (at === undefined ? undefined : this.#findPath(at, isIncluded)) ?? this.#findPath(this.#start, isIncluded);
      if (path === undefined) return walked;
      if (at === undefined || path.from !== at) await walker.restart();
      for (const offer of path.offers) await walker.step(offer);
      walked++;
      at = path.offers.at(-1)?.nextKey;
    }
  }

  /** The shortest way from a state to an operation that was not walked yet, which is then the last one. */
  #findPath(from: string, isIncluded: (offer: Offer) => boolean): { from: string; offers: readonly Offer[] } | undefined {
    const found: Step[] = [{ key: from, offer: undefined, before: undefined }];
    const seen = new Set([from]);
    for (const step of found) {
      const node = this.#nodes.get(step.key);
      if (node === undefined) throw new Error(`the model has no state ${step.key}`);
      const left = node.left.pop();
      if (left !== undefined) return { from, offers: [...toOffers(step), left] };
      for (const offer of node.offers) {
        if (seen.has(offer.nextKey) || !isIncluded(offer)) continue;
        seen.add(offer.nextKey);
        found.push({ key: offer.nextKey, offer, before: step });
      }
    }
    return undefined;
  }
}

/** Lets TLC compute all states. */
export async function readStateGraph(module: string, constants: Check['constants']): Promise<StateGraph> {
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, 'graph-'));
  const dump = join(folder, 'states.dump');
  try {
    await runTlc({ module, constants, dump });
    return new StateGraph(readFileSync(dump, 'utf8'));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function toOffers(step: Step): Offer[] {
  const offers: Offer[] = [];
  for (let at: Step | undefined = step; at?.offer !== undefined; at = at.before) offers.unshift(at.offer);
  return offers;
}

function toOffer({ reply = [], next = {}, ...fields }: Record<string, Value>): Offer {
  return { fields, reply, next, nextKey: JSON.stringify(next) };
}

function readVariables(text: string): Record<string, Value> {
  const variables: Record<string, Value> = {};
  for (const part of text.split(/^\/\\ /m).slice(1)) {
    const at = part.indexOf(' = ');
    variables[part.slice(0, at)] = readValue(part.slice(at + 3));
  }
  return variables;
}

/** Reads a value in TLA+. The fields of records are sorted, so that equal values have equal JSON. */
function readValue(text: string): Value {
  const tokens = text.match(TOKEN) ?? [];
  let position = 0;
  const read = (): Value => {
    const token = tokens[position++] ?? '';
    if (token === '<<') return readList('>>');
    if (token === '[') return readRecord();
    if (token.startsWith('"')) return token.slice(1, -1);
    if (token === 'TRUE' || token === 'FALSE') return token === 'TRUE';
    return Number(token);
  };
  const readList = (end: string): Value[] => {
    const values: Value[] = [];
    while (tokens[position] !== end) {
      values.push(read());
      if (tokens[position] === ',') position++;
    }
    position++;
    return values;
  };
  const readRecord = (): Record<string, Value> => {
    const fields: [string, Value][] = [];
    while (tokens[position] !== ']') {
      const name = tokens[position] ?? '';
      // The arrow.
      position += 2;
      fields.push([name, read()]);
      if (tokens[position] === ',') position++;
    }
    position++;
    return Object.fromEntries(fields.sort(([a], [b]) => (a < b ? -1 : 1)));
  };
  return read();
}
