/** Other people's programs, run to their end without what this machine's user has set for them. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { resolve } from 'node:path';

/** How a program ended, and all that it wrote. */
export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program; `env` is all of its environment beside PATH. No proxy variable of this machine gets in. */
export function run(command: string, args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Ended> {
  return new Promise((done, fail) => {
    const child = spawn(command, args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { PATH: process.env['PATH'], HOME: tmpdir(), LANG: 'C.UTF-8', ...env },
    });
    let stdout = '';
    let stderr = '';
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
      stdout += chunk;
    });
    child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
      stderr += chunk;
    });
    child.once('error', fail);
    child.once('close', (code) => done({ code, stdout, stderr }));
  });
}

/** All that a program printed: its errors, and then its output. */
export async function readOutput(command: string, ...args: readonly string[]): Promise<string> {
  const { stdout, stderr } = await run(command, args);
  return stderr + stdout;
}

/** The Python that test/prepare/prepare-test.ts made; undefined where it could not. */
export const PYTHON: string | undefined = [resolve('.cache/python/bin/python')].find(existsSync);

/** What a script printed; its errors if that is nothing. */
export async function runPython(script: string, ...args: readonly string[]): Promise<string> {
  const { stdout, stderr } = await run(PYTHON ?? 'python3', ['-c', script, ...args]);
  return stdout.trim() || stderr;
}
