/**
 * Opens the ioredis client for a topology, with defaults for a hot path: no queueing, and all waits are bounded. Calls to a Cluster are not
 * pipelined: ioredis follows the redirections of a pipeline only if all of its commands fail with the same text.
 */
import type { ConnectionOptions } from 'node:tls';
import { Cluster, type Command, Redis, type RedisOptions } from 'ioredis';
import type { Milliseconds } from '../../core/clock.ts';
import { onEvent } from '../../core/safe-events.ts';
import type { Secret } from '../../core/secret.ts';

/** A Redis node. */
export interface RedisNode {
  readonly host: string;
  readonly port: number;
}

/** One server, a Sentinel group or a Cluster. */
export type RedisTopology =
  | { readonly kind: 'standalone'; readonly node: RedisNode }
  | {
      readonly kind: 'sentinel';
      readonly name: string;
      readonly nodes: readonly RedisNode[];
      readonly username?: string;
      readonly password?: Secret;
    }
  | { readonly kind: 'cluster'; readonly nodes: readonly RedisNode[] };

/** TLS to Redis; an empty object trusts the system's CAs. */
export interface RedisTls {
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Secret;
  readonly serverName?: string;
}

/** The connection settings of the shared store, with files and environment variables already read. */
export interface RedisStoreOptions {
  readonly topology: RedisTopology;
  readonly username?: string;
  readonly password?: Secret;
  readonly db?: number;
  readonly tls?: RedisTls;
  readonly keyPrefix: string;
  readonly connectTimeout: Milliseconds;
  /** Maximum time of a call; then the store counts as down. */
  readonly commandTimeout: Milliseconds;
}

/** Either kind of client. */
export type RedisClient = Redis | Cluster;

const FIRST_RECONNECT_MS = 50;
const MAX_RECONNECT_MS = 2_000;
const MAX_REDIRECTIONS = 8;
/** The text of ioredis. */
export const TIMED_OUT = 'Command timed out';
/** A connection ends if nothing arrives for so many command timeouts after a command. */
const SILENT_TIMEOUTS = 2;

/** Doubles up to the maximum delay. Half of it is random, so that a fleet of sidecars does not reconnect all at once. */
export function toReconnectDelay(attempt: number): Milliseconds {
  const full = Math.min(FIRST_RECONNECT_MS * 2 ** Math.min(attempt, 10), MAX_RECONNECT_MS);
  return Math.round(full / 2 + Math.random() * (full / 2));
}

/**
 * Whether the text of an error says that the node is a replica, which takes no writes. For a script, Redis 6.2 puts its own text before it:
 * `ERR Error running script (call to f_…): @user_script: 66: -READONLY You can't write against a read only replica.`
 */
export function isOfReplica(text: string): boolean {
  return /(?:^|: -)READONLY /.test(text);
}

/** Connects in the background, and reconnects after every failure. Without a connection, calls are rejected at once. */
export function openRedis(options: RedisStoreOptions): RedisClient {
  const { topology } = options;
  if (topology.kind === 'cluster') return openCluster(topology.nodes, options);
  const client = new Redis({
    ...toCommonOptions(options),
    ...(topology.kind === 'sentinel' && { sentinels: topology.nodes.map((node) => ({ ...node })), name: topology.name }),
    sentinelRetryStrategy: toReconnectDelay,
    // From the attempt to connect; then the next Sentinel is asked.
    sentinelCommandTimeout: options.connectTimeout + options.commandTimeout,
    retryStrategy: toReconnectDelay,
  });
  // Otherwise the next connection selects the database of this one, which other settings may have replaced.
  onEvent(client, 'close', () => Object.assign(client, { prevCondition: null }));
  boundUnanswered(client);
  return client;
}

