/** `GET /keys`: when each key was last used, so that an operator knows when a rotation is complete; `/handshakes`: keys that senders offered. */
import { SENDER_RETRY_HORIZON_MS } from '../../config/rules/validate-webhook.ts';
import type { KeyConfig } from '../../config/schema/config.ts';
import { type Clock, type EpochMilliseconds, type Milliseconds, toInstant } from '../../core/clock.ts';
import type { KeyUse } from '../../gateway/pipeline/route-metrics.ts';
import type { KeyEvidence } from '../../telemetry/log/key-evidence.ts';
import { isWithinTime, type KeyRing } from '../../verify/schemes/keys.ts';
import { type AdminEndpoint, toJson } from '../router.ts';

/** A key, or a key set behind a URL. */
type NamedKey = Pick<KeyConfig, 'name'> & Partial<Pick<KeyConfig, 'notBefore' | 'notAfter'>>;

/** A route with keys, as currently configured. */
export interface KeyedRoute {
  readonly name: string;
  /** In the configured order: the first is the newest. */
  readonly keys: readonly NamedKey[];
  readonly ring: KeyRing;
  readonly use: (key: string) => KeyUse;
}

/** The evidence about one key. */
interface KeyRecord extends KeyUse {
  readonly config: NamedKey;
  readonly state: KeyFacts['state'];
  readonly since: EpochMilliseconds;
  /** Use of the current key, not of an earlier one with the same name. */
  readonly lastUsedHere: EpochMilliseconds | undefined;
}

/** Builds the endpoint. */
export function createKeysEndpoint(parts: {
  readonly clock: Clock;
  readonly evidence: KeyEvidence;
  readonly routes: () => readonly KeyedRoute[];
}): AdminEndpoint {
  return {
    path: '/keys',
    method: 'GET',
    isOpen: false,
    respond() {
      const now = parts.clock.now();
      return toJson({ routes: parts.routes().map((route) => toReport(route, now, parts.evidence)) });
    },
  };
}

function toReport(route: KeyedRoute, now: EpochMilliseconds, evidence: KeyEvidence): object {
  const records = route.keys.map((config): KeyRecord => {
    const use = route.use(config.name);
    const since = evidence.since(route.name, config.name);
    const { lastUsed } = use;
    const lastUsedHere = lastUsed !== undefined && lastUsed >= since ? lastUsed : undefined;
    return { ...use, config, since, lastUsedHere, state: toState(config, route.ring, now) };
  });
  return { route: route.name, keys: records.map((key, position) => toKeyReport(key, position, records, now)) };
}

function toKeyReport(key: KeyRecord, position: number, all: readonly KeyRecord[], now: EpochMilliseconds): object {
  const { config, state, since, lastUsedHere, matches, lastUsed } = key;
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
      lastUsed: lastUsedHere,
      isOld: newer.some((other) => other.state === 'live'),
      newerUsed: toLatest(newer),
      olderUsed: toLatest(all.slice(position + 1)),
      horizon: SENDER_RETRY_HORIZON_MS,
    }),
  };
}

function toState(config: NamedKey, ring: KeyRing, now: EpochMilliseconds): KeyFacts['state'] {
  if (config.notAfter !== undefined && config.notAfter <= now) return 'expired';
  if (ring.isUnavailable(config.name)) return 'unavailable';
  return isWithinTime(config, now) ? 'live' : 'not-yet-valid';
}

function toLatest(keys: readonly KeyRecord[]): EpochMilliseconds | undefined {
  const used = keys.flatMap(({ lastUsedHere }) => (lastUsedHere === undefined ? [] : [lastUsedHere]));
  return used.length === 0 ? undefined : Math.max(...used);
}

function toText(at: EpochMilliseconds | undefined): string | null {
  return at === undefined ? null : toInstant(at);
}

