/** Did the client prove by HTTP Basic who it is? (RFC 7617) */
import { hash } from 'node:crypto';
import { type BasicCredentials, type BasicOptions, type CredentialsProblem, readBasic } from '../../../auth/passwords/basic.ts';
import type { LivePassword } from '../../../auth/passwords/user-set.ts';
import type { TakeAttempt, Verifier } from '../../../auth/passwords/verifier.ts';
import type { User } from '../../../core/admitted.ts';
import { toClientNetwork } from '../../../core/client-network.ts';
import type { Clock, Milliseconds } from '../../../core/clock.ts';
import type { ParsedHead } from '../../../core/parsed-head.ts';
import { type Reason, type Refusal, refuse } from '../../../core/refusal.ts';
import type { AttemptKeys, Attempts, AttemptsRule } from '../../../state/login-attempts/attempts.ts';
import type { PasswordGate } from './gate.ts';

/** How attempts are bounded. */
export interface AttemptsLimit extends AttemptsRule {
  /** Whose attempts are counted together. */
  readonly by: readonly ('client' | 'user')[];
}

/** What the gate needs of its route. */
export interface BasicAuthOptions extends BasicOptions {
  readonly realm: string;
  /** Asked as an origin by 401, or as a proxy by 407 (RFC 9110 §11.6 and §11.7). */
  readonly as: 'origin' | 'proxy';
  /** Refuses plain HTTP before a password is read. */
  readonly requireTls: boolean;
  readonly limit: AttemptsLimit | undefined;
}

/** The dependencies of the gate. */
export interface BasicAuthParts {
  readonly clock: Clock;
  /** Knows the realm's current users. */
  readonly verifier: () => Verifier;
  readonly attempts: Attempts;
  /** Receives the password that was accepted. */
  readonly onUsed: (password: LivePassword) => void;
}

const REASONS: Readonly<Record<CredentialsProblem, Reason>> = {
  missing: 'no_credentials',
  other_scheme: 'no_credentials',
  malformed: 'malformed_credentials',
  charset: 'malformed_credentials',
  too_long: 'malformed_credentials',
};
const UNLIMITED: TakeAttempt = async () => ({ kind: 'taken', refund: async () => undefined });
/**
 * How long a banned client waits for the response: one that guesses as fast as responses arrive would otherwise take the event loop
 * from all others, at 0.2 ms for each guess (bench/RESULTS-basic.md).
 */
const HELD_MS: Milliseconds = 100;
/** At most so many wait; the others are answered at once. */
const MOST_HELD = 1_000;

/** Builds the gate. Whatever is wrong with a credential, the client gets the same response. */
export function createBasicAuthGate(options: BasicAuthOptions, parts: BasicAuthParts): PasswordGate {
  const { clock, verifier, attempts, onUsed } = parts;
  let held = 0;
  const isProxy = options.as === 'proxy';
  const field = isProxy ? 'proxy-authorization' : 'authorization';
  const code = isProxy ? 'proxy_credentials_required' : 'credentials_required';

  const pass = (head: ParsedHead, name: string, password: LivePassword): User => {
    onUsed(password);
    // Only a connection that changes its protocol outlives the request.
    if (head.upgrade === undefined) return { name };
    const realm = verifier();
    return { name, login: { onRevoked: (end) => realm.onRevoked(name, password, end) } };
  };

  const toKeys = options.limit === undefined ? undefined : createAttemptKeys(options.realm, options.limit.by);
  const toTake = (network: string, user: string): TakeAttempt => {
    const { limit } = options;
    if (limit === undefined || toKeys === undefined) return UNLIMITED;
    return () => attempts.take(toKeys(network, user), limit);
  };

  const hold = async (): Promise<void> => {
    if (held >= MOST_HELD) return;
    held++;
    await new Promise<void>((resolve) => {
      clock.after(HELD_MS, resolve);
    });
    held--;
  };

  const verify = async (head: ParsedHead, credentials: BasicCredentials, network: string): Promise<User | Refusal> => {
    const fit = await verifier().verify(credentials, network, toTake(network, credentials.user));
    if (fit === undefined) return refuse(code, 'bad_credentials');
    if (!('notChecked' in fit)) return pass(head, credentials.user, fit);
    if (fit.notChecked === 'busy') return refuse('too_many_attempts', 'hash_queue_full');
    await hold();
    return refuse('too_many_attempts', 'banned', { retryAfterSeconds: Math.ceil(fit.left / 1000) });
  };

  return {
    check(head) {
      if (options.requireTls && head.client.scheme !== 'https') return refuse('tls_required', 'tls_required');
      const realm = verifier();
      if (!realm.isAvailable) return refuse('secret_unavailable', 'users_unavailable', `realm ${options.realm}`);
      // Not a list field: first and last would be read by different parsers (RFC 9110 §5.3).
      if (head.headers.count(field) > 1) return refuse('malformed_request', 'malformed', `repeated ${field}`);
      const credentials = readBasic(head.headers.get(field), options);
      if (typeof credentials === 'string') return refuse(code, REASONS[credentials], credentials);
      const network = toClientNetwork(head.client.address);
      const known = realm.recall(credentials, network);
      return known === undefined ? verify(head, credentials, network) : pass(head, credentials.user, known);
    },
  };
}

/**
 * The counters of an attempt, the client's first. User names are hashed: they are as long as an attacker likes, and may be a
 * password typed into the wrong field. The realm is a hash tag, so that Redis Cluster keeps both counters in one slot.
 */
function createAttemptKeys(realm: string, by: AttemptsLimit['by']): (network: string, user: string) => AttemptKeys {
  const space = `{${hash('sha256', realm, 'base64url').slice(0, 12)}}`;
  const toClientKey = (network: string): string => `${space}:c:${network}`;
  const toUserKey = (user: string): string => `${space}:u:${hash('sha256', user, 'base64url').slice(0, 24)}`;
  if (!by.includes('user')) return (network) => [toClientKey(network)];
  if (!by.includes('client')) return (_, user) => [toUserKey(user)];
  return (network, user) => [toClientKey(network), toUserKey(user)];
}
