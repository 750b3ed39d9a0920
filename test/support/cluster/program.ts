/** Servers of other people as child processes that never outlive the tests. */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { toBinFolder } from '../../prepare/cluster-tools.ts';

/** A program at work. */
export interface Program {
  readonly child: ChildProcess;
  /** Exit code, or the signal that ended it; undefined while it runs. */
  readonly ended: () => number | NodeJS.Signals | undefined;
  /** All it wrote so far. */
  readonly log: () => string;
  /** Ends it at once and waits for its end. */
  readonly kill: () => Promise<void>;
}

/** Part of util-linux: makes the kernel end the child with its parent, even when the parent is killed. */
const BOUND = ['/usr/bin/setpriv', '--pdeathsig', 'KILL', '--'] as const;

const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** The path of a program that test/prepare/prepare-cluster.ts built. */
export function findTool(name: string): string {
  const path = join(toBinFolder(), name);
  if (!existsSync(path)) throw new Error(`${path} is missing: npm test -- cluster builds it`);
  return path;
}

/** The command line that is bound to this process. */
export function toBound(command: string, args: readonly string[]): [string, string[]] {
  const [file, ...options] = BOUND;
  return existsSync(file) ? [file, [...options, command, ...args]] : [command, [...args]];
}

/** Starts a program; what it writes goes to `logFile`; `env` is all of its environment where it is given. */
export function startProgram(
  command: string,
  args: readonly string[],
  logFile: string,
  env: NodeJS.ProcessEnv = process.env,
): Program {
  const out = openSync(logFile, 'a');
  const child = spawn(...toBound(command, args), { stdio: ['ignore', out, out], env });
  closeSync(out);
  running.add(child);
  const exited = new Promise<void>((done) => {
    child.once('exit', () => {
      running.delete(child);
      done();
    });
  });
  return {
    child,
    ended: () => child.exitCode ?? child.signalCode ?? undefined,
    log: () => readFileSync(logFile, 'utf8'),
    kill: () => {
      child.kill('SIGKILL');
      return exited;
    },
  };
}
