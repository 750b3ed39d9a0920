/** Databases with the tables and roles of docs/outbox.md, and an outbox that moves their rows to a queue in memory. */
import { resolve } from 'node:path';
import pg from 'pg';
import { onTestFinished } from 'vitest';
import { readPostgresUrl } from '../../src/config/sources/provider-files.ts';
import { systemClock } from '../../src/core/clock.ts';
import { Secret } from '../../src/core/secret.ts';
import { Outbox, type OutboxParts } from '../../src/provider/outbox/outbox.ts';
import type { PostgresTarget } from '../../src/state/postgres.ts';
import { readBlocks } from './doc-blocks.ts';
import { until } from './gate.ts';
import { POSTGRES_PASSWORD, type PostgresServer } from './postgres.ts';
import { MemoryQueue } from './provider/memory-queue.ts';

/** A block of docs/outbox.md, by the name of its file. */
export function readOutboxBlock(file: string): string {
  const blocks = readBlocks('outbox.md', resolve(import.meta.dirname, '..', '..', 'docs', 'outbox.md'));
  const found = blocks.find((block) => block.file === file);
  if (found === undefined) throw new Error(`docs/outbox.md has no block ${file}`);
  return found.text;
}

let count = 0;

/** Creates an empty database. */
export function createDatabase(server: PostgresServer): string {
  const name = `test${++count}`;
  server.sql(`CREATE DATABASE ${name}`);
  return name;
}

/** Creates a database as the docs say: the tables, an app `billing` that may only insert, and the role `sidegate`. */
export function createOutboxDatabase(server: PostgresServer): string {
  const database = createDatabase(server);
  for (const role of ['billing', 'sidegate'])
    server.sql(
      `DO $$BEGIN CREATE ROLE ${role} LOGIN PASSWORD '${POSTGRES_PASSWORD}'; EXCEPTION WHEN duplicate_object THEN NULL; END$$`,
    );
  server.sql(`BEGIN; ${readOutboxBlock('tables.sql')} ${readOutboxBlock('roles.sql')} COMMIT`, database);
  return database;
}

/** Inserts `number` events with these types, in one transaction; `prefix` of their IDs. */
export function insertEvents(server: PostgresServer, database: string, number: number, prefix = 'e', type = 'a.b'): void {
  server.sql(
    `INSERT INTO sidegate_outbox (id, type, data) SELECT '${prefix}' || n, '${type}', json_build_object('n', n) FROM generate_series(1, ${number}) AS n`,
    database,
  );
}

/** The number of rows of a table. */
export function countRows(server: PostgresServer, database: string, table = 'sidegate_outbox'): number {
  return Number(server.sql(`SELECT count(*) FROM ${table}`, database));
}

/** Runs SQL that waits for locks of an outbox in this process: `sql` of the server would wait forever, and this process for it. */
export async function runBeside(server: PostgresServer, database: string, text: string): Promise<void> {
  const client = new pg.Client(server.url({ database }));
  await client.connect();
  await client.query(text);
  await client.end();
}

/** Reads a URL. */
export async function toTarget(url: string): Promise<PostgresTarget> {
  const read = await readPostgresUrl(new Secret(Buffer.from(url)));
  if ('problem' in read) throw new Error(read.problem);
  return read.target;
}

/** An outbox, and what it reported. */
export interface TestOutbox {
  readonly outbox: Outbox;
  readonly queue: MemoryQueue;
  /** `up`, `down: TEXT`, `held: TEXT` and `rejected COUNT: REASON`; `up` only after `down`, and each `down` once. */
  readonly log: readonly string[];
  readonly figures: () => { readonly waiting: number; readonly oldestAgeSeconds: number } | undefined;
  /** Resolves when it has searched the table. */
  readonly untilUp: () => Promise<void>;
}

/** Starts an outbox, until the test ends. It polls only once a minute, so that tests notice if notifications are lost. */
export async function startOutbox(
  url: string,
  {
    append = (events) => queue.append(events),
    join = async () => undefined,
    ...over
  }: Partial<OutboxParts & OutboxParts['queue']> = {},
  queue: MemoryQueue = new MemoryQueue(),
): Promise<TestOutbox> {
  const log: string[] = [];
  let figures: ReturnType<TestOutbox['figures']>;
  let isUp = false;
  const outbox = new Outbox(await toTarget(url), {
    clock: systemClock,
    schema: 'public',
    pollInterval: 60_000,
    maxEventSize: 1_000,
    route: () => [{ endpoint: 'acme' }],
    queue: { append, join },
    hooks: {
      onUp() {
        if (!isUp) log.push('up');
        isUp = true;
      },
      onDown(error) {
        isUp = false;
        const text = `down: ${(error as Error).message}`;
        if (log.at(-1) !== text) log.push(text);
      },
      onHeld: (error) => void log.push(`held: ${error}`),
      onRejected: (number, { reason }) => void log.push(`rejected ${number}: ${reason}`),
      onAccepted: () => undefined,
      onFigures(waiting, oldestAgeSeconds) {
        figures = { waiting, oldestAgeSeconds };
      },
    },
    ...over,
  });
  outbox.start();
  onTestFinished(() => outbox.stop(5_000));
  return {
    outbox,
    queue,
    log,
    figures: () => figures,
    untilUp: async () => void (await until(() => isUp)),
  };
}
