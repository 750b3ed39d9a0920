/** `GET /keys`: what each route's keys were needed for, so that a rotation can be finished on evidence. */

import { isWithinTime, type KeyRing } from '../../auth/keys/key-ring.ts';
import { SENDER_RETRY_HORIZON_MS } from '../../config/rules/validate-webhook.ts';
import type { KeyConfig } from '../../config/schema/config.ts';
import { type Clock, type EpochMilliseconds, toInstant } from '../../core/clock.ts';
import type { KeyEvidence } from '../../telemetry/log/key-evidence.ts';
import type { KeyUse } from '../../telemetry/metrics/route-metrics.ts';
import { toJson } from '../answer.ts';
import type { Endpoint } from '../router.ts';
import { adviseOnKey, type KeyFacts } from './key-advice.ts';

/** A key, or a set of them behind a URL. */
type NamedKey = Pick<KeyConfig, 'name'> & Partial<Pick<KeyConfig, 'notBefore' | 'notAfter'>>;

/** A route with keys, as it serves now. */
export interface KeyedRoute {
  readonly name: string;
  /** In the configured order: the first is the newest. */
  readonly keys: readonly NamedKey[];
  readonly ring: KeyRing;
  readonly use: (key: string) => KeyUse;
}

/** What the endpoint stands on. */
export interface KeysParts {
  readonly clock: Clock;
  readonly evidence: KeyEvidence;
  readonly routes: () => readonly KeyedRoute[];
}

/** What is known of one key. */
interface Known extends KeyUse {
  readonly config: NamedKey;
  readonly state: KeyFacts['state'];
  readonly since: EpochMilliseconds;
  /** Of the key as it is now, not of another that had its name before. */
  readonly lastNeeded: EpochMilliseconds | undefined;
}

/** Builds the endpoint. */
export function createKeysEndpoint(parts: KeysParts): Endpoint {
  return {
    path: '/keys',
    method: 'GET',
    isOpen: false,
    answer() {
      const now = parts.clock.now();
      return toJson({ routes: parts.routes().map((route) => toReport(route, now, parts.evidence)) });
    },
  };
}

function toReport(route: KeyedRoute, now: EpochMilliseconds, evidence: KeyEvidence): object {
  const known = route.keys.map((config): Known => {
    const use = route.use(config.name);
    const since = evidence.since(route.name, config.name);
    const { lastUsed } = use;
    const lastNeeded = lastUsed !== undefined && lastUsed >= since ? lastUsed : undefined;
    return { ...use, config, since, lastNeeded, state: toState(config, route.ring, now) };
  });
  return { route: route.name, keys: known.map((key, position) => toKeyReport(key, position, known, now)) };
}

function toKeyReport(key: Known, position: number, all: readonly Known[], now: EpochMilliseconds): object {
  const { config, state, since, lastNeeded, matches, lastUsed } = key;
  const { notBefore, notAfter } = config;
  const newer = all.slice(0, position);
  return {
    name: config.name,
    notBefore: toText(notBefore),
    notAfter: toText(notAfter),
    watchedSince: toText(since),
    matches,
    lastUsed: toText(lastUsed),
    isUsable: state === 'live',
    advice: adviseOnKey({
      now,
      state,
      notBefore,
      notAfter,
      hasSuccessor: notAfter !== undefined && all.some((other) => other !== key && isWithinTime(other.config, notAfter)),
      since,
      lastUsed: lastNeeded,
      isOld: newer.some((other) => other.state === 'live'),
      newerUsed: toLatest(newer),
      olderUsed: toLatest(all.slice(position + 1)),
      horizon: SENDER_RETRY_HORIZON_MS,
    }),
  };
}

function toState(config: NamedKey, ring: KeyRing, now: EpochMilliseconds): KeyFacts['state'] {
  if (config.notAfter !== undefined && config.notAfter <= now) return 'over';
  if (ring.isUnavailable(config.name)) return 'unavailable';
  return isWithinTime(config, now) ? 'live' : 'ahead';
}

function toLatest(keys: readonly Known[]): EpochMilliseconds | undefined {
  const used = keys.flatMap(({ lastNeeded }) => (lastNeeded === undefined ? [] : [lastNeeded]));
  return used.length === 0 ? undefined : Math.max(...used);
}

function toText(at: EpochMilliseconds | undefined): string | null {
  return at === undefined ? null : toInstant(at);
}
