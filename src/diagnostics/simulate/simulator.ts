/** Sends requests through the gate that a config describes, without ports, apps, Redis or certificates, at a simulated time. */
import { type IncomingMessage, request as openRequest } from 'node:http';
import { Duplex, duplexPair } from 'node:stream';
import { type PreparedConfig, type PrepareResult, readParts } from '../../app/check.ts';
import { Gate } from '../../app/gate.ts';
import type { GateLogger } from '../../app/log-events.ts';
import { loadConfig } from '../../config/load/load.ts';
import type { Config } from '../../config/schema/config.ts';
import type { FakeSources } from '../../config/sources/fake-sources.ts';
import { type CancelTimer, type Clock, type EpochMilliseconds, type Milliseconds, systemClock } from '../../core/clock.ts';
import { HeaderFields } from '../../core/head.ts';
import { guardCallback, guardDecision, onEvent, runNextTurn } from '../../core/safe-events.ts';
import type { ListenServer } from '../../http/server/server.ts';
import { parseInboxMetadata } from '../../provider/events/event.ts';
import { createInbox } from '../../provider/inbox/inbox-forwarder.ts';
import type { EventHead } from '../../provider/queue/delivery-queue.ts';
import type { RequestLine } from '../../telemetry/log/logger.ts';
import { type HttpsGet, RemoteFailure } from '../../verify/keys/https-get.ts';
import { type AppBehavior, type AppRequest, FakeApp } from './fake-app.ts';

/** The result of one request. */
export interface SimulationResult {
  /** Its log line. */
  readonly line: RequestLine;
  /** Undefined if the connection was closed without a response. */
  readonly response: SenderResponse | undefined;
  /** Undefined if it was not forwarded. */
  readonly app: AppRequest | undefined;
}

/** Loads a config like the gate, but replaces its real environment: ports, certificates, Redis. */
export async function prepareSimulation(
  file: string,
  startsAt: EpochMilliseconds,
  fakeSources: FakeSources,
): Promise<PrepareResult> {
  const clock = new SimulatedClock(startsAt);
  const loaded = await loadConfig(file, clock, { fakeSources });
  if (loaded.config === undefined) return { loaded: undefined, seen: new Map(), problems: loaded.problems };
  const config = withoutEnvironment(loaded.config);
  const ready = await readParts({ ...loaded, config }, clock, new Map());
  if (ready.loaded === undefined) return ready;
  // Its files are not read, but its settings for clients apply.
  const { tls } = loaded.config.listen;
  return { ...ready, loaded: { ...loaded, config: { ...config, listen: { ...config.listen, tls } } } };
}

/** Uses the store in memory and plain connections, sends no webhooks, exports no spans, and stops without delay. */
function withoutEnvironment(config: Config): Config {
  const { listen, admin, proxy, authz, store, limits, tracing } = config;
  return {
    ...config,
    listen: { ...listen, tls: undefined, proxyProtocol: undefined },
    admin: { ...admin, token: undefined },
    provider: undefined,
    proxy: proxy && { ...proxy, tls: undefined },
    authz: authz && { ...authz, tls: undefined },
    store: { ...store, redis: undefined },
    limits: { ...limits, passwordThreads: 1 },
    tracing: tracing && { ...tracing, otlp: undefined },
    shutdown: { grace: 0, drain: 0 },
  };
}

/** A simulated gate; each has an empty store. */
export class Simulator {
  readonly #clock: SimulatedClock;
  readonly #app = new FakeApp();
  readonly #gate: Gate;
  readonly #listen: ListenServer;
  #onLine: (line: RequestLine) => void = () => undefined;

  constructor(
    ready: PreparedConfig,
    {
      file,
      startsAt,
      remote,
    }: {
      readonly file: string;
      readonly startsAt: EpochMilliseconds;
      /** Bodies of https responses, by URL; other URLs cannot be fetched. */
      readonly remote: ReadonlyMap<string, string>;
    },
  ) {
    this.#clock = new SimulatedClock(startsAt);
    const { createUpstream } = this.#app;
    const inbox = { clock: this.#clock, queue: createQueue(this.#app), retention: Number.POSITIVE_INFINITY, isUsed: () => true };
    const logger = createCapturingLogger((line) => this.#onLine(line));
    this.#gate = new Gate(ready, {
      file,
      clock: this.#clock,
      logger,
      version: 'simulated',
      createUpstream,
      createInbox: (options, policy) => createInbox(options, policy, inbox),
      httpsGet: toGet(remote),
    });
    this.#listen = this.#gate.simulate();
  }

  /** The simulated time. */
  now(): EpochMilliseconds {
    return this.#clock.now();
  }

