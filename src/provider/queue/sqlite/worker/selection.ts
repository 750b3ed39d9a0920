/** Turns a filter into SQL that reads a bounded part of an index, so that no list, count or replay keeps other operations waiting. */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { DeliveryFilter, DeliveryState, SettledLater } from '../../delivery-queue.ts';
import { BLOCKED, DEAD, DELIVERED, DUE, getRow, SKIPPED } from './database.ts';
import type { StoreMemory } from './lanes.ts';

type Parameter = string | number;

/** A place between deliveries. */
export interface Position {
  readonly seq: number;
  readonly endpoint: number;
}

/** Deliveries that may match: a range of an index, and conditions on its rows. */
export interface Selection {
  readonly source: string;
  /** Conditions that limit the range of the index. */
  readonly range: readonly string[];
  readonly rangeParameters: readonly Parameter[];
  readonly conditions: readonly string[];
  readonly parameters: readonly Parameter[];
  /** Some conditions concern the event. */
  readonly needsEvent: boolean;
}

const STATES: Readonly<Record<DeliveryState, readonly number[]>> = {
  waiting: [DUE, BLOCKED],
  delivered: [DELIVERED],
  dead: [DEAD],
  skipped: [SKIPPED],
};

/** Selects deliveries of a store. */
export class Selector {
  readonly #db: DatabaseSync;
  readonly #memory: StoreMemory;
  readonly #findEvent: StatementSync;
  readonly #prepared = new Map<string, StatementSync>();

  constructor(db: DatabaseSync, memory: StoreMemory) {
    this.#db = db;
    this.#memory = memory;
    this.#findEvent = db.prepare('SELECT seq FROM event WHERE id = ?');
  }

  findSeq(event: string): number | undefined {
    return getRow<{ seq: number }>(this.#findEvent, event)?.seq;
  }

  /** Undefined: nothing matches. `states`: only these, besides those of the filter. */
  select(filter: DeliveryFilter, states?: readonly DeliveryState[]): Selection | undefined {
    const numbers = pickStates(filter.states, states);
    const seq = filter.event === undefined ? undefined : this.findSeq(filter.event);
    const lane = filter.endpoint === undefined ? undefined : this.#memory.find(filter.endpoint);
    if (numbers?.length === 0) return undefined;
    if ((filter.event !== undefined && seq === undefined) || (filter.endpoint !== undefined && lane === undefined))
      return undefined;
    const range: string[] = [];
    const rangeParameters: Parameter[] = [];
    const conditions: string[] = [];
    const parameters: Parameter[] = [];
    const isFailed = numbers?.every((state) => state > DELIVERED) === true;
    if (seq !== undefined) {
      range.push('d.event = ?');
      rangeParameters.push(seq);
    }
    if (lane !== undefined) {
      range.push('d.endpoint = ?');
      rangeParameters.push(lane.num);
    }
    if (isFailed && seq === undefined) range.push('d.state > 2');
    if (numbers !== undefined) conditions.push(`d.state IN (${numbers.join(', ')})`);
    for (const [condition, value] of [
      ['e.type = ?', filter.type],
      ['e.created >= ?', filter.from],
      ['e.created < ?', filter.to],
    ] as const) {
      if (value === undefined) continue;
      conditions.push(condition);
      parameters.push(value);
    }
    return {
      source: chooseSource(seq !== undefined, lane !== undefined, isFailed),
      range,
      rangeParameters,
      conditions,
      parameters,
      needsEvent: parameters.length > 0,
    };
  }

  /** A statement that was prepared before, or is now. */
  prepare(sql: string): StatementSync {
    const found = this.#prepared.get(sql);
    if (found !== undefined) return found;
    const statement = this.#db.prepare(sql);
    this.#prepared.set(sql, statement);
    return statement;
  }

  /** The position of the row that is `steps` rows of the range further; undefined: the range ends before. */
  findBoundary(selection: Selection, from: Position | undefined, steps: number, isNewestFirst: boolean): Position | undefined {
    const [where, parameters] = joinConditions(selection, from, undefined, isNewestFirst, false);
    const order = isNewestFirst ? 'd.event DESC, d.endpoint DESC' : 'd.event, d.endpoint';
    const sql = `SELECT d.event AS seq, d.endpoint FROM ${selection.source} WHERE ${where} ORDER BY ${order} LIMIT 1 OFFSET ${steps - 1}`;
    return getRow<Position>(this.prepare(sql), ...parameters);
  }
}

/** The selection without deliveries that are settled while a replay runs. */
export function withoutSettled(selection: Selection | undefined, { after, until }: SettledLater): Selection | undefined {
  if (selection === undefined) return undefined;
  const conditions = [...selection.conditions, '(d.settled <= ? OR d.settled > ?)'];
  return { ...selection, conditions, parameters: [...selection.parameters, after, until] };
}

/** The tables that the conditions need. */
export function joinEvents({ source, needsEvent }: Selection): string {
  return needsEvent ? `${source} CROSS JOIN event e ON e.seq = d.event` : source;
}

/** The WHERE clause for rows after `from`, up to `to`, with its parameters. */
export function joinConditions(
  { range, rangeParameters, conditions, parameters }: Selection,
  from: Position | undefined,
  to: Position | undefined,
  isNewestFirst: boolean,
  isFiltered = true,
): readonly [string, readonly Parameter[]] {
  const all = [...range];
  const values = [...rangeParameters];
  if (from !== undefined) {
    all.push(`(d.event, d.endpoint) ${isNewestFirst ? '<' : '>'} (?, ?)`);
    values.push(from.seq, from.endpoint);
  }
  if (to !== undefined) {
    all.push(`(d.event, d.endpoint) ${isNewestFirst ? '>=' : '<='} (?, ?)`);
    values.push(to.seq, to.endpoint);
  }
  if (isFiltered) {
    all.push(...conditions);
    values.push(...parameters);
  }
  return [all.length === 0 ? 'true' : all.join(' AND '), values];
}

function pickStates(
  asked: readonly DeliveryState[] | undefined,
  allowed: readonly DeliveryState[] | undefined,
): readonly number[] | undefined {
  if (asked === undefined && allowed === undefined) return undefined;
  const states = (asked ?? allowed ?? []).filter((state) => allowed === undefined || allowed.includes(state));
  // In a fixed order, so that equal filters share a statement.
  return [...new Set(states.flatMap((state) => STATES[state]))].toSorted((a, b) => a - b);
}

function chooseSource(hasEvent: boolean, hasEndpoint: boolean, isFailed: boolean): string {
  // The primary key.
  if (hasEvent || !(hasEndpoint || isFailed)) return 'delivery d NOT INDEXED';
  if (!isFailed) return 'delivery d INDEXED BY delivery_endpoint';
  return `delivery d INDEXED BY ${hasEndpoint ? 'delivery_failed_endpoint' : 'delivery_failed'}`;
}
