/** Describes a failure of Redis for the operator: which store, at which address, since when and why. */
import { type Clock, type EpochMilliseconds, toInstant } from '../../core/clock.ts';
import type { RedisNode, RedisTopology } from './client.ts';

/** A store that is down. */
export interface StoreOutage {
  /** One sentence with the address, the time and the cause; contains no credentials. */
  readonly message: string;
  readonly address: string;
  readonly since: EpochMilliseconds;
  /** The error that Redis replied, if there is a connection. */
  readonly reply: string | undefined;
  /** How to fix it. */
  readonly hint: string;
}

const NOT_CONNECTED = 'not connected';
const CLOSED = 'connection closed';
/** System errors, by code. */
const CODES: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ECONNRESET: 'connection reset',
  EPIPE: CLOSED,
  ETIMEDOUT: 'connecting timed out',
  EHOSTUNREACH: 'no route to the host',
  ENETUNREACH: 'no route to the network',
  ENOTFOUND: 'the host name does not resolve',
  EAI_AGAIN: 'the host name does not resolve at the moment',
};
/** Replacements for error messages of the client library, which mean nothing to an operator. */
const LIBRARY_TEXTS: readonly (readonly [RegExp, string])[] = [
  [/^Command timed out/, 'no reply in time'],
  [/sentinels? (?:is|are) unreachable/i, 'no Sentinel replies'],
  [/startup nodes|slots cache|ClusterAllFailed/i, 'no node of the Cluster replies'],
  [/too many cluster redirections/i, 'the Cluster redirects without end'],
];
/** Before what the last Sentinel replied. */
const LAST_ERROR = ' Last error: ';
/** An error reply of Redis: a code and a text (RESP). */
const REPLY = /^(?:-?ERR|[A-Z]{3,}) \S/;
const MAX_REPLY_LENGTH = 200;
const REPLIED = 'Redis replied: ';
const UNREACHABLE_HINT = 'start Redis, or correct its address, user, password or TLS';
/** How to fix what Redis replied. A script of Redis 6 puts its own text before the code. */
const HINTS: readonly (readonly [RegExp, string])[] = [
  [/\bREADONLY\b/, 'this server is a replica: use the address of the primary, or store.redis.sentinel or cluster, which find it'],
  [/\bNOPERM\b|can't run this command/, 'allow the user the commands and keys that docs/how-to/redis.md lists'],
  [/\bOOM\b/, 'raise maxmemory, or move other data to another server'],
  [/\bMISCONF\b/, 'Redis cannot save its data: free or enlarge its disk, and see its log'],
  [/\bNOREPLICAS\b/, 'too few replicas are connected: start them, or lower min-replicas-to-write'],
  [/\b(?:LOADING|MASTERDOWN|CLUSTERDOWN|BUSY|TRYAGAIN)\b/, 'wait until Redis is ready; if it does not become ready, see its log'],
];

/** An error of a connection or of a call. */
export interface StoreError {
  readonly message?: string;
  readonly code?: unknown;
  /** In a Cluster: why the last node that was asked did not help. */
  readonly lastNodeError?: StoreError;
}

/** Why a call or a connection failed. */
export function toCause({ message = '', code, lastNodeError }: StoreError): string {
  const found = typeof code === 'string' ? code : /\b(E[A-Z]{4,}|EAI_AGAIN)\b/.exec(message)?.[1];
  if (found !== undefined && Object.hasOwn(CODES, found)) return CODES[found] ?? NOT_CONNECTED;
  const reply = [message, lastNodeError?.message, message.split(LAST_ERROR)[1]].find((text = '') => REPLY.test(text));
  if (reply !== undefined) return `${REPLIED}${reply.slice(0, MAX_REPLY_LENGTH)}`;
  const known = LIBRARY_TEXTS.find(([pattern]) => pattern.test(message));
  if (known !== undefined) return known[1];
  return found === undefined ? NOT_CONNECTED : `the connection failed (${found})`;
}

function toHint(cause: string): string {
  return HINTS.find(([pattern]) => pattern.test(cause))?.[1] ?? UNREACHABLE_HINT;
}

/** The address of Redis, without credentials. */
export function formatAddress(topology: RedisTopology): string {
  if (topology.kind === 'standalone') return formatNode(topology.node);
  const nodes = topology.nodes.map(formatNode).join(', ');
  return topology.kind === 'cluster' ? `${nodes} (Cluster)` : `${nodes} (Sentinel of ${topology.name})`;
}

function formatNode({ host, port }: RedisNode): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** Records the current outage. */
export class OutageRecord {
  readonly #address: string;
  readonly #clock: Clock;
  #since: EpochMilliseconds | undefined;
  #cause = NOT_CONNECTED;

  constructor(topology: RedisTopology, clock: Clock) {
    this.#address = formatAddress(topology);
    this.#clock = clock;
  }

  /**
   * Records a failure. A less specific cause does not replace a more specific one: a call without a connection, and the close after
   * each failed attempt to connect, must not hide why there is no connection.
   */
  fail(error: StoreError): StoreOutage {
    const cause = toCause(error);
    const isSpecific = cause !== NOT_CONNECTED && (cause !== CLOSED || this.#cause === NOT_CONNECTED);
    if (this.#since === undefined || isSpecific) this.#cause = cause;
    this.#since ??= this.#clock.now();
    const since = toInstant(this.#since);
    return {
      message: `Redis at ${this.#address} is down since ${since}: ${this.#cause}`,
      address: this.#address,
      since: this.#since,
      reply: this.#cause.startsWith(REPLIED) ? this.#cause.slice(REPLIED.length) : undefined,
      hint: toHint(this.#cause),
    };
  }

  end(): void {
    this.#since = undefined;
    this.#cause = NOT_CONNECTED;
  }
}
