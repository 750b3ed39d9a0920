/**
 * `npm run cluster:up`: the node of the cluster tests, for developers, with the image of the code as it is now; again: only a new image.
 * `npm run cluster:down` ends it.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { buildImages } from '../support/node/images.ts';
import { importImages, type NodeConnection, startNode } from '../support/node/node.ts';
import { toArchive } from '../support/node/oci.ts';

/** The file of a node that runs. */
interface State {
  readonly pid: number;
  readonly connection: NodeConnection;
}

const ROOT = resolve(import.meta.dirname, '..', '..');
const FILE = process.env['SIDEGATE_CLUSTER_FILE'] ?? resolve(ROOT, '.cache', 'cluster.json');
const LOG = `${FILE}.log`;
const PATIENCE_MS = 120_000;
const LOOK_MS = 50;

const actions: Readonly<Record<string, () => Promise<void>>> = { up, down, serve };
const action = actions[process.argv[2] ?? ''];
if (action === undefined) throw new Error('usage: node test/prepare/cluster.ts up|down');
await action();

async function up(): Promise<void> {
  const running = findRunning();
  if (running === undefined) await startServer();
  else await importImages(running.connection.machine, toArchive(await buildImages(running.connection.machine.folder)));
  const state = findRunning();
  if (state === undefined) throw new Error(`the node did not start:\n${readFileSync(LOG, 'utf8')}`);
  console.log(`export KUBECONFIG=${state.connection.kubeconfigFile}`);
}

async function startServer(): Promise<void> {
  mkdirSync(dirname(FILE), { recursive: true });
  const log = openSync(LOG, 'w');
  const server = spawn(process.execPath, [import.meta.filename, 'serve'], { detached: true, stdio: ['ignore', log, log] });
  server.unref();
  await wait(() => server.exitCode !== null || findRunning() !== undefined);
}

async function down(): Promise<void> {
  const running = findRunning();
  if (running === undefined) return console.log('no node is running');
  process.kill(running.pid, 'SIGTERM');
  await wait(() => !existsSync(FILE));
}

async function serve(): Promise<void> {
  const node = await startNode();
  const stop = async (): Promise<void> => {
    await node.stop();
    rmSync(FILE);
  };
  process.once('SIGTERM', () => void stop().then(() => process.exit(0)));
  // Renamed, because "up" reads the file as soon as it exists.
  writeFileSync(`${FILE}.new`, JSON.stringify({ pid: process.pid, connection: node.connection } satisfies State));
  renameSync(`${FILE}.new`, FILE);
}

/** A killed server leaves its file behind. */
function findRunning(): State | undefined {
  if (!existsSync(FILE)) return undefined;
  const state: State = JSON.parse(readFileSync(FILE, 'utf8'));
  return existsSync(state.connection.kubeconfigFile) && existsSync(`/proc/${state.pid}`) ? state : undefined;
}

async function wait(look: () => boolean): Promise<void> {
  const patience = AbortSignal.timeout(PATIENCE_MS);
  while (!look()) {
    if (patience.aborted) throw new Error(`nothing happened for ${PATIENCE_MS / 1_000} s; see ${LOG}`);
    await new Promise((done) => setTimeout(done, LOOK_MS));
  }
}
