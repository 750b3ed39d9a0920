/** One container of a pod as a process of this machine: started, probed, restarted and ended as the kubelet does it. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { toCommandLine } from './images.ts';
import type { Kube } from './kube-request.ts';
import { succeeds } from './probes.ts';
import { type Program, startProgram } from './program.ts';

/** What a container needs to know of its pod. */
export interface ContainerPlace {
  readonly address: string;
  /** What 127.0.0.1 is within the pod. */
  readonly inner: string;
  /** Where its log goes. */
  readonly folder: string;
  /** Milliseconds that stand for a second of the pod's periods, delays and sleeps. */
  readonly secondMs: number;
  readonly toEnv: (container: Kube) => Promise<Record<string, string>>;
  /** The variable that gives a process the pod's world. */
  readonly toWorld: (container: Kube) => Record<string, string>;
  /** Something that the pod's status tells has changed. */
  readonly onChange: () => void;
  /** A step of its life, for tests that look at the order. */
  readonly onStep: (step: string) => void;
  readonly shouldRestart: (exitCode: number) => boolean;
}

const PROBE_DEFAULTS = { periodSeconds: 10, failureThreshold: 3, successThreshold: 1, initialDelaySeconds: 0 };
const WORLD = join(import.meta.dirname, 'pod-world.ts');
/** Exit code of a process that a signal ended, as container runtimes tell it. */
const SIGNAL_CODES: Readonly<Record<string, number>> = { SIGKILL: 137, SIGTERM: 143 };

/** Its spec stays as the API server holds it. */
export class Container {
  readonly spec: Kube;
  readonly #place: ContainerPlace;
  #program: Program | undefined;
  #env: Record<string, string> = {};
  #startedAt = '';
  #finishedAt = '';
  #exitCode: number | undefined;
  #isStarted = false;
  #isReady = false;
  #restarts = 0;
  #isEnding = false;
  #lap: AbortController = new AbortController();
  readonly #waiting = new Set<() => void>();

  constructor(spec: Kube, place: ContainerPlace) {
    this.spec = spec;
    this.#place = place;
  }

  get isReady(): boolean {
    return this.#isReady;
  }

  /** Undefined while it runs or may run again. */
  get exitCode(): number | undefined {
    return this.#exitCode;
  }

