/** Opens the store from its config: reads the files that it names, and chooses memory or Redis. */
import { createSecureContext } from 'node:tls';
import { type Config, type RedisConfig, remembersIds, type SecretSource, type StoreConfig } from '../config/schema/config.ts';
import { REDIS_URL_HINT } from '../config/schema/store-schema.ts';
import { readCas, readPem } from '../config/sources/bounded-read.ts';
import { readSecret } from '../config/sources/secrets.ts';
import type { Clock } from '../core/clock.ts';
import { toErrorText } from '../core/errors.ts';
import { error, type Path, type Problem, under, unwrap } from '../core/problem.ts';
import { Secret } from '../core/secret.ts';
import { createMemoryNewestVersions, createMemorySeenIds, type StoreLimit } from '../state/memory.ts';
import type { NewestVersions } from '../state/newest-versions.ts';
import type { RedisNode, RedisStoreOptions, RedisTls, RedisTopology } from '../state/redis/client.ts';
import { createRedisStore, type RedisStoreEvents } from '../state/redis/redis-store.ts';
import type { SeenIds } from '../state/seen-ids.ts';
import type { SharedStreams } from '../state/shared-streams.ts';
import { type Attempts, createMemoryAttempts, withBanCache, withFallback } from '../users/attempts.ts';

/** The settings of the store; without Redis it is in memory. */
export interface StoreSettings {
  readonly redis: RedisStoreOptions | undefined;
  readonly maxIds: number;
  /** Whether several routes remember IDs, and resources of `order`. */
  readonly isShared: Readonly<Record<'ids' | 'resources', boolean>>;
  readonly problems: readonly Problem[];
}

const DEFAULT_PORT = 6379;
const PATH = ['store', 'redis'];

/** Reads the secrets and files the store's config names. */
export async function readStoreSettings({ store, routes }: Pick<Config, 'store' | 'routes'>): Promise<StoreSettings> {
  const isShared = {
    ids: routes.filter(remembersIds).length > 1,
    resources: routes.filter(({ webhook }) => webhook?.order !== undefined).length > 1,
  };
  const settings = { redis: undefined, maxIds: store.memory.maxIds, isShared, problems: [] };
  if (store.redis === undefined) return settings;
  const reader = new SettingsReader();
  const redis = await reader.read(store.redis);
  return { ...settings, redis, problems: under(PATH, reader.problems) };
}

type TlsConfig = { readonly [Key in 'caFile' | 'certFile' | 'keyFile' | 'serverName']?: string | undefined };

/** The files to watch. */
export function toStoreFiles({ redis }: StoreConfig): string[] {
  const { urlFile, passwordFile, sentinel, tls = {} } = redis ?? {};
  const { caFile, certFile, keyFile }: TlsConfig = tls;
  return [urlFile, passwordFile, sentinel?.passwordFile, caFile, certFile, keyFile].filter((file) => file !== undefined);
}

/** The maximum number of clients and users whose failed attempts are kept in memory: about 10 MB. */
const MAX_ATTEMPT_KEYS = 100_000;

/** The store, which all routes share. */
export interface OpenedStore {
  readonly seenIds: SeenIds;
  readonly versions: NewestVersions;
  /** Only `lift` rejects. */
  readonly attempts: Attempts;
  /** Undefined without Redis. */
  readonly streams: SharedStreams | undefined;
  /** Later connections to Redis, and shares of the memory, use these settings, which were read from the config in use. */
  update(settings: StoreSettings): void;
  /** Closes connections; later calls reject with StoreUnavailable. */
  close(): Promise<void>;
}

/** Opens the store; Redis connects in the background. */
export function openStore(
  settings: StoreSettings,
  clock: Clock,
  events: RedisStoreEvents & {
    /** Login attempts are rejected because every counter in memory is banned, or events because IDs or resources fill their memory. */
    onFull(limit: 'login_attempts' | StoreLimit): void;
  },
): OpenedStore {
  const attempts = createMemoryAttempts(clock, MAX_ATTEMPT_KEYS, () => events.onFull('login_attempts'));
  if (settings.redis !== undefined) {
    const store = createRedisStore(settings.redis, events, clock);
    const shared = withBanCache(store, clock, { maxBans: MAX_ATTEMPT_KEYS });
    return {
      seenIds: store,
      versions: store,
      attempts: withFallback(shared, attempts),
      streams: store,
      update: ({ redis }) => redis && store.update(redis),
      close: () => store.close(),
    };
  }
  const { maxIds } = settings;
  let { isShared } = settings;
  const onFull = (limit: StoreLimit): void => events.onFull(limit);
  const seenIds = createMemorySeenIds(clock, { isShared: () => isShared.ids, onFull, maxIds });
  const versions = createMemoryNewestVersions(clock, { isShared: () => isShared.resources, onFull, maxResources: maxIds });
  events.onUp();
  return {
    seenIds,
    versions,
    attempts,
    streams: undefined,
    update(next) {
      isShared = next.isShared;
    },
    close: async () => {
      await Promise.all([seenIds.close(), versions.close()]);
    },
  };
}

/** The settings from a URL. */
interface FromUrl {
  readonly node: RedisNode;
  readonly username?: string;
  readonly password?: Secret;
  readonly db?: number;
  readonly isTls: boolean;
}

class SettingsReader {
  readonly problems: Problem[] = [];