/** Builds `GET /handshakes` and `DELETE /handshakes`: secrets that senders offered, which an operator must enter at the sender. */
export function createHandshakesEndpoints(tokens: {
  /** Newest first. */
  list(): readonly object[];
  /** Deletes all and returns how many there were. */
  clear(): number;
}): AdminEndpoint[] {
  return [
    { path: '/handshakes', method: 'GET', isOpen: false, respond: () => toJson({ tokens: tokens.list() }) },
    { path: '/handshakes', method: 'DELETE', isOpen: false, respond: () => toJson({ deleted: tokens.clear() }) },
  ];
}

/** The facts that the advice is based on. */
export interface KeyFacts {
  readonly now: EpochMilliseconds;
  readonly state: 'live' | 'not-yet-valid' | 'expired' | 'unavailable';
  readonly notBefore: EpochMilliseconds | undefined;
  readonly notAfter: EpochMilliseconds | undefined;
  /** Another key is accepted when this one expires. */
  readonly hasSuccessor: boolean;
  /** The start of the observation. */
  readonly since: EpochMilliseconds;
  /** Undefined: not used since then. */
  readonly lastUsed: EpochMilliseconds | undefined;
  /** A live key precedes it in the list. */
  readonly isOld: boolean;
  /** When any key before it was last used. */
  readonly newerUsed: EpochMilliseconds | undefined;
  /** When any key after it was last used. */
  readonly olderUsed: EpochMilliseconds | undefined;
  /** How long senders retry; a retry may still be signed with an old key. */
  readonly horizon: Milliseconds;
}

/** Whether a key is still needed, in one sentence. */
export function adviseOnKey(facts: KeyFacts): string {
  const { now, state, notBefore = now, notAfter = now } = facts;
  if (state === 'expired') return `expired ${toAge(now - notAfter)} ago: remove it`;
  if (state === 'not-yet-valid') return `becomes valid in ${toAge(notBefore - now)}`;
  if (state === 'unavailable') return 'its secret cannot be read: deliveries that match no other key get 503';
  return `${facts.isOld ? adviseOnOld(facts) : adviseOnFirst(facts)}${toEnd(facts)}`;
}

function adviseOnFirst({ now, since, lastUsed, olderUsed }: KeyFacts): string {
  if (lastUsed !== undefined && (olderUsed === undefined || olderUsed < lastUsed))
    return `last used ${toAge(now - lastUsed)} ago`;
  if (lastUsed !== undefined) return `last used ${toAge(now - lastUsed)} ago; an older key has been used since`;
  const quiet = `not used in the ${toAge(now - since)} since it was loaded`;
  return olderUsed === undefined ? quiet : `${quiet}: the sender still signs with an older key`;
}

function adviseOnOld({ now, since, lastUsed, newerUsed, horizon }: KeyFacts): string {
  const [quietSince, said] =
    lastUsed === undefined
      ? [since, `not used in the ${toAge(now - since)} since it was loaded`]
      : [lastUsed, `last used ${toAge(now - lastUsed)} ago`];
  // Without deliveries, nothing shows that the sender changed its key.
  if (newerUsed === undefined || newerUsed <= quietSince) return `${said}, but no newer key has been used since: keep it`;
  if (now - quietSince < horizon)
    return `${said}: keep it until it is unused for ${toAge(horizon)}, because senders may retry for that long`;
  return `${said}, and a newer key has been used: remove it`;
}

function toEnd({ now, notAfter, hasSuccessor }: KeyFacts): string {
  if (notAfter === undefined) return '';
  const end = `; expires in ${toAge(notAfter - now)}`;
  return hasSuccessor ? end : `${end}, and no other key is valid then: add one`;
}

const UNITS: readonly (readonly [Milliseconds, string])[] = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'min'],
];

/** In whole days, hours, minutes or seconds: the largest unit that fits. */
function toAge(duration: Milliseconds): string {
  for (const [length, unit] of UNITS) if (duration >= length) return `${Math.floor(duration / length)} ${unit}`;
  return `${Math.max(0, Math.floor(duration / 1000))} s`;
}
