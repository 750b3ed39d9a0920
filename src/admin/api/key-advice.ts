/** Advises whether a key is still needed, in one sentence. Pure. */
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';

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
  // Without deliveries there is no evidence that the sender changed its key.
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