  /** All it wrote to standard output and error so far. */
  log(): string {
    return existsSync(this.#logFile()) ? readFileSync(this.#logFile(), 'utf8') : '';
  }

  /** Starts it, and again whenever it ends and should not. */
  async start(): Promise<void> {
    this.#env = await this.#place.toEnv(this.spec);
    const env = { PATH: process.env['PATH'], ...this.#env, ...this.#toWorld() };
    const [command = '', ...args] = toCommandLine(this.spec, this.#env);
    if (this.#isEnding) return;
    this.#lap = new AbortController();
    this.#program = startProgram(command, args, this.#logFile(), env);
    this.#startedAt = new Date().toISOString();
    this.#place.onStep(`${this.spec.name} started`);
    this.#program.child.once('exit', (code, signal) => this.#takeEnd(code ?? SIGNAL_CODES[signal ?? ''] ?? 1));
    void this.#probe(this.#lap.signal);
    this.#changed();
    const { postStart } = this.spec.lifecycle ?? {};
    if (postStart !== undefined && !(await this.#try(postStart))) await this.#program.kill();
  }

  /** Resolves once its startup probe passed (or there is none), or when it ended for good. */
  started(): Promise<void> {
    return this.#until(() => this.#isStarted || this.#exitCode !== undefined);
  }

  /** Resolves when it ended for good, with its exit code. */
  async ended(): Promise<number> {
    await this.#until(() => this.#exitCode !== undefined);
    return this.#exitCode ?? 0;
  }

  /** Runs its preStop hook. */
  async prepareStop(): Promise<void> {
    this.#isEnding = true;
    const { preStop } = this.spec.lifecycle ?? {};
    if (preStop === undefined || this.#exitCode !== undefined) return;
    this.#place.onStep(`${this.spec.name} preStop`);
    await this.#try(preStop);
  }

  /** Asks it to end, and waits until it has. */
  async stop(signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    this.#isEnding = true;
    if (this.#program === undefined) this.#finish(0);
    if (this.#exitCode !== undefined) return;
    this.#place.onStep(`${this.spec.name} ${signal}`);
    this.#program?.child.kill(signal);
    await this.ended();
  }

  /** As in the status of a pod. */
  status(): Kube {
    const { name, image } = this.spec;
    const state =
      this.#exitCode !== undefined
        ? { terminated: { exitCode: this.#exitCode, reason: this.#exitCode === 0 ? 'Completed' : 'Error', ...this.#times() } }
        : this.#program === undefined
          ? { waiting: { reason: 'PodInitializing' } }
          : { running: { startedAt: this.#startedAt } };
    return { name, image, imageID: '', ready: this.#isReady, started: this.#isStarted, restartCount: this.#restarts, state };
  }

  #times(): Kube {
    const startedAt = this.#startedAt || this.#finishedAt;
    return { startedAt, finishedAt: this.#finishedAt };
  }

  #logFile(): string {
    return join(this.#place.folder, `${this.spec.name}.log`);
  }

  #toWorld(): Record<string, string> {
    return { NODE_OPTIONS: `--disable-warning=ExperimentalWarning --import=${WORLD}`, ...this.#place.toWorld(this.spec) };
  }

  #takeEnd(code: number): void {
    this.#lap.abort();
    this.#place.onStep(`${this.spec.name} ended ${code}`);
    if (this.#isEnding || !this.#place.shouldRestart(code)) {
      this.#finish(code);
      return;
    }
    this.#restarts++;
    this.#isStarted = false;
    this.#isReady = false;
    this.#changed();
    setTimeout(() => void (this.#isEnding ? this.#finish(code) : this.start()), this.#place.secondMs);
  }

  #finish(code: number): void {
    this.#exitCode = code;
    this.#finishedAt = new Date().toISOString();
    this.#isReady = false;
    this.#changed();
  }

  #changed(): void {
    for (const wake of [...this.#waiting]) wake();
    this.#place.onChange();
  }

  async #until(isSo: () => boolean): Promise<void> {
    while (!isSo())
      await new Promise<void>((done) => {
        const wake = (): void => {
          this.#waiting.delete(wake);
          done();
        };
        this.#waiting.add(wake);
      });
  }

  /** Startup first; the other two only afterwards. */
  async #probe(signal: AbortSignal): Promise<void> {
    const { startupProbe, readinessProbe, livenessProbe } = this.spec;
    const kill = (): void => {
      this.#place.onStep(`${this.spec.name} failed its probe`);
      this.#program?.child.kill('SIGTERM');
    };
    if (startupProbe !== undefined && !(await this.#untilPassed(startupProbe, signal, kill))) return;
    if (signal.aborted) return;
    this.#isStarted = true;
    this.#isReady = readinessProbe === undefined;
    this.#changed();
    if (readinessProbe !== undefined) void this.#watch(readinessProbe, signal, (isReady) => this.#setReady(isReady));
    if (livenessProbe !== undefined)
      void this.#watch(livenessProbe, signal, (isAlive) => {
        if (!isAlive && !this.#isEnding) kill();
      });
  }

  #setReady(isReady: boolean): void {
    if (isReady === this.#isReady) return;
    this.#isReady = isReady;
    this.#place.onStep(`${this.spec.name} ${isReady ? 'ready' : 'not ready'}`);
    this.#changed();
  }

  async #untilPassed(probe: Kube, signal: AbortSignal, fail: () => void): Promise<boolean> {
    const { periodSeconds, failureThreshold, initialDelaySeconds } = { ...PROBE_DEFAULTS, ...probe };
    await this.#sleep(initialDelaySeconds);
    const most = this.#toTries(failureThreshold);
    for (let failures = 0; failures < most && !signal.aborted; failures++) {
      if (await this.#try(probe)) return true;
      await this.#sleep(periodSeconds);
    }
    if (!signal.aborted) fail();
    return false;
  }

  /** A pod's seconds may pass faster than real ones; what ends a process must not come sooner for that. */
  #toTries(failureThreshold: number): number {
    return Math.ceil((failureThreshold * 1_000) / Math.min(1_000, this.#place.secondMs));
  }

  async #watch(probe: Kube, signal: AbortSignal, tell: (isFine: boolean) => void): Promise<void> {
    const { periodSeconds, failureThreshold, successThreshold, initialDelaySeconds } = { ...PROBE_DEFAULTS, ...probe };
    await this.#sleep(initialDelaySeconds);
    const most = probe === this.spec.livenessProbe ? this.#toTries(failureThreshold) : failureThreshold;
    let [failures, successes] = [0, 0];
    while (!signal.aborted) {
      const isFine = await this.#try(probe);
      [failures, successes] = isFine ? [0, successes + 1] : [failures + 1, 0];
      if (signal.aborted) return;
      if (successes >= successThreshold) tell(true);
      if (failures >= most) tell(false);
      await this.#sleep(periodSeconds);
    }
  }

  async #try(action: Kube): Promise<boolean> {
    if (action.sleep !== undefined) {
      await this.#sleep(action.sleep.seconds);
      return true;
    }
    const { address } = this.#place;
    return succeeds(action, { address, container: this.spec, execute: (command) => this.execute(command) });
  }

  /** Runs a command within its world; gives the exit code. */
  async execute(command: readonly string[]): Promise<number> {
    // A shell knows nothing of the pod's world, in which loopback is another address.
    const inWorld = command.map((part) => part.replaceAll('/dev/tcp/127.0.0.1/', `/dev/tcp/${this.#place.inner}/`));
    const [program = '', ...args] = toCommandLine({ command: inWorld }, this.#env);
    const env = { PATH: process.env['PATH'], ...this.#env, ...this.#toWorld() };
    const { child } = startProgram(program, args, this.#logFile(), env);
    return new Promise((done) => {
      child.once('error', () => done(127));
      child.once('exit', (code) => done(code ?? 1));
    });
  }

  #sleep(seconds: number): Promise<void> {
    return new Promise((done) => setTimeout(done, seconds * this.#place.secondMs));
  }
}
