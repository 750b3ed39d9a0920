/** Real Redis servers on loopback, each in a folder of its own: alone, under Sentinels, or as a Cluster. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findFreePort, untilOpen } from './free-port.ts';

/** A server that runs, or ran. */
export interface RedisServer {
  readonly port: number;
  readonly folder: string;
  /** Runs one command by redis-cli and gives its output. */
  readonly cli: (...args: string[]) => string;
  readonly signal: (signal: NodeJS.Signals) => void;
  /** Ends it at once and waits for its end. */
  readonly kill: () => Promise<void>;
  /** Starts it again on the same port. */
  readonly restart: () => Promise<void>;
  readonly stop: () => Promise<void>;
}

/** How it is started. */
export interface RedisOptions {
  readonly binary?: 'redis-server' | 'redis-sentinel';
  readonly config?: readonly string[];
  readonly cliArgs?: readonly string[];
  readonly isTls?: boolean;
}

/** Starts a server and waits until it takes connections. */
export async function startRedis(options: RedisOptions = {}): Promise<RedisServer> {
  const port = await findFreePort();
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-redis-'));
  const file = join(folder, 'redis.conf');
  const ports = options.isTls === true ? ['port 0', `tls-port ${port}`] : [`port ${port}`];
  writeFileSync(file, ['bind 127.0.0.1', ...ports, `dir ${folder}`, 'daemonize no', 'logfile ""', ''].join('\n'));
  if (options.binary !== 'redis-sentinel') appendFileSync(file, 'save ""\nappendonly no\n');
  appendFileSync(file, `${(options.config ?? []).join('\n')}\n`);
  let child = launch();
  await untilOpen(port);

  function launch(): ChildProcess {
    return spawn(options.binary ?? 'redis-server', [file], { stdio: 'ignore' });
  }
  async function kill(): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
  }
  return {
    port,
    folder,
    cli: (...args) =>
      execFileSync('redis-cli', ['-p', String(port), ...(options.cliArgs ?? []), ...args], {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'ignore'],
      }).trim(),
    signal: (signal) => void child.kill(signal),
    kill,
    restart: async () => {
      await kill();
      child = launch();
      await untilOpen(port);
    },
    stop: async () => {
      await kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
