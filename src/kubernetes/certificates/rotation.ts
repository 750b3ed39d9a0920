/** Decides when a CA is replaced, in steps that keep every server trusted at all times. Pure. */
import type { X509Certificate } from 'node:crypto';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { type CaSet, createCa, toEnd, toIssuedAt } from './ca.ts';

/** Lifetimes. */
export interface RotationTimes {
  readonly caLifetime: Milliseconds;
  readonly serverLifetime: Milliseconds;
  /** How long the next CA is trusted before it signs. */
  readonly overlap: Milliseconds;
}

/** A step of the rotation, as logged. */
type RotationStep = 'created' | 'replaced' | 'announced' | 'switched' | 'retired';

/** The state to write. */
interface RotationPlan {
  readonly step: RotationStep;
  readonly caSet: CaSet;
}

/** The share of its lifetime after which a certificate is renewed. */
const RENEWED_AFTER = 2 / 3;
/** Margin for replicas that read the Secret before it was written, and for clocks that differ. */
const MAX_MARGIN_MS: Milliseconds = 60_000;

/**
 * The next step, or undefined if no step is due. `known`: the CA that this replica used last. It stays trusted for a while if an operator
 * empties the Secret to force a rotation.
 */
export function planRotation(
  caSet: CaSet | undefined,
  known: X509Certificate | undefined,
  now: EpochMilliseconds,
  times: RotationTimes,
): RotationPlan | undefined {
  if (caSet === undefined) {
    const previous = known === undefined || toEnd(known) <= now ? undefined : { certificate: known, since: now };
    return { step: 'created', caSet: { current: createCa(now, times.caLifetime), ...withPrevious(previous) } };
  }
  const { current, next, previous } = caSet;
  const end = toEnd(current.certificate);
  if (next !== undefined && toEnd(next.certificate) > now && now >= Math.min(toIssuedAt(next.certificate) + times.overlap, end))
    return { step: 'switched', caSet: { current: next, previous: { certificate: current.certificate, since: now } } };
  // An expired CA is not trusted by any client, so it can be replaced without an overlap.
  if (end <= now) return { step: 'replaced', caSet: { current: createCa(now, times.caLifetime) } };
  if (previous !== undefined && now >= previous.since + times.serverLifetime + Math.min(times.overlap, MAX_MARGIN_MS))
    return { step: 'retired', caSet: { current, ...(next === undefined ? undefined : { next }) } };
  if ((next === undefined || toEnd(next.certificate) <= now) && now >= toRenewal(current.certificate))
    return {
      step: 'announced',
      caSet: { current, next: createCa(now, times.caLifetime), ...withPrevious(previous) },
    };
  return undefined;
}

/** When a certificate must be renewed: after two thirds of its lifetime. */
export function toRenewal(certificate: X509Certificate): EpochMilliseconds {
  const made = toIssuedAt(certificate);
  return made + (toEnd(certificate) - made) * RENEWED_AFTER;
}

function withPrevious(previous: CaSet['previous']): Pick<CaSet, 'previous'> {
  return previous === undefined ? {} : { previous };
}
