/** Starts and stops the app with the ledger, and reads what it wrote. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { findFreePort } from '../support/free-port.ts';

/** How the app treats a request. `…Before`: without having handled the event. `late`: it handles it after the gate has given up. */
export type AppAction =
  | 'handle'
  | 'errorBefore'
  | 'crash'
  | 'crashBefore'
  | 'reset'
  | 'resetBefore'
  | 'half'
  | 'hang'
  | 'hangBefore'
  | 'late';

/** A request that reached the app. */
export interface LedgerEntry {
  /** When it arrived, in milliseconds since 1970. */
  readonly at: number;
  readonly isHandled: boolean;
  /** Index of the gate that forwarded it. */
  readonly gate: number;
  /** Which of the gate's processes forwarded it. */
  readonly life: number;
  /** The gate's ID of the request. */
  readonly requestId: string;
  /** The ID of the event. */
  readonly id: string;
  /** The body is the one that belongs to the ID. */
  readonly isIntact: boolean;
  readonly action: AppAction;
}

/** Reads a ledger. The kernel writes each line at once, so none is cut. */
export function readLedger(path: string): LedgerEntry[] {
  return readFileSync(path, 'utf8').split('\n').slice(0, -1).map(toEntry);
}

function toEntry(line: string): LedgerEntry {
  const [at, what, gate, life, requestId = '', id = '', state, action] = line.split(' ');
  return {
    at: Number(at),
    isHandled: what === 'handled',
    gate: Number(gate),
    life: Number(life),
    requestId,
    id,
    isIntact: state === 'intact',
    action: action as AppAction,
  };
}

/** The app; one process after the other on the same ports. */
export class LedgerApp {
  readonly path: string;
  /** One per gate. */
  readonly ports: readonly number[];
  #child: ChildProcess | undefined;
  #isStopped = false;

  constructor(path: string, ports: readonly number[]) {
    this.path = path;
    this.ports = ports;
  }

  /** Starts the app for that many gates. */
  static async start(path: string, gates: number): Promise<LedgerApp> {
    const ports: number[] = [];
    for (let i = 0; i < gates; i++) ports.push(await findFreePort());
    const app = new LedgerApp(path, ports);
    await app.launch();
    return app;
  }

  /** Starts a process, which replaces itself when it crashes. */
  async launch(): Promise<void> {
    const script = join(import.meta.dirname, 'ledger-app.ts');
    const child = spawn(process.execPath, [script, this.path, ...this.ports.map(String)], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    this.#child = child;
    child.once('exit', () => {
      if (!this.#isStopped) void this.launch();
    });
    child.on('error', () => undefined);
    await Promise.race([once(child, 'message'), once(child, 'exit')]);
  }

  /** Treats the next `count` requests so. */
  act(action: AppAction, count: number): void {
    if (this.#child?.connected === true) this.#child.send({ action, count }, () => undefined);
  }

  /** With SIGKILL, the next process starts at once. */
  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  stop(): void {
    this.#isStopped = true;
    this.#child?.kill('SIGKILL');
  }
}