/** Later connections use the server, credentials, database and TLS of these settings, which are of the same kind of topology. */
export function updateRedis(client: RedisClient, options: RedisStoreOptions): void {
  const connections =
    client instanceof Cluster ? [client.options.redisOptions, ...client.nodes().map(toOptions)] : [client.options];
  for (const connection of connections) Object.assign(connection ?? {}, toAccess(options));
}

function toOptions({ options }: Redis): RedisOptions {
  return options;
}

function openCluster(nodes: readonly RedisNode[], options: RedisStoreOptions): Cluster {
  const settings = {
    redisOptions: toCommonOptions(options),
    enableOfflineQueue: false,
    enableReadyCheck: false,
    maxRedirections: MAX_REDIRECTIONS,
    clusterRetryStrategy: toReconnectDelay,
    retryDelayOnFailover: FIRST_RECONNECT_MS,
    slotsRefreshTimeout: options.connectTimeout,
    slotsRefreshInterval: 5_000,
  };
  const cluster = new Cluster(
    nodes.map((node) => ({ ...node })),
    settings,
  );
  onEvent(cluster, '+node', (node: Redis) => {
    // A replica in READONLY mode runs a script and rejects its writes; in any other mode it names the master, and ioredis follows. A
    // command is sent to a replica while the connection to the master is missing.
    node.readonly = replyOk;
    // It has those of the start (updateRedis).
    const { username, password, tls } = settings.redisOptions;
    Object.assign(node.options, { username, password, tls });
    boundUnanswered(node);
  });
  return cluster;
}

/**
 * Rejects commands while the oldest one without a reply is over its time. A server that is slow for a moment would otherwise go on to execute
 * commands whose results nobody awaits, each new one behind them and so late as well, even when it is as fast as before.
 */
function boundUnanswered(connection: Redis): void {
  const send = connection.sendCommand.bind(connection);
  const sendInTime: Redis['sendCommand'] = (command, stream) => {
    const oldest = connection.commandQueue.peekFront()?.command as Command | undefined;
    if (oldest?.isSettled === true) command.reject(new Error(TIMED_OUT));
    // ioredis sends the calls of a connection that closed again, also those whose time is over: a claim would reach the new master after its release.
    return command.isSettled ? command.promise : send(command, stream);
  };
  connection.sendCommand = sendInTime;
}

async function replyOk(): Promise<'OK'> {
  return 'OK';
}

function toCommonOptions(options: RedisStoreOptions) {
  return {
    connectTimeout: options.connectTimeout,
    // A request must not wait for a connection that may never be established: it is rejected or forwarded, as its route says.
    commandTimeout: options.commandTimeout,
    // A frozen or lost primary closes no connection: TCP would wait for it for a quarter of an hour, while another one has its place.
    socketTimeout: SILENT_TIMEOUTS * options.commandTimeout,
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    // It runs INFO, and prints a line of plain text if the user may not. The store probes Redis itself (redis-store.ts).
    enableReadyCheck: false,
    keepAlive: 10_000,
    noDelay: true,
    connectionName: 'sidegate',
    ...toAccess(options),
  };
}

/** Has each key that a file can change, also without a value: it replaces the one before. */
function toAccess({ topology, username, password, db = 0, tls }: RedisStoreOptions) {
  const access = { username, password: password?.expose().toString(), db, tls: tls && toTls(tls) };
  if (topology.kind === 'cluster') return access;
  if (topology.kind === 'standalone') return { ...access, ...topology.node };
  return {
    ...access,
    sentinelUsername: topology.username,
    sentinelPassword: topology.password?.expose().toString(),
    sentinelTLS: access.tls,
    enableTLSForSentinelMode: tls !== undefined,
  };
}

function toTls({ ca, cert, key, serverName }: RedisTls): ConnectionOptions {
  return {
    ...(ca === undefined ? undefined : { ca }),
    ...(cert === undefined ? undefined : { cert }),
    ...(key === undefined ? undefined : { key: key.expose() }),
    ...(serverName === undefined ? undefined : { servername: serverName }),
  };
}
