/** Checks that the signature headers are well-formed and the delivery is recent: before the body is read, if a header has the time. */

import type { EpochMilliseconds, Milliseconds } from '../../../core/clock.ts';
import type { SignedHead } from '../../../core/event.ts';
import { findConnectionOptions } from '../../../core/headers.ts';
import { Refusal, refuse } from '../../../core/refusal.ts';
import type { ParsedHead } from '../../../core/request.ts';
import type { Tolerance } from '../../../verify/schemes/description.ts';
import type { HeadOptions, Scheme } from '../../../verify/schemes/scheme.ts';

/** How the route checks the time of a delivery. */
export interface RecencyOptions {
  /** Undefined if the sender signs no time. */
  readonly tolerance: Tolerance | undefined;
  /** Called with the time of arrival minus the signed time, for every well-formed head. */
  readonly onSkew: (skew: Milliseconds) => void;
}

const SECOND = 1000;

/** Reads the signature headers of a recent delivery. */
type SignedHeadReader = (head: ParsedHead) => SignedHead | Refusal;

/** Checks the skew in both directions. */
export function createSignedHeadReader(scheme: Scheme, options: HeadOptions & RecencyOptions): SignedHeadReader {
  return ({ headers, receivedAt, target }) => {
    const named = findConnectionOptions(headers);
    // The app would not get the header, and would decide without it (CVE-2022-31813).
    if (named !== undefined && scheme.headerNames.some((name) => named.has(name)))
      return refuse('malformed_signature', 'malformed_signature', 'Connection names a signature header');
    const signed = scheme.readHead(headers, options, target.query);
    if (signed instanceof Refusal || signed.timestamp === undefined) return signed;
    return checkRecency(signed.timestamp, receivedAt, options) ?? signed;
  };
}

/** Why a signed time is too old or too far ahead. */
export function checkRecency(
  signedAt: EpochMilliseconds,
  receivedAt: EpochMilliseconds,
  { tolerance, onSkew }: RecencyOptions,
): Refusal | undefined {
  // Senders sign whole seconds, so ours are truncated too: 300.9 s old counts as 300 s, as in the reference libraries.
  const skew = Math.floor(receivedAt / SECOND) * SECOND - Math.floor(signedAt / SECOND) * SECOND;
  onSkew(skew);
  if (tolerance === undefined) return undefined;
  const toRefusal = (reason: 'timestamp_old' | 'timestamp_future', detail: string): Refusal =>
    refuse('timestamp_outside_tolerance', reason, { detail, stage: 'timestamp' });
  if (skew > tolerance.past) return toRefusal('timestamp_old', `${skew / SECOND} s old`);
  // A future bound too: without it a captured delivery with a future time stays valid until then.
  if (-skew > tolerance.future) return toRefusal('timestamp_future', `${-skew / SECOND} s ahead`);
  return undefined;
}