  async read(config: RedisConfig): Promise<RedisStoreOptions | undefined> {
    const url = await this.#readUrl(config);
    const topology = await this.#toTopology(config, url);
    const password = (await this.#readPassword(config)) ?? url?.password;
    const username = config.username ?? url?.username;
    const db = config.db ?? url?.db;
    const tls = await this.#readTls(config, url?.isTls === true);
    if (topology === undefined || this.problems.length > 0) return undefined;
    const { keyPrefix, connectTimeout, commandTimeout } = config;
    return {
      topology,
      keyPrefix,
      connectTimeout,
      commandTimeout,
      ...(username === undefined ? undefined : { username }),
      ...(password === undefined ? undefined : { password }),
      ...(db === undefined ? undefined : { db }),
      ...(tls === undefined ? undefined : { tls }),
    };
  }

  async #readUrl(config: RedisConfig): Promise<FromUrl | undefined> {
    if (config.url !== undefined) return this.#parseUrl(config.url, 'url');
    if (config.urlFile === undefined) return undefined;
    const text = await this.#readSecret({ file: config.urlFile }, ['urlFile']);
    return text === undefined ? undefined : this.#parseUrl(text.expose().toString(), 'urlFile');
  }

  /** The text may hold a password, so no message quotes it. */
  #parseUrl(text: string, key: string): FromUrl | undefined {
    const url = URL.canParse(text) ? new URL(text) : undefined;
    const [username, password] = url === undefined ? [] : [decode(url.username), decode(url.password)];
    if (url === undefined || !['redis:', 'rediss:'].includes(url.protocol) || url.hostname === '') {
      this.problems.push(error([key], 'must be a redis:// or rediss:// URL', REDIS_URL_HINT));
      return undefined;
    }
    // Ignored, they would mean database 0, and a part of a password could be read as a host.
    const path = /^\/?(\d{1,4})?$/.exec(url.pathname);
    if (path === null || url.search !== '' || url.hash !== '') {
      const message = 'only /N, the number of a database, may follow the host and port';
      this.problems.push(error([key], message, `${REDIS_URL_HINT}; remove parameters; TLS files belong in store.redis.tls`));
      return undefined;
    }
    if (username === undefined || password === undefined) {
      const message = 'the user or password has a % that does not begin an escape';
      this.problems.push(error([key], message, 'write % as %25, or use username and passwordFile'));
      return undefined;
    }
    const host = url.hostname.startsWith('[') ? url.hostname.slice(1, -1) : url.hostname;
    const db = path[1];
    return {
      node: { host, port: url.port === '' ? DEFAULT_PORT : Number(url.port) },
      isTls: url.protocol === 'rediss:',
      ...(username === '' ? undefined : { username }),
      ...(password === '' ? undefined : { password: new Secret(Buffer.from(password)) }),
      ...(db === undefined ? undefined : { db: Number(db) }),
    };
  }

  async #toTopology(config: RedisConfig, url: FromUrl | undefined): Promise<RedisTopology | undefined> {
    if (url !== undefined) return { kind: 'standalone', node: url.node };
    if (config.cluster !== undefined) return { kind: 'cluster', nodes: config.cluster.nodes };
    if (config.sentinel === undefined) return undefined;
    const { name, nodes, username, passwordFile } = config.sentinel;
    const password =
      passwordFile === undefined ? undefined : await this.#readSecret({ file: passwordFile }, ['sentinel', 'passwordFile']);
    return {
      kind: 'sentinel',
      name,
      nodes,
      ...(username === undefined ? undefined : { username }),
      ...(password === undefined ? undefined : { password }),
    };
  }

  async #readPassword(config: RedisConfig): Promise<Secret | undefined> {
    if (config.passwordFile !== undefined) return this.#readSecret({ file: config.passwordFile }, ['passwordFile']);
    return config.passwordEnv === undefined ? undefined : this.#readSecret({ env: config.passwordEnv }, ['passwordEnv']);
  }

  async #readTls(config: RedisConfig, isTlsUrl: boolean): Promise<RedisTls | undefined> {
    const { tls } = config;
    if (tls === undefined) return isTlsUrl ? {} : undefined;
    const files: TlsConfig = tls;
    const ca = await this.#readFile(files.caFile, ['tls', 'caFile'], readCas);
    const cert = await this.#readFile(files.certFile, ['tls', 'certFile'], readPem);
    const key = files.keyFile === undefined ? undefined : await this.#readSecret({ file: files.keyFile }, ['tls', 'keyFile']);
    try {
      // With these files the client would end at the next connect, and never try again.
      createSecureContext({ ca, cert, key: key?.expose() });
    } catch (thrown) {
      const hint = 'check that the files are PEM, and that the key is that of the certificate';
      this.problems.push(error(['tls'], `the files cannot be used (${toErrorText(thrown)})`, hint));
    }
    return {
      ...(ca === undefined ? undefined : { ca }),
      ...(cert === undefined ? undefined : { cert }),
      ...(key === undefined ? undefined : { key }),
      ...(files.serverName === undefined ? undefined : { serverName: files.serverName }),
    };
  }

  async #readFile(file: string | undefined, path: Path, read: typeof readPem): Promise<Buffer | undefined> {
    return file === undefined ? undefined : unwrap(await read(file), path, this.problems);
  }

  async #readSecret(source: SecretSource, path: Path): Promise<Secret | undefined> {
    return unwrap(await readSecret(source), path, this.problems)?.secret;
  }
}

/** Undefined if a % does not begin an escape. */
function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
