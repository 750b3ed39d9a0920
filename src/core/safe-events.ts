/** Event listeners and callbacks whose exceptions close one connection and never end the process. */
import type { ChildProcess } from 'node:child_process';
import { channel } from 'node:diagnostics_channel';
import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { Http2Session, IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2';
import type { DropArgument, Server, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import type { MessagePort, Worker } from 'node:worker_threads';

/** The diagnostics channel that every `EscapedError` is published to. */
export const ESCAPED_ERRORS = 'sidegate:escaped-error';

/** Where an exception escaped from; `process`: from code without a guard. */
type EscapeSite = 'listener' | 'callback' | 'timer' | 'promise' | 'process';

/** An exception that no caller could handle. */
export interface EscapedError {
  readonly site: EscapeSite;
  readonly error: unknown;
}

/** Events of streams, sockets and responses. */
interface StreamEvents {
  /** A Redis Cluster has another node. The listener declares the type. */
  '+node': [node: never];
  close: [];
  connect: [];
  /** The listener declares the type, which depends on the encoding of the stream. */
  data: [chunk: never];
  drain: [];
  drop: [text: string];
  end: [];
  error: [error: NodeJS.ErrnoException];
  finish: [];
  /** Of a Redis client that subscribed. */
  message: [channel: string, text: string];
  /** Of a PostgreSQL client that listens. */
  notification: [notification: { readonly payload?: string }];
  ready: [];
  secureConnect: [];
  session: [session: Buffer];
  /** Of an HTTP/2 stream; `raw`: names and values. */
  trailers: [trailers: IncomingHttpHeaders, flags: number, raw: string[]];
  wantTrailers: [];
}

interface ClientRequestEvents extends Pick<StreamEvents, 'close' | 'error'> {
  response: [response: IncomingMessage];
  socket: [socket: Socket];
  timeout: [];
}

interface ServerEvents extends Pick<StreamEvents, 'close' | 'error'> {
  checkContinue: [request: IncomingMessage, response: ServerResponse];
  checkExpectation: [request: IncomingMessage, response: ServerResponse];
  clientError: [error: NodeJS.ErrnoException, socket: Duplex];
  connect: [request: IncomingMessage, socket: Duplex, head: Buffer];
  connection: [socket: Socket];
  drop: [dropped?: DropArgument];
  listening: [];
  request: [request: IncomingMessage, response: ServerResponse];
  secureConnection: [socket: TLSSocket];
  tlsClientError: [error: Error, socket: TLSSocket];
  upgrade: [request: IncomingMessage, socket: Duplex, head: Buffer];
}

/** Node emits most others only if they have a listener. A client may send millions of their frames, so each event must be counted (http/server/http2.ts). */
interface SessionEvents extends Pick<StreamEvents, 'close' | 'error'> {
  goaway: [];
  ping: [payload: Buffer];
  stream: [stream: ServerHttp2Stream, headers: IncomingHttpHeaders, flags: number, raw: string[]];
}

interface ChildEvents extends Pick<StreamEvents, 'error'> {
  close: [code: number | null, signal: NodeJS.Signals | null];
}

interface ThreadEvents extends Pick<StreamEvents, 'error'> {
  exit: [code: number];
  message: [message: never];
}

type EventsOf<E> = E extends Server
  ? ServerEvents
  : E extends Http2Session
    ? SessionEvents
    : E extends ClientRequest
      ? ClientRequestEvents
      : E extends ChildProcess
        ? ChildEvents
        : E extends Worker | MessagePort
          ? ThreadEvents
          : StreamEvents;
type ArgumentsOf<E, K extends keyof EventsOf<E>> = Extract<EventsOf<E>[K], unknown[]>;

/** Node passes at most four arguments to a listener. */
type AnyListener = (a?: unknown, b?: unknown, c?: unknown, d?: unknown) => unknown;

interface Emitter {
  on(event: string, listener: AnyListener): unknown;
  off(event: string, listener: AnyListener): unknown;
}

declare const isAdded: unique symbol;

/** A listener as added by `onEvent`, for `offEvent`. Node's `off` would not find the function that the caller passed. */
export type AddedListener = AnyListener & { readonly [isAdded]: true };

const escaped = channel(ESCAPED_ERRORS);

/**
 * Adds `listener`. If it throws, or its promise rejects, the exception is reported, and the sockets, streams and requests among
 * the event's arguments are destroyed, or the emitter itself if there are none. Returns the listener for `offEvent`.
 */
export function onEvent<E extends Emitter, K extends keyof EventsOf<E> & string>(
  emitter: E,
  event: K,
  listener: (...args: ArgumentsOf<E, K>) => unknown,
): AddedListener {
  const call = listener as AnyListener;
  const guarded: AnyListener = (a, b, c, d) => {
    try {
      const result = call(a, b, c, d);
      if (isPromise(result)) result.catch((error: unknown) => onEscaped(error, emitter, [a, b, c, d]));
    } catch (error) {
      onEscaped(error, emitter, [a, b, c, d]);
    }
  };
  emitter.on(event, guarded);
  return guarded as AddedListener;
}

/** Like `onEvent`, for the next event only. */
export function onceEvent<E extends Emitter, K extends keyof EventsOf<E> & string>(
  emitter: E,
  event: K,
  listener: (...args: ArgumentsOf<E, K>) => unknown,
): AddedListener {
  const call = listener as AnyListener;
  const guarded: AnyListener = (a, b, c, d) => {
    emitter.off(event, guarded);
    try {
      const result = call(a, b, c, d);
      if (isPromise(result)) result.catch((error: unknown) => onEscaped(error, emitter, [a, b, c, d]));
    } catch (error) {
      onEscaped(error, emitter, [a, b, c, d]);
    }
  };
  emitter.on(event, guarded);
  return guarded as AddedListener;
}

/** Removes a listener that `onEvent` or `onceEvent` added. */
export function offEvent<E extends Emitter, K extends keyof EventsOf<E> & string>(
  emitter: E,
  event: K,
  added: AddedListener,
): void {
  emitter.off(event, added);
}

/** Removes the listeners of an event that other code has added. Returns a function that adds them again, and calls each with a missed argument. */
export function takeListeners(emitter: Socket, event: 'data'): (missed: Buffer) => void {
  const taken = emitter.listeners(event) as ((chunk: Buffer) => void)[];
  emitter.removeAllListeners(event);
  return (missed) => {
    for (const listener of taken) {
      emitter.on(event, listener);
      if (missed.length > 0) Reflect.apply(listener, emitter, [missed]);
    }
  };
}

/** Calls `listener` when the signal aborts. Returns how to stop listening. */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  const guarded = (): void => {
    try {
      listener();
    } catch (error) {
      reportEscaped('listener', error);
    }
  };
  signal.addEventListener('abort', guarded, { once: true });
  return () => signal.removeEventListener('abort', guarded);
}

/** Guards a callback that Node calls when an operation is done: exceptions in it are reported. */
export function guardCallback<A extends unknown[]>(callback: (...args: A) => void): (...args: A) => void {
  return (...args) => {
    try {
      callback(...args);
    } catch (error) {
      reportEscaped('callback', error);
    }
  };
}

/** Guards a function whose result Node uses: if it throws, it calls `onThrow` and returns `otherwise`. */
export function guardDecision<A extends unknown[], R>(
  decide: (...args: A) => R,
  otherwise: R,
  onThrow?: () => void,
): (...args: A) => R {
  return (...args) => {
    try {
      return decide(...args);
    } catch (error) {
      onThrow?.();
      reportEscaped('callback', error);
      return otherwise;
    }
  };
}

/** Calls the action of a timer, and reports an exception or a rejection. */
export function runTimer(action: () => unknown): void {
  try {
    const result = action();
    if (isPromise(result)) runDetached(result);
  } catch (error) {
    reportEscaped('timer', error);
  }
}

/** The callback for a write: runs `action` unless the write failed. */
export function afterWrite(action: () => void): (error?: Error | null) => void {
  return (error) => {
    if (error === undefined || error === null) runTimer(action);
  };
}

/** Runs `action` in the next turn of the event loop. */
export function runNextTurn(action: () => void): void {
  setImmediate(runTimer, action);
}

/** A sum over one turn of the event loop: in each, Node reads up to 64 KiB of every connection before anything else runs. */
export class SumOfTurn {
  #sum = 0;

  /** Returns the sum with `amount`. */
  add(amount: number): number {
    if (this.#sum === 0)
      runNextTurn(() => {
        this.#sum = 0;
      });
    this.#sum += amount;
    return this.#sum;
  }
}

/** Of connections that send small chunks: by group, in their order. */
const turns = new Map<unknown, (() => void)[]>();

/** Runs one `action` in each turn of the event loop, so that others are served however many connections send small chunks. Groups, such as clients, take turns. */
export function waitForTurn(group: unknown, action: () => void): void {
  const waiting = turns.get(group);
  if (waiting === undefined) turns.set(group, [action]);
  else waiting.push(action);
  if (waiting === undefined && turns.size === 1) runNextTurn(runFirst);
}

function runFirst(): void {
  const [[group, waiting] = []] = turns;
  const action = waiting?.shift();
  turns.delete(group);
  if (waiting !== undefined && waiting.length > 0) turns.set(group, waiting);
  if (turns.size > 0) runNextTurn(runFirst);
  action?.();
}

/** Requests that start in a turn while connections arrive. */
const MAX_STARTED = 4;
/** If many wait, this share of them starts in a turn. */
const STARTED_SHARE = 1 / 32;
/** Further ones start at once, so that the limits of their clients apply: as many as connections of one client. */
const MAX_WAITING = 512;
/** So many turns end before it is certain that no further connection waits. */
const TURNS_OF_ARRIVAL = 2;

/** The connection or stream of a request. */
type Owner = Pick<Duplex, 'destroy'>;

/**
 * In which turn of the event loop requests start. Node accepts one connection in each turn, so further ones wait for as long as the turns take: while
 * connections arrive, a turn starts only a part of the requests, in their order.
 */
class RequestStarts {
  #turnsOfArrival = 0;
  #started = 0;
  /** Those that have had a request. */
  readonly #connections = new WeakSet<object>();
  readonly #waiting: { readonly action: () => unknown; readonly owner: Owner }[] = [];

  /** Call it for each connection that arrives. */
  onArrival(): void {
    if (this.#turnsOfArrival === 0) runNextTurn(() => this.#endTurn());
    this.#turnsOfArrival = TURNS_OF_ARRIVAL;
  }

  /**
   * Starts a request of a connection in this turn, or in a later one if `hold` grants the memory until then and returns how to release it. `owner`: is destroyed if the
   * action throws later, or its promise rejects. The action finds out whether the client still waits.
   */
  start(connection: object, owner: Owner, hold: () => (() => void) | undefined, action: () => unknown): unknown {
    const release = this.#mayStart(connection) ? undefined : hold();
    if (release === undefined) return action();
    const later = (): unknown => {
      release();
      return action();
    };
    if (this.#waiting.push({ action: later, owner }) === 1) runNextTurn(() => this.#startSome());
    return undefined;
  }

  /** The first request of a connection starts at once: connections arrive one in a turn, so these requests seldom come together. */
  #mayStart(connection: object): boolean {
    if (!this.#connections.has(connection)) {
      this.#connections.add(connection);
      return true;
    }
    const { length } = this.#waiting;
    if (length > 0) return length >= MAX_WAITING;
    return this.#turnsOfArrival === 0 || ++this.#started <= MAX_STARTED;
  }

  #startSome(): void {
    const count = Math.max(MAX_STARTED, Math.ceil(this.#waiting.length * STARTED_SHARE));
    for (const { action, owner } of this.#waiting.splice(0, count)) {
      try {
        const result = action();
        if (isPromise(result)) result.catch((error: unknown) => onEscaped(error, owner, []));
      } catch (error) {
        onEscaped(error, owner, []);
      }
    }
    if (this.#waiting.length > 0) runNextTurn(() => this.#startSome());
  }

  #endTurn(): void {
    this.#started = 0;
    if (--this.#turnsOfArrival > 0) runNextTurn(() => this.#endTurn());
  }
}

/** Of all ports, which share the event loop. Marked as pure, so that the library, which has none, is bundled without it. */
export const requestStarts = /* @__PURE__ */ new RequestStarts();

/** Runs `action` after the other microtasks of the current turn. */
export function runSoon(action: () => void): void {
  queueMicrotask(() => runTimer(action));
}

/** Runs `work` without a caller that waits for it; a rejection is reported. */
export function runDetached(work: Promise<unknown>): void {
  work.catch(reportRejection);
}

/** Whether the value must be awaited. Its class does not say so: with another global Promise, as of zone.js, async functions still return the native one. */
export function isPromise<T>(value: T | Promise<T>): value is Promise<T> {
  return typeof (value as Partial<Promise<T>> | null | undefined)?.then === 'function';
}

/** Calls one of both once `promise` is settled, without a caller that waits for it; an exception in it is reported. */
export function whenSettled<T>(promise: Promise<T>, onValue: (value: T) => void, onError: (thrown: unknown) => void): void {
  promise.then(guardSettled(onValue), guardSettled(onError));
}

function guardSettled<T>(action: (value: T) => void): (value: T) => void {
  return (value) => {
    try {
      action(value);
    } catch (error) {
      reportRejection(error);
    }
  };
}

/** Publishes an exception. In a process without a subscriber, such as a command or a worker, it is thrown again. */
export function reportEscaped(site: EscapeSite, error: unknown): void {
  if (!escaped.hasSubscribers) throw error;
  escaped.publish({ site, error } satisfies EscapedError);
}

function reportRejection(error: unknown): void {
  reportEscaped('promise', error);
}

function onEscaped(error: unknown, emitter: unknown, args: readonly unknown[]): void {
  const concerned = args.filter(isDestroyable);
  if (concerned.length > 0) for (const each of concerned) each.destroy();
  else if (isDestroyable(emitter)) emitter.destroy();
  reportEscaped('listener', error);
}

function isDestroyable(value: unknown): value is { destroy(): void } {
  return typeof value === 'object' && value !== null && 'destroy' in value && typeof value.destroy === 'function';
}
