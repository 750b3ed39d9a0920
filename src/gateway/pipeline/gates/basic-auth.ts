/** Authenticates the client by HTTP Basic (RFC 7617). */
import { hash } from 'node:crypto';
import { hostname } from 'node:os';
import type { User } from '../../../core/admitted.ts';
import type { Clock, Milliseconds } from '../../../core/clock.ts';
import { isLoopbackIp, toClientNetwork } from '../../../core/ip-address.ts';
import { type Reason, type Refusal, refuse } from '../../../core/refusal.ts';
import type { AttemptKeys, Attempts, AttemptsRule } from '../../../users/attempts.ts';
import { type BasicCredentials, type CredentialsProblem, readBasic } from '../../../users/basic.ts';
import type { LivePassword } from '../../../users/user-set.ts';
import type { CountAttempt, PasswordVerifier } from '../../../users/verifier.ts';
import type { PasswordGate } from './gate.ts';

/** The limit on failed attempts. */
interface AttemptsLimit extends AttemptsRule {
  /** Attempts are counted per client network, per user, or both. */
  readonly by: readonly ('client' | 'user')[];
}

/** The gate's options. */
export interface BasicAuthOptions {
  /** Decodes bytes that are not UTF-8 as Latin-1, for clients that predate RFC 7617. */
  readonly latin1: boolean;
  readonly realm: string;
  /** Challenges as an origin (401) or as a proxy (407; RFC 9110 §11.6 and §11.7). */
  readonly as: 'origin' | 'proxy';
  /** Rejects plain HTTP before a password is read. */
  readonly requireTls: boolean;
  readonly limit: AttemptsLimit | undefined;
}

const REASONS: Readonly<Record<CredentialsProblem, Reason>> = {
  missing: 'no_credentials',
  other_scheme: 'no_credentials',
  malformed: 'malformed_credentials',
  charset: 'malformed_credentials',
  too_long: 'malformed_credentials',
};
const UNLIMITED: CountAttempt = { keys: [], take: async () => ({ kind: 'taken', refund: async () => undefined }) };
/**
 * How long the response to a banned client is delayed: a client that guesses as fast as responses arrive would otherwise occupy
 * the event loop, at 0.2 ms per guess (bench/RESULTS-basic.md).
 */
const BAN_DELAY_MS: Milliseconds = 100;
/** The maximum number of delayed responses; further ones are sent at once. */
const MAX_DELAYED = 1_000;

/** Builds the gate. The client gets the same response to any problem with its credentials. */
export function createBasicAuthGate(
  options: BasicAuthOptions,
  parts: {
    readonly clock: Clock;
    /** Knows the realm's current users. */
    readonly verifier: () => PasswordVerifier;
    readonly attempts: Attempts;
    /** Receives the password that was accepted. */
    readonly onUsed: (password: LivePassword) => void;
  },
): PasswordGate {
  const { clock, verifier, attempts, onUsed } = parts;
  let delayed = 0;
  const isProxy = options.as === 'proxy';
  const field = isProxy ? 'proxy-authorization' : 'authorization';
  const code = isProxy ? 'proxy_credentials_required' : 'credentials_required';

  const accept = (name: string, password: LivePassword): User => {
    onUsed(password);
    const realm = verifier();
    return {
      name,
      login: { onRevoked: (end) => realm.onRevoked(name, password, end), isLive: () => realm.isLive(name, password) },
    };
  };

  const toKeys = options.limit === undefined ? undefined : createAttemptKeys(options.realm, options.limit.by);
  const toCount = (network: string, user: string): CountAttempt => {
    const { limit } = options;
    if (limit === undefined || toKeys === undefined) return UNLIMITED;
    const keys = toKeys(network, user);
    return { keys, take: () => attempts.take(keys, limit) };
  };

  const delay = async (): Promise<void> => {
    if (delayed >= MAX_DELAYED) return;
    delayed++;
    await new Promise<void>((resolve) => {
      clock.after(BAN_DELAY_MS, resolve);
    });
    delayed--;
  };

  const verify = async (credentials: BasicCredentials, network: string): Promise<User | Refusal> => {
    const result = await verifier().verify(credentials, network, toCount(network, credentials.user));
    if (result === undefined) return refuse(code, 'bad_credentials');
    if (!('notChecked' in result)) return accept(credentials.user, result);
    if (result.notChecked === 'busy') return refuse('too_many_attempts', 'hash_queue_full');
    await delay();
    return refuse('too_many_attempts', 'banned', { retryAfterSeconds: Math.ceil(result.left / 1000) });
  };

  return {
    check(head) {
      if (options.requireTls && head.client.scheme !== 'https') return refuse('tls_required', 'tls_required');
      const realm = verifier();
      if (!realm.isAvailable) return refuse('secret_unavailable', 'users_unavailable', `realm ${options.realm}`);
      // Not a list field: some parsers would read the first, others the last (RFC 9110 §5.3).
      if (head.headers.count(field) > 1) return refuse('malformed_request', 'malformed', `repeated ${field}`);
      const credentials = readBasic(head.headers.get(field), options);
      if (typeof credentials === 'string') return refuse(code, REASONS[credentials], credentials);
      const network = toClientNetwork(head.client.address);
      const known = realm.recall(credentials, network);
      return known === undefined ? verify(credentials, network) : accept(credentials.user, known);
    },
  };
}

/**
 * The counters of an attempt, the client's first. User names are hashed: an attacker can make them arbitrarily long, and one may be a
 * password typed into the wrong field. The realm is a hash tag, so that Redis Cluster keeps both counters in one slot.
 */
function createAttemptKeys(realm: string, by: AttemptsLimit['by']): (network: string, user: string) => AttemptKeys {
  const prefix = toRealmTag(realm);
  if (!by.includes('user')) return (network) => [toClientKey(prefix, network)];
  if (!by.includes('client')) return (_, user) => [toUserKey(prefix, user)];
  return (network, user) => [toClientKey(prefix, network), toUserKey(prefix, user)];
}

/** The key that counts the failed attempts of a client or a user of a realm, for operators. */
export function toAttemptKey(realm: string, of: { readonly client: string } | { readonly user: string }): string {
  const prefix = toRealmTag(realm);
  return 'client' in of ? toClientKey(prefix, toClientNetwork(of.client)) : toUserKey(prefix, of.user);
}

function toRealmTag(realm: string): string {
  return `{${hash('sha256', realm, 'base64url').slice(0, 12)}}`;
}

const IPV6_LOOPBACK_NETWORK = toClientNetwork('::1');

/** A loopback address is another client on each machine: guesses in one pod must not ban the operators and apps of all others. */
function toClientKey(prefix: string, network: string): string {
  const isLocal = network === IPV6_LOOPBACK_NETWORK || isLoopbackIp(network);
  return `${prefix}:c:${isLocal ? `${hostname()}:` : ''}${network}`;
}

function toUserKey(prefix: string, user: string): string {
  return `${prefix}:u:${hash('sha256', user, 'base64url').slice(0, 24)}`;
}
