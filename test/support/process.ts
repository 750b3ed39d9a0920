/** The gate as its users run it: a process of its own, started by the launcher. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { stringify } from 'yaml';
import { runBundle } from './bundle.ts';
import { SECRET } from './deliveries.ts';
import type { Sections } from './gate.ts';
import { readPermissionFlags } from './image-flags.ts';

/** A gate process. */
export interface GateProcess {
  readonly child: ChildProcess;
  readonly port: number;
  readonly adminPort: number;
  /** 0 if there is none. */
  readonly providerPort: number;
  readonly folder: string;
  readonly file: string;
  /** Everything it wrote to standard output so far, as log lines. */
  readonly log: () => Record<string, unknown>[];
  /** Exit code, or the signal that ended it, once its output has been read to the end. */
  readonly exit: Promise<number | NodeJS.Signals | null>;
}

/** What starts the sources in this checkout. */
export const CHECKOUT_LAUNCHER = resolve(import.meta.dirname, '..', '..', 'bin', 'sidegate.cjs');
/** The program: the bundle of this run of the tests, or the sources if it has none. */
export const LAUNCHER = runBundle ?? CHECKOUT_LAUNCHER;

const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** Writes the config beside a secret, starts the gate with the permissions that it has in the image, with `args` beside --config and `env` beside this process's own, and waits until it listens. */
export async function startGateProcess(
  sections: Sections,
  args: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
  command: 'run' | 'deliver' = 'run',
): Promise<GateProcess> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-process-'));
  const file = join(folder, 'gate.yaml');
  writeFileSync(join(folder, 'secret'), SECRET);
  writeFileSync(
    file,
    stringify({ listen: { address: '127.0.0.1:0' }, admin: { address: '127.0.0.1:0' }, shutdown: { grace: '0ms' }, ...sections }),
  );
  const child = spawn(process.execPath, [...readPermissionFlags(), LAUNCHER, command, '--config', file, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...env },
  });
  running.add(child);
  let text = '';
  const log = (): Record<string, unknown>[] =>
    text
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  const exit = new Promise<number | NodeJS.Signals | null>((done) => {
    // 'exit' may come before the last lines of the log.
    child.once('close', (code: number | null, signal: NodeJS.Signals | null) => {
      running.delete(child);
      rmSync(folder, { recursive: true, force: true });
      done(code ?? signal);
    });
  });
  type Ports = Pick<GateProcess, 'port' | 'adminPort' | 'providerPort'>;
  const ports = await new Promise<Ports>((done, fail) => {
    child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
      const line = log().find(({ msg }) => msg === 'listening');
      if (line === undefined) return;
      const toPort = (key: string): number => Number(line[key] ?? 0);
      done({ port: toPort('port'), adminPort: toPort('adminPort'), providerPort: toPort('providerPort') });
    });
    void exit.then((code) => fail(new Error(`the gate ended with ${code} before it listened`)));
  });
  return { child, ...ports, folder, file, log, exit };
}
