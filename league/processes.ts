/** Starts the servers of the league, waits until they serve, and ends each by its own handle. */
import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { end, isOpen } from '../bench/children.ts';

const START_WITHIN_MS = 15_000;
const LOOK_EVERY_MS = 20;
const running = new Set<ChildProcess>();
process.once('exit', () => {
  // Not SIGKILL: servers with workers would leave them behind.
  for (const child of running) child.kill('SIGTERM');
});

/** A server that runs. */
export interface ServerProcess {
  isAlive(): boolean;
  stop(): Promise<void>;
}

/** Starts a server and waits until it takes connections on `port`; what it says is told only where it does not. */
export async function startServer(
  command: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  port: number,
): Promise<ServerProcess> {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  running.add(child);
  let said = '';
  const listen = (text: string): void => {
    said = `${said}${text}`.slice(-2_000);
  };
  child.stdout.setEncoding('utf8').on('data', listen);
  child.stderr.setEncoding('utf8').on('data', listen);
  child.once('exit', () => running.delete(child));
  let failure: Error | undefined;
  child.once('error', (error) => {
    failure = error;
  });
  const isAlive = (): boolean => failure === undefined && child.exitCode === null && child.signalCode === null;
  const deadline = performance.now() + START_WITHIN_MS;
  while (!(await isOpen(port))) {
    if (!isAlive() || performance.now() > deadline)
      throw new Error(`${command} does not serve: ${failure?.message ?? said.trim()}`);
    await pause(LOOK_EVERY_MS);
  }
  return { isAlive, stop: () => end(child) };
}
