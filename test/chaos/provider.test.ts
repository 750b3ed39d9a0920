/**
 * kill -9 of the app and the sidecar, and an immediate stop of PostgreSQL, in a seeded order, while 100,000 events are accepted and delivered. Every accepted event is received
 * at least once. `CHAOS_SEED` repeats a run, `CHAOS_EVENTS` changes the number of events.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { makeFolder, startServer } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { type Sections, until } from '../support/gate.ts';
import { type PostgresServer, startPostgres } from '../support/postgres.ts';
import { type GateProcess, startGateProcess } from '../support/process.ts';
import { createRandom } from '../support/seeded.ts';

const EVENTS = Number(process.env['CHAOS_EVENTS'] ?? 100_000);
const SEED = Number(process.env['CHAOS_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
const TENANTS = 10;
const CONCURRENCY = 16;
/** Events that are received between two kills. A short run has fewer kills, as leases in PostgreSQL last up to 30 s after each. */
const MIN_GAP = Math.floor(EVENTS / (EVENTS < 50_000 ? 16 : 40));
const MAX_GAP = Math.floor(EVENTS / (EVENTS < 50_000 ? 6 : 12));

type Victim = 'app' | 'sidecar' | 'postgres';

/** Counts how often each event was received. */
class Receiver {
  readonly counts = new Uint16Array(EVENTS);
  received = 0;
  distinct = 0;

  async start(): Promise<number> {
    return startServer(
      createServer((request, response) => {
        const number = Number(String(request.headers['webhook-id']).slice('chaos-'.length));
        request.resume().on('end', () => {
          this.received++;
          if ((this.counts[number] as number)++ === 0) this.distinct++;
          response.end();
        });
      }),
    );
  }
}

/** The app: one process after the other, until all events are accepted. */
class App {
  accepted = 0;
  #child: ChildProcess | undefined;
  readonly #url: string;

  constructor(port: number) {
    this.#url = `http://127.0.0.1:${port}`;
    onTestFinished(() => this.kill());
  }

  start(): void {
    const script = join(import.meta.dirname, 'posting-app.ts');
    const child = spawn(process.execPath, [script, this.#url, String(this.accepted), String(EVENTS), String(TENANTS)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      // A kill may cut the last line.
      for (const line of text.split('\n').slice(0, -1)) this.accepted = Math.max(this.accepted, Number(line));
    });
    this.#child = child;
  }

  kill(): void {
    this.#child?.kill('SIGKILL');
  }
}

async function runChaos(toSections: (provider: Sections) => Sections, server: PostgresServer | undefined): Promise<void> {
  const random = createRandom(SEED);
  const receiver = new Receiver();
  const receiverPort = await receiver.start();
  const port = await findFreePort();
  const sections = toSections({
    address: `127.0.0.1:${port}`,
    egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
    schedule: ['200ms', '200ms', '500ms', '1s', '2s', '5s'],
    endpoints: Array.from({ length: TENANTS }, (_, i) => ({
      name: `endpoint-${i}`,
      tenant: `tenant-${i}`,
      url: `http://127.0.0.1:${receiverPort}/`,
      concurrency: CONCURRENCY,
      secret: { file: 'secret' },
    })),
  });
  let sidecar: GateProcess = await startGateProcess(sections);
  onTestFinished(() => void sidecar.child.kill('SIGKILL'));
  const app = new App(port);
  app.start();
  const victims: readonly Victim[] = server === undefined ? ['app', 'sidecar'] : ['app', 'sidecar', 'postgres'];
  const kills: Victim[] = [];
  const kill: Readonly<Record<Victim, () => Promise<void>>> = {
    async app() {
      app.kill();
      app.start();
    },
    async sidecar() {
      sidecar.child.kill('SIGKILL');
      await sidecar.exit;
      sidecar = await startGateProcess(sections);
    },
    async postgres() {
      await server?.restart();
    },
  };
  const isComplete = (): boolean => receiver.distinct === EVENTS;
  while (!isComplete()) {
    const next = receiver.distinct + MIN_GAP + random(MAX_GAP - MIN_GAP);
    await until(() => isComplete() || receiver.distinct >= Math.min(next, EVENTS));
    if (isComplete()) break;
    const victim: Victim = kills.length === 0 ? 'sidecar' : (victims[random(victims.length)] as Victim);
    kills.push(victim);
    await kill[victim]();
  }
  // The last event can be received before the app has reported that it was accepted.
  await until(() => app.accepted === EVENTS);
  const duplicates = receiver.received - receiver.distinct;
  const count = (victim: Victim): number => kills.filter((each) => each === victim).length;
  console.log(
    `${EVENTS} events, killed ${count('app')} apps, ${count('sidecar')} sidecars, ${count('postgres')} times PostgreSQL; ${duplicates} duplicates`,
  );
  // Only attempts in flight at a kill are repeated: what the queue has not settled, or could not settle.
  const most = (count('sidecar') + count('postgres')) * TENANTS * CONCURRENCY;
  expect(duplicates).toBeLessThanOrEqual(most);
}

describe(`kill -9 in the order of seed ${SEED}`, () => {
  test('loses no event of a SQLite queue', async () => {
    const path = join(makeFolder(), 'queue.db');
    await runChaos((provider) => ({ provider: { ...provider, queue: { sqlite: { path, allowVolatile: true } } } }), undefined);
  });

  test('loses no event of a queue in PostgreSQL', async () => {
    const server = await startPostgres({ config: ['fsync = on'] });
    onTestFinished(() => server.stop());
    const file = join(makeFolder(), 'url');
    writeFileSync(file, server.url());
    await runChaos((provider) => ({ provider: { ...provider, queue: { postgres: { url: { file } } } } }), server);
  });
});
