/** Starts the benchmark's processes on their cores, and always ends each one by its handle. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, openSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

/** The gate has one core, and all other processes share the other. */
export const GATE_CORE = 0;
/** The core of Redis, the app and the load. */
export const OTHER_CORE = 1;

const START_WITHIN_MS = 10_000;
const END_WITHIN_MS = 15_000;
const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** The program to start, and its core. */
export interface Launch {
  readonly core: number;
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** File for standard output and error. Default: standard output is discarded, errors go to the terminal. */
  readonly log?: string;
}

/** Starts a process bound to its core. */
export function launch({ core, command, args, env, log }: Launch): ChildProcess {
  const out = log === undefined ? 'ignore' : openSync(log, 'a');
  const child = spawn('taskset', ['-c', String(core), command, ...args], {
    stdio: ['ignore', out, log === undefined ? 'inherit' : out],
    env: { ...process.env, ...env },
  });
  running.add(child);
  child.once('exit', () => running.delete(child));
  return child;
}

/** Runs a process and returns its output; rejects if it fails or takes longer than `withinMs`. */
export function run({ core, command, args, env }: Launch, withinMs: number): Promise<string> {
  const child = spawn('taskset', ['-c', String(core), command, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...env },
    timeout: withinMs,
  });
  running.add(child);
  let text = '';
  child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => {
      running.delete(child);
      if (code === 0) resolve(text);
      else reject(new Error(`${command} ended with ${code ?? signal}`));
    });
  });
}

/** Ends the process, by force if necessary. */
export async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const timer = setTimeout(() => child.kill('SIGKILL'), END_WITHIN_MS);
  child.kill('SIGTERM');
  await ended;
  clearTimeout(timer);
}

/** Waits until the child accepts connections on `port`. */
export async function untilListening(child: ChildProcess, port: number): Promise<void> {
  const deadline = performance.now() + START_WITHIN_MS;
  while (!(await isOpen(port))) {
    if (child.exitCode !== null) throw new Error(`${child.spawnargs.slice(3).join(' ')} ended with ${child.exitCode}`);
    if (performance.now() > deadline) throw new Error(`nothing listens on ${port} after ${START_WITHIN_MS} ms`);
    await pause(20);
  }
}

/** Returns a free port, because nginx and Redis do not support port 0. */
export async function findFreePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** Whether a process accepts connections on the port. */
export function isOpen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

/** A temporary folder and the processes of an environment, which end together. */
export class ProcessGroup {
  readonly folder = mkdtempSync(join(tmpdir(), 'sidegate-bench-'));
  readonly #children: ChildProcess[] = [];

  /** Starts a server and waits until it accepts connections. */
  async start(server: Launch, port: number): Promise<ChildProcess> {
    const child = launch(server);
    this.#children.push(child);
    await untilListening(child, port);
    return child;
  }

  /** Ends the processes and removes the folder. */
  async close(): Promise<void> {
    await Promise.all(this.#children.map(end));
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Builds something on a new group; if that fails, closes the group. */
export async function withProcessGroup<Built>(build: (group: ProcessGroup) => Promise<Built>): Promise<Built> {
  const group = new ProcessGroup();
  try {
    return await build(group);
  } catch (thrown) {
    await group.close();
    throw thrown;
  }
}
