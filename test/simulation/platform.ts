/**
 * Replaces what connects the program with its machine: time, timers, randomness, sockets, threads. Import it before the program. Outside a
 * simulation everything stays as it was. `node:http` and ioredis themselves are real; they use the replaced sockets and timers.
 */
import crypto from 'node:crypto';
import diagnosticsChannel from 'node:diagnostics_channel';
import http from 'node:http';
import { syncBuiltinESMExports } from 'node:module';
import net from 'node:net';
import v8 from 'node:v8';
import workerThreads from 'node:worker_threads';
import type { Owner, ScheduledEvent, Scheduler } from './scheduler.ts';

/** What the machine of the running simulation provides. */
export interface Platform {
  readonly scheduler: Scheduler;
  connect(options: net.NetConnectOpts): net.Socket;
  bind(server: net.Server, options: net.ListenOptions): void;
  unbind(server: net.Server): boolean;
  addressOf(server: net.Server): net.AddressInfo | null;
  createWorker(data: unknown): workerThreads.Worker;
  wallClock(owner: Owner): number;
  onSubscribe(unsubscribe: () => void): void;
}

let platform: Platform | undefined;

export function enterSimulation(entered: Platform): void {
  platform = entered;
}

export function leaveSimulation(): void {
  platform = undefined;
}

const MAX_DELAY = 2_147_483_647;

/** A timer of the simulation, as Node's: `unref()` and the like do nothing. */
class SimulatedTimer {
  readonly #delay: number;
  readonly #run: () => void;
  readonly #owner: Owner;
  readonly #scheduler: Scheduler;
  #event: ScheduledEvent;

  constructor(scheduler: Scheduler, owner: Owner, delay: number, run: () => void, isPeriodic: boolean) {
    this.#scheduler = scheduler;
    this.#owner = owner;
    this.#delay = delay;
    this.#run = run;
    this.#event = isPeriodic ? scheduler.every(delay, owner, run) : scheduler.after(delay, owner, run);
  }

  cancel(): void {
    this.#scheduler.cancel(this.#event);
  }