  /** Advances to this time since the start, unless it is already later: time also passes while the gate waits. */
  goTo(elapsed: Milliseconds): Promise<void> {
    return this.#clock.goTo(elapsed);
  }

  /** Sends one request and waits for its result. */
  async send(request: SimulatedRequest, behavior: AppBehavior): Promise<SimulationResult> {
    this.#app.behavior = behavior;
    const logged = new Promise<RequestLine>((resolve) => {
      this.#onLine = resolve;
    });
    const [response, line] = await this.#clock.runUntil(Promise.all([sendSimulated(this.#listen, request), logged]));
    // Claims are settled after the response.
    await settle();
    return { line, response, app: this.#app.takeReceived()[0] };
  }

  /** Stops the gate. */
  async close(): Promise<void> {
    await this.#clock.runUntil(this.#gate.stop());
  }
}

/** Stores events for this simulation, and passes each to the app once, at once. */
function createQueue(app: FakeApp): Parameters<typeof createInbox>[2]['queue'] {
  const stored = new Map<string, EventHead>();
  return {
    append: async (events) =>
      events.map((event) => {
        if (stored.has(event.id)) return 'duplicate';
        const { type, tenant, createdAt, body } = event;
        stored.set(event.id, { type, tenant, createdAt, source: 'inbox', bytes: body.length, isErased: false });
        const { method = '', path = '', headers = [] } = parseInboxMetadata(event.metadata) ?? {};
        app.receive({ method, path, headers: new HeaderFields([...headers]), body: event.body });
        return 'stored';
      }),
    findEvent: async (id) => stored.get(id),
    async *repair() {
      // No delivery is ever dead.
    },
    stats: () => Promise.reject(new Error('no event is ever missing')),
  };
}

function toGet(remote: ReadonlyMap<string, string>): HttpsGet {
  return async ({ href, host }) => {
    const text = remote.get(href);
    if (text === undefined)
      throw new RemoteFailure(`${host}: the simulator does not fetch, and the fixtures do not contain this URL`);
    return { body: Buffer.from(text), freshFor: undefined };
  };
}

function createCapturingLogger(request: GateLogger['request']): GateLogger {
  const ignore = (): void => undefined;
  return {
    request,
    info: ignore,
    warn: ignore,
    error: ignore,
    reportDropped: ignore,
    flush: async () => undefined,
    flushNow: ignore,
  };
}

// The simulator's clock: it stands still while the gate works, and advances to the next timer while the gate waits.

interface Timer {
  at: Milliseconds;
  readonly interval: Milliseconds | undefined;
  readonly action: () => void;
}

/** Turns of the event loop after which all pending work is done. */
const TURNS = 20;
/** In real time; hashing a password is the slowest work. */
const MAX_WORK_MS: Milliseconds = 30_000;

/** Advances only on request, or when the gate waits for a timer. */
class SimulatedClock implements Clock {
  readonly #startedAt: EpochMilliseconds;
  #monotonic: Milliseconds = 0;
  readonly #timers = new Set<Timer>();

  constructor(startedAt: EpochMilliseconds) {
    this.#startedAt = startedAt;
  }

  now(): EpochMilliseconds {
    return this.#startedAt + this.#monotonic;
  }

  monotonic(): Milliseconds {
    return this.#monotonic;
  }

  after(delay: Milliseconds, action: () => void): CancelTimer {
    return this.#add({ at: this.#monotonic + delay, interval: undefined, action });
  }

  every(interval: Milliseconds, action: () => void): CancelTimer {
    return this.#add({ at: this.#monotonic + interval, interval, action });
  }

  /** Advances to `elapsed` since the start and runs all timers that become due; an earlier time has no effect. */
  async goTo(elapsed: Milliseconds): Promise<void> {
    for (let next = this.#next(elapsed); next !== undefined; next = this.#next(elapsed)) {
      this.#run(next, elapsed);
      await settle();
    }
    this.#monotonic = Math.max(this.#monotonic, elapsed);
  }

  /** Waits for `work`; if it waits for a timer, advances to that timer. */
  async runUntil<T>(work: Promise<T>): Promise<T> {
    let isDone = false;
    const done = work.finally(() => {
      isDone = true;
    });
    done.catch(() => undefined);
    const startedAt = systemClock.monotonic();
    while (!isDone) {
      await settle();
      // Requests do not wait for periodic timers.
      const next = isDone ? undefined : this.#next(Number.POSITIVE_INFINITY, false);
      if (next !== undefined) await this.goTo(next.at);
      else if (systemClock.monotonic() - startedAt > MAX_WORK_MS) throw new Error('sidegate did not decide in time');
    }
    return done;
  }

  #add(timer: Timer): CancelTimer {
    this.#timers.add(timer);
    return () => {
      this.#timers.delete(timer);
    };
  }

