/** The program as its users run it, while the test's own process serves what it asks. */
import { type ChildProcess, spawn } from 'node:child_process';
import { Readable } from 'node:stream';
import { onTestFinished } from 'vitest';
import { runProgram } from '../../src/cli/program.ts';
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

/** What a terminal could take for commands. A line feed is none. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: tests look for them
export const CONTROLS = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e]/;

/** Runs a command in this process, for the many kinds of one thing: a process takes long to start. */
export async function runCommand(
  args: readonly string[],
  {
    input = '',
    isTerminal = false,
    isInputTerminal = false,
  }: Pick<CliInput, 'input'> & { readonly isTerminal?: boolean; readonly isInputTerminal?: boolean } = {},
): Promise<CliEnd> {
  let [stdout, stderr] = ['', ''];
  const code = await runProgram(args, {
    stdin: Object.assign(Readable.from([Buffer.from(input)]) as NodeJS.ReadableStream, { isTTY: isInputTerminal }),
    env: {},
    isTerminal,
    stdout: (text) => {
      stdout += text;
    },
    stderr: (text) => {
      stderr += text;
    },
  });
  return { code, stdout, stderr };
}
