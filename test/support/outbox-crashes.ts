/** An app that writes to its outbox, while the gate that takes the events is killed at random points. */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import type { TestApp } from './app.ts';
import { until } from './gate.ts';
import { countRows, createOutboxDatabase } from './outbox.ts';
import type { PostgresServer } from './postgres.ts';
import { type GateProcess, startGateProcess } from './process.ts';
import type { Random } from './seeded.ts';

/** How much happens. */
export interface CrashPlan {
  /** Transactions that commit, with one event each. */
  readonly events: number;
  readonly writers: number;
  /** The longest pause between two transactions of a writer, in milliseconds. */
  readonly pause: number;
  readonly kills: number;
  /** Each also stops PostgreSQL at once, and starts it again. */
  readonly restartsServer: boolean;
  readonly random: Random;
}

/** What the app did, and what came of it. */
export interface CrashResult {
  readonly committed: ReadonlySet<string>;
  /** IDs that the receiver got. */
  readonly received: ReadonlySet<string>;
  /** IDs of commits of which the app does not know whether they happened, as PostgreSQL stopped. */
  readonly unknown: ReadonlySet<string>;
  readonly storedEvents: number;
  readonly waitingRows: number;
}

const LONGEST_LIFE_MS = 400;

/** Runs the plan in a database of its own; `folder` holds the queue. */
export async function runCrashes(server: PostgresServer, app: TestApp, folder: string, plan: CrashPlan): Promise<CrashResult> {
  const database = createOutboxDatabase(server);
  const committed = new Set<string>();
  const unknown = new Set<string>();
  const url = server.url({ role: 'billing', database });
  const writers = Promise.all(
    Array.from({ length: plan.writers }, (_, writer) => write({ url, writer, committed, unknown, ...plan })),
  );
  const urlFile = join(folder, 'outbox-url');
  writeFileSync(urlFile, server.url({ role: 'sidegate', database }));
  const start = (): Promise<GateProcess> => startGate(app.port, folder, urlFile);
  for (let kill = 0; kill < plan.kills; kill++) {
    const { child, exit } = await start();
    await new Promise((resolve) => setTimeout(resolve, plan.random(LONGEST_LIFE_MS)));
    child.kill('SIGKILL');
    if (plan.restartsServer) await server.restart();
    await exit;
  }
  const last = await start();
  await writers;
  await until(() => countRows(server, database) === 0);
  const metric = async (name: string): Promise<number> => {
    const text = await (await fetch(`http://127.0.0.1:${last.adminPort}/metrics`)).text();
    return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1] ?? -1);
  };
  const toReceived = (): Set<string> => new Set(app.received.map(({ headers }) => String(headers['webhook-id'])));
  // The metric of what waits is sampled, so it can be 0 before the last rows were counted.
  await until(() => {
    const reached = toReceived();
    return [...committed].every((id) => reached.has(id));
  });
  const received = toReceived();
  await until(async () => (await metric('sidegate_provider_queue_stored_events')) >= committed.size);
  const storedEvents = await metric('sidegate_provider_queue_stored_events');
  last.child.kill('SIGTERM');
  await last.exit;
  rmSync(urlFile);
  return { committed, received, unknown, storedEvents, waitingRows: countRows(server, database) };
}

function startGate(port: number, folder: string, urlFile: string): Promise<GateProcess> {
  return startGateProcess({
    provider: {
      address: '127.0.0.1:0',
      queue: { sqlite: { path: join(folder, 'queue.db'), allowVolatile: true } },
      egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
      schedule: ['100ms', '100ms', '1s', '1s'],
      outbox: { postgres: { url: { file: urlFile } } },
      endpoints: [{ name: 'acme', url: `http://127.0.0.1:${port}/hooks`, secret: { file: 'secret' }, concurrency: 16 }],
    },
  });
}

interface WriterParts extends Pick<CrashPlan, 'events' | 'writers' | 'pause' | 'random'> {
  readonly url: string;
  readonly writer: number;
  readonly committed: Set<string>;
  readonly unknown: Set<string>;
}

/** Writes its share; every third transaction is rolled back. */
async function write({ url, writer, committed, unknown, events, writers, pause, random }: WriterParts): Promise<void> {
  let client: pg.Client | undefined;
  let done = 0;
  for (let n = 0; done < events / writers; n++) {
    const isKept = n % 3 !== 0;
    const id = `${isKept ? 'kept' : 'gone'}-${writer}-${n}`;
    let isCommitting = false;
    await new Promise((resolve) => setTimeout(resolve, random(pause)));
    try {
      client ??= await connect(url);
      await client.query('BEGIN');
      const data = { text: 'x'.repeat(random(200)) };
      await client.query("INSERT INTO sidegate_outbox (id, type, data) VALUES ($1, 'invoice.paid', $2)", [id, data]);
      isCommitting = isKept;
      await client.query(isKept ? 'COMMIT' : 'ROLLBACK');
      if (!isKept) continue;
      committed.add(id);
      done++;
    } catch {
      // PostgreSQL stopped.
      if (isCommitting) unknown.add(id);
      await client?.end().catch(() => undefined);
      client = undefined;
    }
  }
  await client?.end();
}

/** As soon as PostgreSQL is up. */
async function connect(url: string): Promise<pg.Client> {
  return until(async () => {
    const client = new pg.Client({ connectionString: url });
    client.on('error', () => undefined);
    return client.connect().then(
      () => client,
      () => undefined,
    );
  });
}
