/** One sentence on a key: whether it is still needed, and what to do about it. Pure. */
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';

/** What the advice rests on. */
export interface KeyFacts {
  readonly now: EpochMilliseconds;
  readonly state: 'live' | 'ahead' | 'over' | 'unavailable';
  readonly notBefore: EpochMilliseconds | undefined;
  readonly notAfter: EpochMilliseconds | undefined;
  /** Another key is accepted when this one no longer is. */
  readonly hasSuccessor: boolean;
  /** Since when the key is watched. */
  readonly since: EpochMilliseconds;
  /** Undefined: not since then. */
  readonly lastUsed: EpochMilliseconds | undefined;
  /** Some key that is live stands before it in the list. */
  readonly isOld: boolean;
  /** When any of those that stand before it was last used. */
  readonly newerUsed: EpochMilliseconds | undefined;
  /** When any of those that stand behind it was last used. */
  readonly olderUsed: EpochMilliseconds | undefined;
  /** How long senders go on with retries, which are signed by what was the key then. */
  readonly horizon: Milliseconds;
}

/** The sentence. */
export function adviseOnKey(facts: KeyFacts): string {
  const { now, state, notBefore = now, notAfter = now } = facts;
  if (state === 'over') return `it ended ${toAge(now - notAfter)} ago: remove it`;
  if (state === 'ahead') return `it is accepted in ${toAge(notBefore - now)}`;
  if (state === 'unavailable') return 'its secret cannot be read: what does not match another key gets 503';
  return `${facts.isOld ? adviseOnOld(facts) : adviseOnFirst(facts)}${toEnd(facts)}`;
}

function adviseOnFirst({ now, since, lastUsed, olderUsed }: KeyFacts): string {
  if (lastUsed !== undefined && (olderUsed === undefined || olderUsed < lastUsed))
    return `last needed ${toAge(now - lastUsed)} ago`;
  if (lastUsed !== undefined) return `last needed ${toAge(now - lastUsed)} ago; an older key was needed since`;
  const quiet = `not needed in the ${toAge(now - since)} that it is watched`;
  return olderUsed === undefined ? quiet : `${quiet}: the sender still signs with an older key`;
}

function adviseOnOld({ now, since, lastUsed, newerUsed, horizon }: KeyFacts): string {
  const [quietSince, said] =
    lastUsed === undefined
      ? [since, `not needed in the ${toAge(now - since)} that it is watched`]
      : [lastUsed, `last needed ${toAge(now - lastUsed)} ago`];
  // A sender that sends nothing proves nothing.
  if (newerUsed === undefined || newerUsed <= quietSince) return `${said}, but no newer key was since: keep it`;
  if (now - quietSince < horizon) return `${said}: keep it until that is ${toAge(horizon)}, as senders may retry so long`;
  return `${said}, and a newer one was: it can go`;
}

function toEnd({ now, notAfter, hasSuccessor }: KeyFacts): string {
  if (notAfter === undefined) return '';
  const end = `; it ends in ${toAge(notAfter - now)}`;
  return hasSuccessor ? end : `${end}, and no other key is accepted then: add one`;
}

const UNITS: readonly (readonly [Milliseconds, string])[] = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'min'],
];

/** Whole days, else hours, else minutes, else seconds. */
function toAge(duration: Milliseconds): string {
  for (const [length, unit] of UNITS) if (duration >= length) return `${Math.floor(duration / length)} ${unit}`;
  return `${Math.max(0, Math.floor(duration / 1000))} s`;
}
