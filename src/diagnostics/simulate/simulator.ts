/** Sends requests through the gate that a config describes, without ports, apps, Redis or certificates, at a simulated time. */

import { type HttpsGet, RemoteFailure } from '../../auth/keys/https-get.ts';
import { loadConfig } from '../../config/load/load.ts';
import type { Config } from '../../config/schema/config.ts';
import type { FakeSources } from '../../config/sources/fake-sources.ts';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { type PreparedConfig, type Readiness, readParts } from '../../gateway/runtime/check.ts';
import { Gate } from '../../gateway/runtime/gate.ts';
import type { GateLogger } from '../../gateway/runtime/log-events.ts';
import type { ListenServer } from '../../gateway/server/server.ts';
import type { RequestLine } from '../../telemetry/log/logger.ts';
import { type AppPlan, type AppSight, FakeApp } from './fake-app.ts';
import { SimulatedClock, settle } from './simulated-clock.ts';
import { type SenderAnswer, type SimulatedRequest, sendSimulated } from './simulated-connection.ts';

/** What came of one request. */
export interface SimulationResult {
  /** What the gate's log says of it. */
  readonly line: RequestLine;
  /** Undefined where the connection was cut. */
  readonly answer: SenderAnswer | undefined;
  /** Undefined where nothing reached the app. */
  readonly app: AppSight | undefined;
}

/** Loads a config as the gate would, except for what only its real environment has. */
export async function prepareSimulation(file: string, startsAt: EpochMilliseconds, fakeSources: FakeSources): Promise<Readiness> {
  const clock = new SimulatedClock(startsAt);
  const loaded = await loadConfig(file, clock, { fakeSources });
  if (loaded.config === undefined) return { loaded: undefined, seen: new Map(), problems: loaded.problems };
  const config = withoutSurroundings(loaded.config);
  const ready = await readParts(file, { ...loaded, config }, clock, new Map());
  if (ready.loaded === undefined) return ready;
  // Its files are not read, but what it says of clients holds.
  const { tls } = loaded.config.listen;
  return { ...ready, loaded: { ...loaded, config: { ...config, listen: { ...config.listen, tls } } } };
}

/** Ids are remembered here, connections come as they are, spans go nowhere, and nothing is waited for at the end. */
function withoutSurroundings(config: Config): Config {
  const { listen, admin, proxy, authz, store, limits, tracing } = config;
  return {
    ...config,
    listen: { ...listen, tls: undefined, proxyProtocol: undefined },
    admin: { ...admin, token: undefined },
    proxy: proxy && { ...proxy, tls: undefined },
    authz: authz && { ...authz, tls: undefined },
    store: { ...store, redis: undefined },
    limits: { ...limits, passwordThreads: 1 },
    tracing: tracing && { ...tracing, otlp: undefined },
    shutdown: { grace: 0, drain: 0 },
  };
}

/** When it plays, and what the gate finds elsewhere. */
export interface Setting {
  readonly file: string;
  readonly startsAt: EpochMilliseconds;
  /** What others give out by https, by URL; anything else cannot be had. */
  readonly remote: ReadonlyMap<string, string>;
}

/** A simulated gate; each has an empty store. */
export class Simulator {
  readonly #clock: SimulatedClock;
  readonly #app = new FakeApp();
  readonly #gate: Gate;
  readonly #listen: ListenServer;
  #onLine: (line: RequestLine) => void = () => undefined;

  constructor(ready: PreparedConfig, { file, startsAt, remote }: Setting) {
    this.#clock = new SimulatedClock(startsAt);
    const { createUpstream } = this.#app;
    const logger = createCapturingLogger((line) => this.#onLine(line));
    this.#gate = new Gate(ready, {
      file,
      clock: this.#clock,
      logger,
      version: 'simulated',
      createUpstream,
      httpsGet: toGet(remote),
    });
    this.#listen = this.#gate.simulate();
  }

  /** The simulated time. */
  now(): EpochMilliseconds {
    return this.#clock.now();
  }

  /** Goes on to this long after the start, unless it is later already: time passes where the gate waits, too. */
  goTo(elapsed: Milliseconds): Promise<void> {
    return this.#clock.goTo(elapsed);
  }

  /** Plays one request to its end. */
  async play(request: SimulatedRequest, plan: AppPlan): Promise<SimulationResult> {
    this.#app.plan = plan;
    const told = new Promise<RequestLine>((resolve) => {
      this.#onLine = resolve;
    });
    const [answer, line] = await this.#clock.runUntil(Promise.all([sendSimulated(this.#listen, request), told]));
    // Claims are settled behind the answer.
    await settle();
    return { line, answer, app: this.#app.takeSeen()[0] };
  }

  /** Ends it. */
  async close(): Promise<void> {
    await this.#clock.runUntil(this.#gate.stop());
  }
}

function toGet(remote: ReadonlyMap<string, string>): HttpsGet {
  return async ({ href, host }) => {
    const text = remote.get(href);
    if (text === undefined) throw new RemoteFailure(`${host}: nobody is asked in a rehearsal, and the fixtures do not have it`);
    return { body: Buffer.from(text), freshFor: undefined };
  };
}

function createCapturingLogger(request: GateLogger['request']): GateLogger {
  const ignore = (): void => undefined;
  return { request, info: ignore, warn: ignore, error: ignore, flush: ignore, flushNow: ignore };
}
