import { existsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import type { Settlement } from '../../../src/provider/queue/delivery-queue.ts';

import { PostgresDatabase } from '../../../src/provider/queue/postgres/postgres-database.ts';
import type { Database } from '../../../src/provider/queue/sql/database.ts';
import { DEAD, DELIVERED, DUE, SKIPPED } from '../../../src/provider/queue/sql/schema.ts';
import {
  type Operation,
  type OperationKind,
  type Operations,
  type Results,
  Store,
} from '../../../src/provider/queue/sql/store.ts';
import { SqliteDatabase } from '../../../src/provider/queue/sqlite/sqlite-database.ts';
import { makeFolder } from '../../support/fixtures.ts';
import { startPostgres } from '../../support/postgres.ts';
import { newEvent } from '../../support/queue/events.ts';
import { toTarget } from '../../support/queue/postgres-store.ts';
import { WIDE_BOUNDS } from '../../support/queue/sqlite-store.ts';
import { type Offer, readStateGraph, type StateGraph, type Value, type Walker } from '../state-graph.ts';

const CONSTANTS = { MaxAttempts: 1, Mutation: 'none' };
/** `Never` of the model. */
const NEVER = 99;
const STEP_MS = 1_000;
const MEMORY = '/dev/shm';
const STATES: Readonly<Record<number, string>> = {
  [DUE]: 'waiting',
  [DELIVERED]: 'delivered',
  [DEAD]: 'dead',
  [SKIPPED]: 'skipped',
};
/** A repair leaves out what is settled while it runs. */

let graph: StateGraph;
beforeAll(async () => {
  graph = await readStateGraph('lanes/LaneStoreGraph', CONSTANTS);
});

/** Runs the operations of two processes and of the clock on one database, for one delivery of one endpoint. */
class StoreWalker implements Walker {
  readonly #database: Database;
  #processes: readonly Store[] = [];
  #taken: (Results['take']['taken'][number] | undefined)[] = [];
  #count = 0;
  #now = 1_800_000_000_000;

  constructor(database: Database) {
    this.#database = database;
  }

  restart(): void {
    this.#count++;
    this.#processes = [0, 1].map(() => new Store(this.#database, WIDE_BOUNDS));
    this.#taken = [];
  }

  async step(offer: Offer): Promise<void> {
    expect(await this.#operate(offer), JSON.stringify(offer)).toEqual(offer.reply);
    const { delivery, owner } = offer.next as { readonly delivery: Value; readonly owner: Value };
    expect(await this.#read(), JSON.stringify(offer)).toEqual({ delivery, owner });
  }

  #operate({ fields }: Offer): Promise<Value> | Value {
    const process = Number(fields['process']);
    switch (fields['operation']) {
      case 'append':
        return this.#append();
      case 'own':
        return this.#own(process);
      case 'take':
        return this.#take(process);
      case 'settle':
        return this.#settle(process, String(fields['kind']));
      case 'retry':
      case 'cancel':
        return this.#repair(fields['operation']);
      default:
        this.#now += STEP_MS;
        return true;
    }
  }

  async #append(): Promise<Value> {
    const { body, ...event } = newEvent([this.#endpoint], { id: this.#event });
    const message = { ...event, bodyLength: body.length };
    const [result = ''] = await this.#run(1, 'append', { events: [message], now: this.#now }, [body]);
    return result;
  }

  /** The lease itself is not part of the store. */
  async #own(process: number): Promise<Value> {
    await this.#database.run('UPDATE lane SET owner = ? WHERE name = ?', [toHolder(process), this.#endpoint]);
    // SQLite has one process, which remembers its rows.
    this.#database.memory?.clear();
    return true;
  }

  async #take(process: number): Promise<Value> {
    const operation = { endpoint: this.#endpoint, run: 1, limit: 4, now: this.#now, only: undefined, returned: [] };
    const { taken } = await this.#run(process, 'take', operation);
    this.#taken[process] = taken[0] ?? this.#taken[process];
    return taken.length === 1;
  }

  async #settle(process: number, kind: string): Promise<Value> {
    const taken = this.#taken[process];
    if (taken === undefined) throw new Error('the process has no delivery');
    const { seq, event, attempt, due, facts } = taken;
    const { isLost } = await this.#run(process, 'settle', {
      endpoint: this.#endpoint,
      run: 1,
      holder: toHolder(process),
      settled: [{ seq, event, attempt, at: this.#now, settlement: this.#toSettlement(kind), record: `"${kind}"`, due, facts }],
      state: undefined,
    });
    this.#taken[process] = undefined;
    return isLost;
  }

  #toSettlement(kind: string): Settlement {
    if (kind === 'retry') return { kind, due: this.#now + STEP_MS };
    return kind === 'postponed' ? { kind, due: this.#now } : { kind: kind as 'delivered' | 'dead' | 'skipped' };
  }

  async #repair(action: 'retry' | 'cancel'): Promise<Value> {
    const { changed } = await this.#run(1, 'repairStep', {
      action,
      filter: { event: this.#event, endpoint: this.#endpoint },
      now: this.#now,
      until: this.#now,
      position: { event: 0, lane: 0, end: Number.MAX_SAFE_INTEGER },
    });
    return changed;
  }

  async #run<K extends OperationKind>(
    process: number,
    kind: K,
    parameters: Operations[K],
    bodies: Uint8Array[] = [],
  ): Promise<Results[K]> {
    const store = this.#processes[process - 1] as Store;
    const operation = { kind, ...parameters } as unknown as Operation;
    const reply = store.isWrite(operation)
      ? (await store.write([{ operation, bodies }]))[0]
      : await store.read(operation, bodies);
    if (reply?.isDone !== true) throw new Error(`${kind} failed: ${reply?.message}`);
    return reply.result as Results[K];
  }

  /** The delivery and its lane as the database has them, in the model's words. */
  async #read(): Promise<unknown> {
    const [row] = await this.#database.all<
      Record<'state' | 'attempt' | 'tries' | 'replay' | 'due', number> & { owner: string | null }
    >(
      'SELECT d.state, d.attempt, d.tries, d.replay, d.due, l.owner FROM event e JOIN delivery d ON d.event = e.seq JOIN lane l ON l.num = d.lane WHERE e.id = ?',
      [this.#event],
    );
    if (row === undefined) return { delivery: { state: 'absent', attempt: 0, tries: 0, replay: 0, due: NEVER }, owner: 0 };
    const { state, attempt, tries, replay, due, owner } = row;
    return {
      delivery: {
        state: STATES[state],
        attempt,
        tries,
        replay,
        due: state === DUE ? Math.max(0, (due - this.#now) / STEP_MS) : NEVER,
      },
      owner: owner === null ? 0 : Number(owner),
    };
  }

  get #event(): string {
    return `msg_${this.#count}`;
  }

  get #endpoint(): string {
    return `endpoint-${this.#count}`;
  }
}

