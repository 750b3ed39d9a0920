/** When an authority is succeeded, in steps that leave every server trusted at every moment. Pure. */
import type { X509Certificate } from 'node:crypto';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { type Authorities, createAuthority, toEnd, toMadeAt } from './authority.ts';

/** How long things last. */
export interface RotationTimes {
  readonly authorityLife: Milliseconds;
  readonly serverLife: Milliseconds;
  /** How long a successor is trusted before it signs. */
  readonly overlap: Milliseconds;
}

/** A step, as logs and metrics call it. */
export type RotationStep = 'created' | 'replaced' | 'announced' | 'switched' | 'retired';

/** What is to be written. */
export interface RotationPlan {
  readonly step: RotationStep;
  readonly authorities: Authorities;
}

/** Of its life, how much passes before a certificate is succeeded. */
export const RENEWED_AFTER = 2 / 3;
/** For replicas that had read the Secret just before it was written, and for clocks that differ. */
const MOST_SLACK_MS: Milliseconds = 60_000;

/**
 * The next step, or undefined while there is none to be done. `known`: the authority that this replica last worked with, so that it stays
 * trusted for a while when somebody empties the Secret: that is how a rotation is forced.
 */
export function planRotation(
  authorities: Authorities | undefined,
  known: X509Certificate | undefined,
  now: EpochMilliseconds,
  times: RotationTimes,
): RotationPlan | undefined {
  if (authorities === undefined) {
    const previous = known === undefined || toEnd(known) <= now ? undefined : { certificate: known, since: now };
    return { step: 'created', authorities: { current: createAuthority(now, times.authorityLife), ...withPrevious(previous) } };
  }
  const { current, next, previous } = authorities;
  const end = toEnd(current.certificate);
  if (next !== undefined && toEnd(next.certificate) > now && now >= Math.min(toMadeAt(next.certificate) + times.overlap, end))
    return { step: 'switched', authorities: { current: next, previous: { certificate: current.certificate, since: now } } };
  // Nobody can trust it any more, so nothing is lost by haste.
  if (end <= now) return { step: 'replaced', authorities: { current: createAuthority(now, times.authorityLife) } };
  if (previous !== undefined && now >= previous.since + times.serverLife + Math.min(times.overlap, MOST_SLACK_MS))
    return { step: 'retired', authorities: { current, ...(next === undefined ? undefined : { next }) } };
  if ((next === undefined || toEnd(next.certificate) <= now) && now >= toRenewal(current.certificate))
    return {
      step: 'announced',
      authorities: { current, next: createAuthority(now, times.authorityLife), ...withPrevious(previous) },
    };
  return undefined;
}

/** When a certificate is to be succeeded: after two thirds of its life. */
export function toRenewal(certificate: X509Certificate): EpochMilliseconds {
  const made = toMadeAt(certificate);
  return made + (toEnd(certificate) - made) * RENEWED_AFTER;
}

function withPrevious(previous: Authorities['previous']): Pick<Authorities, 'previous'> {
  return previous === undefined ? {} : { previous };
}
