/** Starts the processes of the provider's benchmarks. */
import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';

/** Starts a file of this folder; the core is for all its threads. */
export function startProcess(file: string): ChildProcess {
  return fork(join(import.meta.dirname, file), { stdio: 'inherit', execArgv: ['--disable-warning=ExperimentalWarning'] });
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
