/** The users of all realms while the gate runs: one thread pool for all, and one verifier for each realm; and the gates that check passwords. */
import { type BasicConfig, type PortBasicConfig, type RealmConfig, toSourceName } from '../config/schema/config.ts';
import type { Bytes } from '../core/bytes.ts';
import type { Clock } from '../core/clock.ts';
import { isError } from '../core/problem.ts';
import { Refusal } from '../core/refusal.ts';
import { type BasicAuthOptions, createBasicAuthGate } from '../gateway/pipeline/gates/basic-auth.ts';
import type { PasswordGate } from '../gateway/pipeline/gates/gate.ts';
import type { RouteMetrics } from '../gateway/pipeline/route-metrics.ts';
import type { Attempts } from '../users/attempts.ts';
import { toBasicChallenge } from '../users/basic.ts';
import { HashPool, type HashPoolLimits, toThreadCount } from '../users/hash-pool.ts';
import { UserSet } from '../users/user-set.ts';
import { type CacheOutcome, PasswordVerifier } from '../users/verifier.ts';
import type { GateRouteLabels, Metrics } from './metrics.ts';
import type { RealmRead } from './users.ts';

/** Lives as long as the gate; a reload replaces the users of its verifiers. */
export class Realms {
  readonly #limits;
  readonly #pool: HashPool;
  readonly #clock: Clock;
  readonly #events;
  /** Realms whose last read had an error. */
  readonly #broken = new Set<string>();
  #verifiers = new Map<string, PasswordVerifier>();

  constructor(
    /** How much of the machine password hashing may use. */
    limits: HashPoolLimits & {
      /** Memory of all threads; undefined: no limit. */
      readonly memory: Bytes | undefined;
    },
    clock: Clock,
    events: {
      onCache(outcome: CacheOutcome): void;
      /** After each read of a realm's users. */
      onUsers(realm: string, count: { readonly usable: number; readonly rejected: number }): void;
      /** Whether the users of all realms were read without an error. */
      onRead(isSuccessful: boolean): void;
    },
  ) {
    this.#limits = limits;
    this.#pool = new HashPool(limits);
    this.#clock = clock;
    this.#events = events;
  }

  /**
   * Applies the realms of a new config. A realm that stays keeps its cache and its sessions: otherwise a reload would let bans
   * lock out users who are logged in.
   */
  apply(reads: readonly RealmRead[], settings: ReadonlyMap<string, RealmConfig>): void {
    const before = this.#verifiers;
    this.#verifiers = new Map(
      reads.map(({ realm, set }) => {
        const cache = settings.get(realm)?.cache ?? { ttl: 0, maxEntries: 0 };
        const kept = before.get(realm);
        kept?.configure(cache);
        kept?.replace(set);
        return [
          realm,
          kept ??
            new PasswordVerifier(set, { realm, pool: this.#pool, clock: this.#clock, cache, onCache: this.#events.onCache }),
        ];
      }),
    );
    for (const [realm, verifier] of before) if (!this.#verifiers.has(realm)) verifier.replace(new UserSet([]));
    this.#broken.clear();
    this.#report(reads);
  }

  /** Replaces the users of one realm. */
  replace(read: RealmRead): void {
    this.#verifiers.get(read.realm)?.replace(read.set);
    this.#report([read]);
  }

  verifier(realm: string): PasswordVerifier {
    const verifier = this.#verifiers.get(realm);
    if (verifier === undefined) throw new Error(`no users were read for the realm ${realm}`);
    return verifier;
  }

  /** The number of password checks that are running or waiting. */
  get pending(): number {
    return this.#pool.pending;
  }

  close(): Promise<void> {
    return this.#pool.close();
  }

  #report(reads: readonly RealmRead[]): void {
    this.#resizePool();
    for (const { realm, set, rejected, problems } of reads) {
      this.#events.onUsers(realm, { usable: set.size, rejected });
      if (problems.some(isError)) this.#broken.add(realm);
      else this.#broken.delete(realm);
    }
    this.#events.onRead(this.#broken.size === 0);
  }

  /** A thread may get any realm's hash, so the largest hash determines the number of threads. */
  #resizePool(): void {
    const largest = Math.max(0, ...[...this.#verifiers.values()].map(({ largestHash }) => largestHash));
    this.#pool.resize(toThreadCount(this.#limits.threads, this.#limits.memory, largest));
  }
}

// Builds the HTTP Basic gate of a route or of the forward proxy, and the check of passwords on a port with one realm that forwards nothing:
// the provider's API and the console.

/** The dependencies of the gate. */
export interface BasicGateParts {
  readonly clock: Clock;
  readonly realms: Realms;
  readonly attempts: Attempts;
}

/** The settings that routes and ports share. */
type BasicGateConfig = Pick<BasicConfig, 'realm' | 'latin1' | 'limit' | 'requireTls'>;

/** The users of a port (HTTP Basic). */
interface PortPassword extends PasswordGate {
  /** For `WWW-Authenticate`. */
  readonly challenge: string;
}

/** Builds the gate; its realm must be loaded before the first request. */
export function buildBasicGate(
  { realm, requireTls, latin1, limit }: BasicGateConfig,
  as: BasicAuthOptions['as'],
  metrics: Pick<RouteMetrics, 'keyUsed'>,
  { clock, realms, attempts }: BasicGateParts,
): PasswordGate {
  return createBasicAuthGate(
    { realm, as, requireTls, latin1, limit: limit === 'off' ? undefined : limit },
    {
      clock,
      verifier: () => realms.verifier(realm),
      attempts,
      onUsed: ({ source }) => metrics.keyUsed(source, clock.now()),
    },
  );
}

/** The metric labels of the gate's user sources. */
export function toSourceLabels({ users }: Pick<BasicConfig, 'users'>): string[] {
  return users?.map(toSourceName) ?? [];
}

/** The labels of the series of logins; none without users. */
export function toPortLabels(name: string, basic: PortBasicConfig | undefined): GateRouteLabels[] {
  if (basic === undefined) return [];
  return [{ name, scheme: 'basic', keys: toSourceLabels(basic), methods: [], requiresPassword: true }];
}

/** Counts logins as decisions of the route `name`. The caller checks that passwords do not cross a network in clear text. */
export function buildPortPassword(
  name: string,
  basic: PortBasicConfig,
  parts: BasicGateParts & { readonly metrics: Pick<Metrics, 'route'> },
): PortPassword {
  const { metrics } = parts;
  // The series exist only once the routes are set.
  const onUsed = { keyUsed: (key: string, at: number) => metrics.route(name).keyUsed(key, at) };
  const gate = buildBasicGate({ ...basic, requireTls: false }, 'origin', onUsed, parts);
  return {
    challenge: toBasicChallenge(basic.realm),
    async check(head) {
      const result = await gate.check(head);
      const isDenied = result instanceof Refusal;
      metrics.route(name).decision(isDenied ? 'deny' : 'allow', isDenied ? result.reason : 'ok');
      return result;
    },
  };
}
