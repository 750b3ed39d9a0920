/** Starts the processes of the provider's benchmarks. */
import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';

const STOP_WITHIN_MS = 10_000;

/** Starts a file of this folder; the core is for all its threads. */
export function startProcess(file: string): ChildProcess {
  return fork(join(import.meta.dirname, file), { stdio: 'inherit', execArgv: ['--disable-warning=ExperimentalWarning'] });
}

/** Lets the process remove what it started, and ends it. */
export async function stopProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  if (child.connected) child.disconnect();
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_WITHIN_MS);
  await ended;
  clearTimeout(timer);
}

/** The next message; rejects if the process ends before. */
export function nextMessage<Message>(child: ChildProcess): Promise<Message> {
  return new Promise((resolve, reject) => {
    const onExit = (code: number | null): void => reject(new Error(`a process ended with ${code}`));
    child.once('exit', onExit);
    child.once('message', (message) => {
      child.off('exit', onExit);
      resolve(message as Message);
    });
  });
}
