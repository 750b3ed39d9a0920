/** The program as its users run it, while the test's own process serves what it asks. */
import { type ChildProcess, spawn } from 'node:child_process';
import { onTestFinished } from 'vitest';
import { until } from './gate.ts';
import { LAUNCHER } from './process.ts';

/** How it ended. */
export interface CliEnd {
  readonly code: number | NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A running program. */
export interface RunningCli {
  readonly child: ChildProcess;
  readonly stdout: () => string;
  readonly stderr: () => string;
  readonly end: Promise<CliEnd>;
  /** Waits until standard output matches. */
  readonly shows: (pattern: RegExp) => Promise<unknown>;
}

/** What it gets besides its arguments. */
export interface CliInput {
  readonly input?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** Starts it; the test ends it. */
export function startCli(args: readonly string[], { input = '', env = {} }: CliInput = {}): RunningCli {
  const child = spawn(process.execPath, [LAUNCHER, ...args], { env: { ...process.env, ...env } });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  // It may end without reading.
  child.stdin.on('error', () => undefined).end(input);
  const end = new Promise<CliEnd>((resolve) => {
    child.once('close', (code, signal) => resolve({ code: code ?? signal, stdout, stderr }));
  });
  onTestFinished(() => {
    child.kill('SIGKILL');
  });
  return { child, end, stdout: () => stdout, stderr: () => stderr, shows: (pattern) => until(() => pattern.test(stdout)) };
}

/** Runs it to its end. */
export function runCli(args: readonly string[], input?: CliInput): Promise<CliEnd> {
  return startCli(args, input).end;
}