  refresh(): this {
    if (this.#event.interval === 0) {
      this.cancel();
      this.#event = this.#scheduler.after(this.#delay, this.#owner, this.#run);
    }
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  hasRef(): boolean {
    return true;
  }
}

/** As Node: at least 1 ms, and whole milliseconds. */
export function toTimerDelay(delay: unknown): number {
  const number = Math.trunc(Number(delay));
  return number >= 1 && number <= MAX_DELAY ? number : 1;
}

type AnyFunction = (...args: unknown[]) => unknown;

function patchTimers(): void {
  const real = { setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate };
  const start =
    (isPeriodic: boolean, otherwise: AnyFunction) =>
    (callback: AnyFunction, delay?: unknown, ...args: unknown[]): unknown => {
      const scheduler = platform?.scheduler;
      const owner = scheduler?.current;
      if (scheduler === undefined || owner === undefined) return otherwise(callback, delay, ...args);
      return new SimulatedTimer(scheduler, owner, toTimerDelay(delay), () => callback(...args), isPeriodic);
    };
  const clear =
    (otherwise: AnyFunction) =>
    (timer: unknown): void => {
      if (timer instanceof SimulatedTimer) timer.cancel();
      else otherwise(timer);
    };
  const startTurn = (callback: AnyFunction, ...args: unknown[]): unknown => {
    const scheduler = platform?.scheduler;
    const owner = scheduler?.current;
    if (scheduler === undefined || owner === undefined) return real.setImmediate(callback, ...args);
    return scheduler.nextTurn(owner, () => callback(...args));
  };
  Object.assign(globalThis, {
    setTimeout: start(false, real.setTimeout as AnyFunction),
    setInterval: start(true, real.setInterval as AnyFunction),
    setImmediate: startTurn,
    clearTimeout: clear(real.clearTimeout as AnyFunction),
    clearInterval: clear(real.clearInterval as AnyFunction),
    clearImmediate: clear(real.clearImmediate as AnyFunction),
  });
}

function patchClocks(): void {
  const now = Date.now;
  const monotonic = performance.now.bind(performance);
  Date.now = () => {
    const owner = platform?.scheduler.current;
    return platform === undefined || owner === undefined ? now() : platform.wallClock(owner);
  };
  performance.now = () => (platform?.scheduler.current === undefined ? monotonic() : platform.scheduler.now);
}

function patchRandomness(): void {
  const real = { random: Math.random, uuid: crypto.randomUUID, bytes: crypto.randomBytes };
  const random = (): Scheduler['random'] | undefined =>
    platform?.scheduler.current === undefined ? undefined : platform.scheduler.random;
  Math.random = () => random()?.fraction() ?? real.random();
  const uuid: typeof crypto.randomUUID = (options) => {
    const bytes = random()?.bytes(16).toString('hex');
    if (bytes === undefined) return real.uuid(options);
    return `${bytes.slice(0, 8)}-${bytes.slice(8, 12)}-4${bytes.slice(13, 16)}-8${bytes.slice(17, 20)}-${bytes.slice(20)}`;
  };
  const bytes = (size: number): Buffer => random()?.bytes(size) ?? real.bytes(size);
  Object.assign(crypto, { randomUUID: uuid, randomBytes: bytes });
}

function patchSockets(): void {
  const real = { connect: net.connect, createServer: http.createServer };
  const connect = (...args: Parameters<typeof real.connect>): net.Socket => {
    const [options] = args as unknown as [net.NetConnectOpts];
    return platform?.scheduler.current === undefined ? real.connect(...args) : platform.connect(options);
  };
  const createServer = (options: http.ServerOptions, listener?: http.RequestListener): http.Server => {
    if (platform?.scheduler.current === undefined) return real.createServer(options, listener);
    // Node checks the timeouts of request heads by the real time, which no simulation follows.
    return real.createServer({ ...options, connectionsCheckingInterval: MAX_DELAY }, listener);
  };
  Object.assign(net, { connect, createConnection: connect });
  Object.assign(http, { createServer });
  const { listen, close, address } = net.Server.prototype;
  Object.assign(net.Server.prototype, {
    listen(this: net.Server, ...args: unknown[]): net.Server {
      if (platform?.scheduler.current === undefined) return Reflect.apply(listen, this, args);
      platform.bind(this, args[0] as net.ListenOptions);
      return this;
    },
    close(this: net.Server, ...args: unknown[]): net.Server {
      platform?.unbind(this);
      return Reflect.apply(close, this, args);
    },
    address(this: net.Server): unknown {
      return platform?.addressOf(this) ?? Reflect.apply(address, this, []);
    },
  });
}

function patchThreads(): void {
  const { Worker } = workerThreads;
  Object.assign(workerThreads, {
    Worker: new Proxy(Worker, {
      construct(target, [file, options]: [string | URL, workerThreads.WorkerOptions]) {
        if (platform?.scheduler.current === undefined) return new target(file, options);
        return platform.createWorker(options.workerData);
      },
    }),
  });
}

/** What the real process has must not decide what the simulated ones do. */
function patchMemory(): void {
  const heap = { ...v8.getHeapStatistics(), used_heap_size: 1, total_heap_size: 1, heap_size_limit: 2 ** 32 };
  Object.assign(v8, { getHeapStatistics: () => heap });
  process.constrainedMemory = () => 0;
}

/** A process that was killed cannot unsubscribe. */
function patchChannels(): void {
  const { subscribe, unsubscribe } = diagnosticsChannel;
  const replaced: typeof subscribe = (name, listener) => {
    subscribe(name, listener);
    if (platform?.scheduler.current !== undefined) platform.onSubscribe(() => unsubscribe(name, listener));
  };
  Object.assign(diagnosticsChannel, { subscribe: replaced });
}

patchTimers();
patchClocks();
patchRandomness();
patchSockets();
patchThreads();
patchMemory();
patchChannels();
syncBuiltinESMExports();