  #next(until: Milliseconds, withPeriodic = true): Timer | undefined {
    let next: Timer | undefined;
    for (const timer of this.#timers) {
      if (timer.at > until || (timer.interval !== undefined && !withPeriodic)) continue;
      if (next === undefined || timer.at < next.at) next = timer;
    }
    return next;
  }

  /** Runs a periodic timer only once per advance: three days have a quarter of a million seconds. */
  #run(timer: Timer, until: Milliseconds): void {
    this.#monotonic = Math.max(this.#monotonic, timer.at);
    if (timer.interval === undefined) this.#timers.delete(timer);
    else timer.at = until + timer.interval;
    timer.action();
  }
}

/** Lets all pending work run. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < TURNS; turn++) await new Promise<void>(runNextTurn);
}

// A simulated connection without a network: passes a request to the gate's own server, byte for byte, and reads the response.

/** A client and what it sends. */
export interface SimulatedRequest {
  readonly method: string;
  /** Target, headers and body, as sent on the wire. */
  readonly path: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
  /** Address of the client. */
  readonly client: string;
  readonly isTls: boolean;
  /** The names in the client certificate, each prefixed with its kind. */
  readonly certificateNames: readonly string[] | undefined;
}

/** The response to the sender. */
interface SenderResponse {
  readonly status: number;
  readonly headers: HeaderFields;
  readonly body: Buffer;
}

/** Sends one request; resolves to undefined if the connection is closed without a response. */
async function sendSimulated(listen: ListenServer, request: SimulatedRequest): Promise<SenderResponse | undefined> {
  const [near, far] = duplexPair();
  onEvent(near, 'error', () => undefined);
  listen.receive(Object.assign(far, toPeer(request)));
  const response = readResponse(near, request.method);
  near.write(Buffer.concat([Buffer.from(toHead(request), 'latin1'), request.body]));
  try {
    return await response;
  } finally {
    near.destroy();
    far.destroy();
  }
}

function toHead({ method, path, headers }: SimulatedRequest): string {
  return `${method} ${path} HTTP/1.1\r\n${headers.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`;
}

/** The socket properties that describe the peer. */
function toPeer({ client, isTls, certificateNames }: SimulatedRequest): object {
  const peer = { remoteAddress: client, remotePort: 0 };
  if (!isTls) return peer;
  const certificate = certificateNames === undefined ? {} : toCertificate(certificateNames);
  return { ...peer, encrypted: true, authorized: certificateNames !== undefined, getPeerCertificate: () => certificate };
}

/** A certificate in the form of node:tls. It is not signed, because the simulator skips the handshake. */
function toCertificate(names: readonly string[]): object {
  const alternatives = names.filter((name) => !name.startsWith('CN:')).map(toAlternativeName);
  const [commonName, ...more] = names.filter((name) => name.startsWith('CN:')).map((name) => name.slice(3));
  const raw = Buffer.from(`certificate of ${names.join(', ')}`);
  return {
    subject: { CN: more.length === 0 ? commonName : [commonName, ...more] },
    subjectaltname: alternatives.join(', '),
    raw,
    valid_from: 'Jan 1 00:00:00 1970 GMT',
    valid_to: 'Dec 31 23:59:59 9999 GMT',
  };
}

/** Node quotes values that could be parsed as several names. */
function toAlternativeName(name: string): string {
  const at = name.indexOf(':');
  const [kind, value] = [name.slice(0, at), name.slice(at + 1)];
  return `${kind}:${/[",\\]/.test(value) ? JSON.stringify(value) : value}`;
}

/** Parses the response with node:http, and discards the request that it writes for that. */
function readResponse(near: Duplex, method: string): Promise<SenderResponse | undefined> {
  const connection = new Duplex({
    read: guardCallback(() => {
      near.resume();
    }),
    write: guardCallback((_chunk, _encoding, done) => done()),
  });
  onEvent(near, 'data', (chunk: Buffer) => connection.push(chunk));
  onEvent(near, 'end', () => connection.push(null));
  onEvent(near, 'close', () => connection.destroy());
  return new Promise((resolve) => {
    const reader = openRequest({
      method: method === 'HEAD' ? 'HEAD' : 'GET',
      createConnection: guardDecision(() => connection, undefined),
    });
    onEvent(reader, 'response', async (incoming) => resolve(await collect(incoming)));
    onEvent(reader, 'error', () => resolve(undefined));
    reader.end();
  });
}

async function collect(incoming: IncomingMessage): Promise<SenderResponse | undefined> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
  } catch {
    return undefined;
  }
  return { status: incoming.statusCode ?? 0, headers: new HeaderFields(incoming.rawHeaders), body: Buffer.concat(chunks) };
}