function toHolder(process: number): string | null {
  return process === 0 ? null : String(process);
}

async function openSqlite(): Promise<Database> {
  const path = join(makeFolder(), 'queue.db');
  writeFileSync(path, '');
  const database = await SqliteDatabase.open(path);
  onTestFinished(() => database.close());
  return database;
}

async function openPostgres(): Promise<Database> {
  // In memory, if possible: thousands of transactions wait for the disk otherwise.
  const server = await startPostgres({ config: ['fsync = on'], parent: existsSync(MEMORY) ? MEMORY : tmpdir() });
  onTestFinished(server.stop);
  const target = toTarget(server.url());
  const database = await PostgresDatabase.open({ target, schema: 'q', maxConnections: 4, statementTimeout: 10_000 }, systemClock);
  onTestFinished(() => database.close());
  return database;
}

/** PostgreSQL takes 48 s of a quiet machine. */
const TIMEOUT_MS = 400_000;

describe('the stores of the queue behave as the model of a delivery in every state', { timeout: TIMEOUT_MS }, () => {
  test.each([
    ['SQLite', openSqlite],
    ['PostgreSQL', openPostgres],
  ])('in %s, with two processes', async (_, open) => {
    const walked = await graph.cover(new StoreWalker(await open()));
    expect({ states: graph.size, walked }).toEqual({ states: 385, walked: 4389 });
  });

  test.each(['settlement without the lane', 'settlement without the fence', 'settlement from before a replay'])(
    'control: notices a %s',
    async (Mutation) => {
      const broken = await readStateGraph('lanes/LaneStoreGraph', { ...CONSTANTS, Mutation });
      await expect(broken.cover(new StoreWalker(await openSqlite()))).rejects.toThrow();
    },
  );
});
