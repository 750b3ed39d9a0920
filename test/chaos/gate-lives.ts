/** A sidegate that is killed, paused and started again on the same ports; each of its lives is a process with a log file. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { SECRET } from '../support/deliveries.ts';
import { findFreePort } from '../support/free-port.ts';
import { type Sections, until } from '../support/gate.ts';
import { readImageAllocator } from '../support/image-flags.ts';
import { LAUNCHER } from '../support/process.ts';

/** A span of time, in milliseconds since 1970. */
export interface Span {
  readonly from: number;
  to: number;
}

/** Metrics at one time. */
export interface Scrape {
  readonly at: number;
  readonly text: string;
}

/** One process. */
export interface Life {
  readonly gate: number;
  readonly pid: number;
  readonly logFile: string;
  readonly startedAt: number;
  endedAt: number;
  /** Undefined while it runs. `crashed`: nobody ended it. */
  end: 'killed' | 'stopped' | 'crashed' | undefined;
  /** While it was stopped by SIGSTOP. */
  readonly pauses: Span[];
  /** By how much its clock was wrong, at one time or another, in ms. */
  readonly steps: number[];
  /** The last metrics that were read. */
  scrape: Scrape | undefined;
  /** Open file descriptors and resident memory when it had just started. */
  readonly baseline: Resources;
}

/** What a process holds. */
export interface Resources {
  readonly descriptors: number;
  readonly residentBytes: number;
}

const STEP_CLOCK = join(import.meta.dirname, 'step-clock.ts');
const PAGE_BYTES = 4_096;
const SCRAPE_TIMEOUT_MS = 1_000;

/** Reads what a process holds. */
export function readResources(pid: number): Resources {
  const pages = Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]);
  return { descriptors: readdirSync(`/proc/${pid}/fd`).length, residentBytes: pages * PAGE_BYTES };
}

/** What differs between gates. */
export interface GateOptions {
  readonly index: number;
  readonly folder: string;
  /** `life`: how many processes ran before. */
  readonly sections: (port: number, life: number) => Sections;
  /** A command line that runs the gate, such as `nsenter`. */
  readonly wrapper?: readonly string[];
  /** Options of Node; default: the heap of a container of 256 MiB, and a module that can step the clock. */
  readonly nodeOptions?: string;
}

/** A gate on fixed ports. */
export class GateLives {
  readonly index: number;
  readonly port: number;
  readonly adminPort: number;
  readonly folder: string;
  readonly file: string;
  readonly lives: Life[] = [];
  readonly #sections: GateOptions['sections'];
  readonly #wrapper: readonly string[];
  readonly #nodeOptions: string;
  #child: ChildProcess | undefined;

  private constructor(
    port: number,
    adminPort: number,
    { index, folder, sections, wrapper = [], nodeOptions = `--max-old-space-size=128 --import ${STEP_CLOCK}` }: GateOptions,
  ) {
    this.index = index;
    this.port = port;
    this.adminPort = adminPort;
    this.folder = folder;
    this.file = join(folder, 'gate.yaml');
    this.#sections = sections;
    this.#wrapper = wrapper;
    this.#nodeOptions = nodeOptions;
  }

  static async start(options: GateOptions): Promise<GateLives> {
    mkdirSync(options.folder, { recursive: true });
    const gate = new GateLives(await findFreePort(), await findFreePort(), options);
    writeFileSync(join(gate.folder, 'secret'), SECRET);
    await gate.launch();
    return gate;
  }

  /** Writes the config. */
  configure(sections: Sections): void {
    const base = { admin: { address: `127.0.0.1:${this.adminPort}` }, shutdown: { grace: '0ms', drain: '3s' } };
    writeFileSync(this.file, stringify({ ...base, ...sections }));
  }

  /** The life that runs, or ran last. */
  get life(): Life {
    return this.lives.at(-1) as Life;
  }

  /** Starts a process and waits until it listens. */
  async launch(): Promise<void> {
    this.configure(this.#sections(this.port, this.lives.length));
    const logFile = join(this.folder, `${this.lives.length}.log`);
    const [command = '', ...args] = [...this.#wrapper, process.execPath, LAUNCHER, 'run', '--config', this.file];
    const clock = join(this.folder, 'clock');
    const options = `--disable-warning=ExperimentalWarning ${this.#nodeOptions}`;
    const output = openSync(logFile, 'a');
    const child = spawn(command, args, {
      cwd: this.folder,
      stdio: ['ignore', output, 'inherit'],
      env: { ...process.env, ...readImageAllocator(), NODE_OPTIONS: options, CHAOS_CLOCK: clock },
    });
    closeSync(output);
    this.#child = child;
    const startedAt = Date.now();
    let isEnded = false;
    child.once('exit', () => {
      isEnded = true;
    });
    await until(() => isEnded || readFileSync(logFile, 'utf8').includes('"msg":"listening"'));
    if (isEnded || child.pid === undefined) throw new Error(`the gate did not start: ${readFileSync(logFile, 'utf8')}`);
    const life: Life = {
      gate: this.index,
      pid: child.pid,
      logFile,
      startedAt,
      endedAt: Number.POSITIVE_INFINITY,
      end: undefined,
      pauses: [],
      steps: [],
      scrape: undefined,
      baseline: readResources(child.pid),
    };
    child.once('exit', () => {
      life.end ??= 'crashed';
      life.endedAt = Date.now();
    });
    this.lives.push(life);
  }

  /** SIGKILL, after the metrics were read. */
  async kill(): Promise<void> {
    await this.scrape();
    await this.#end('killed', 'SIGKILL');
  }

  /** SIGTERM: it drains, so nothing may be handled twice. */
  async stop(): Promise<void> {
    await this.scrape();
    await this.#end('stopped', 'SIGTERM');
  }

  async #end(end: 'killed' | 'stopped', signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    this.life.end = end;
    const exit = once(child, 'exit');
    child.kill(signal);
    await exit;
  }

  /** Stops it until the result is called. */
  pause(): () => void {
    const span: Span = { from: Date.now(), to: Number.POSITIVE_INFINITY };
    this.life.pauses.push(span);
    const child = this.#child;
    child?.kill('SIGSTOP');
    return () => {
      child?.kill('SIGCONT');
      span.to = Date.now();
    };
  }

  /** Sends any other signal. */
  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  /** Sets its wall clock to that much after the true time. */
  stepClock(offset: number): void {
    writeFileSync(join(this.folder, 'clock'), String(offset));
    this.life.steps.push(offset);
    this.#child?.kill('SIGUSR2');
  }

  /** Reads the metrics; a gate that is too slow keeps those that were read before. */
  async scrape(): Promise<void> {
    const { life } = this;
    const at = Date.now();
    try {
      const response = await fetch(`http://127.0.0.1:${this.adminPort}/metrics`, {
        signal: AbortSignal.timeout(SCRAPE_TIMEOUT_MS),
        headers: { Connection: 'close' },
      });
      life.scrape = { at, text: await response.text() };
    } catch {
      return;
    }
  }
}

/** The sum of a counter's series whose labels contain all of `labels`, each as `name="value"`. */
export function sumSeries(text: string, name: string, ...labels: readonly string[]): number {
  let sum = 0;
  for (const line of text.split('\n')) {
    if (!line.startsWith(`${name}{`) && !line.startsWith(`${name} `)) continue;
    if (labels.every((label) => line.includes(label))) sum += Number(line.slice(line.lastIndexOf(' ') + 1));
  }
  return sum;
}
