/** Keeps the keys that routes fetch from URLs, across reloads: each URL is fetched once, however many routes use it. */
import type { JsonWebKey } from 'node:crypto';
import type { Clock } from '../core/clock.ts';
import { toErrorText } from '../core/errors.ts';
import { requestOnce } from '../http/client/request-once.ts';
import { type ConnectOverride, type HttpsGet, RemoteFailure, toFreshness } from '../verify/keys/https-get.ts';
import { type KeySetOptions, RemoteKeySet } from '../verify/keys/key-set.ts';
import { type KeyRing, parseJwk } from '../verify/schemes/keys.ts';
import type { Scheme, VerifyKey } from '../verify/schemes/scheme.ts';
import type { CompiledRoute } from './compiled-route.ts';
import type { GateLogger } from './log-events.ts';
import type { Metrics } from './metrics.ts';

const OK = 200;

/** One URL and its keys. */
interface Source {
  readonly set: RemoteKeySet;
  known: readonly JsonWebKey[] | undefined;
}

/** The use of a URL by one active route. */
interface Use {
  readonly id: string;
  readonly route: string;
  readonly name: string;
  readonly scheme: Scheme;
  readonly ring: KeyRing;
}

/** The remote keys of all routes. */
export class RemoteKeys {
  readonly #parts;
  #sources = new Map<string, Source>();
  #uses: readonly Use[] = [];

  constructor(parts: {
    readonly get: HttpsGet;
    readonly clock: Clock;
    readonly logger: GateLogger;
    readonly metrics: Metrics;
  }) {
    this.#parts = parts;
  }

  /** Switches to these routes: they get the keys that are known already at once, and the others are fetched. */
  apply(routes: readonly CompiledRoute[], rings: ReadonlyMap<string, KeyRing>): void {
    const before = this.#sources;
    this.#sources = new Map();
    this.#uses = routes.flatMap((route) => toUses(route, rings.get(route.config.name)));
    for (const [id, options] of toOptions(routes)) {
      const source = before.get(id) ?? this.#open(id, options);
      source.set.configure(options);
      this.#sources.set(id, source);
    }
    for (const [id, { set }] of before) if (!this.#sources.has(id)) set.close();
    for (const use of this.#uses) this.#setKeys(use);
    for (const [route, ring] of rings) ring.watchMisses(() => this.#refreshEarly(route));
  }

  /** Stops fetching. */
  close(): void {
    for (const { set } of this.#sources.values()) set.close();
  }

  #open(id: string, options: KeySetOptions): Source {
    const { get, clock, logger } = this.#parts;
    const { host } = options.url;
    const set = new RemoteKeySet(options, get, clock, {
      onKeys: (keys) => this.#onKeys(id, keys, host),
      onFailure: (message) => logger.warn('remote_keys_failed', { message }),
    });
    return { set, known: undefined };
  }

  #onKeys(id: string, keys: readonly JsonWebKey[] | undefined, host: string): void {
    const { logger } = this.#parts;
    const source = this.#sources.get(id);
    if (source === undefined) return;
    source.known = keys;
    if (keys === undefined) logger.error('remote_keys_expired', { host });
    for (const use of this.#uses.filter((each) => each.id === id)) {
      const count = this.#setKeys(use);
      if (count === 0)
        logger.error('remote_keys_failed', {
          message: `${host}: none of the keys can be used with ${use.scheme.name}`,
          route: use.route,
        });
      else if (count !== undefined) logger.info('remote_keys_loaded', { route: use.route, key: use.name, keys: count });
    }
  }

  /** Sets the keys; returns how many of them the scheme can use, undefined if none are known. */
  #setKeys({ id, route, name, scheme, ring }: Use): number | undefined {
    const known = this.#sources.get(id)?.known;
    const keys = known?.flatMap((jwk): VerifyKey | readonly VerifyKey[] => parseJwk(name, jwk, scheme.description) ?? []);
    ring.setRemote(name, keys?.length === 0 ? undefined : keys);
    this.#parts.metrics.route(route).ready(!ring.isIncomplete);
    return keys?.length;
  }

  #refreshEarly(route: string): boolean {
    const sets = this.#uses.filter((use) => use.route === route).map(({ id }) => this.#sources.get(id)?.set);
    return sets.map((set) => set?.refreshEarly() === true).includes(true);
  }
}

function toUses({ config, webhook }: CompiledRoute, ring: KeyRing | undefined): Use[] {
  if (webhook === undefined || ring === undefined) return [];
  const { scheme } = webhook;
  return webhook.config.jwks.map(({ name, url }) => ({
    id: new URL(url).href,
    route: config.name,
    name,
    scheme,
    ring,
  }));
}

/** By URL, with any settings: a route with others must not lose or fetch keys that are known. The shortest times apply. */
function toOptions(routes: readonly CompiledRoute[]): Map<string, KeySetOptions> {
  const all = new Map<string, KeySetOptions>();
  for (const { url: text, refresh, keepFor } of routes.flatMap(({ config }) => config.webhook?.jwks ?? [])) {
    const url = new URL(text);
    const other = all.get(url.href) ?? { refresh, keepFor };
    all.set(url.href, { url, refresh: Math.min(refresh, other.refresh), keepFor: Math.min(keepFor, other.keepFor) });
  }
  return all;
}

/** Creates the function that fetches keys and certificates. */
export function createHttpsGet(clock: Clock, override?: ConnectOverride): HttpsGet {
  return async (url, limits) => {
    const fail = (message: string): RemoteFailure => new RemoteFailure(`${url.host}: ${message}`);
    const headers = ['Host', url.host, 'Accept', '*/*', 'User-Agent', 'sidegate'];
    const target = override && { ...override.reach(url.hostname), serverName: url.hostname };
    const request = { url, method: 'GET', headers, ca: override?.ca, target, ...limits };
    const response = await requestOnce(request, clock).catch((thrown: unknown) => Promise.reject(fail(toErrorText(thrown))));
    if (response.status !== OK) throw fail(`responded with ${response.status}`);
    if (!response.isComplete) throw fail(`more than ${limits.maxBytes} bytes`);
    const cacheControl = response.headers.all('cache-control').join(',');
    const freshFor = toFreshness({ 'cache-control': cacheControl, age: response.headers.get('age') });
    return { body: response.body, freshFor };
  };
}
