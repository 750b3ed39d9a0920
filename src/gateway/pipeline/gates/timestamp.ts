/** Are the signature headers well-formed, and is the delivery recent? Judged before the body is read, where a header tells the time. */

import type { Tolerance } from '../../../auth/schemes/description.ts';
import type { HeadOptions, Scheme } from '../../../auth/schemes/scheme.ts';
import type { EpochMilliseconds, Milliseconds } from '../../../core/clock.ts';
import type { Exchange } from '../../../core/exchange.ts';
import { toNamedByConnection } from '../../../core/headers.ts';
import { type Refusal, refuse } from '../../../core/refusal.ts';
import type { Verdict } from '../../../core/verdict.ts';
import type { Gate } from './gate.ts';

/** How the route judges a delivery's time. */
export interface RecencyOptions {
  /** Undefined where the sender signs no time. */
  readonly tolerance: Tolerance | undefined;
  /** Told received minus signed time, for every well-formed head. */
  readonly onSkew: (skew: Milliseconds) => void;
}

const SECOND = 1000;

/** Reads the signature headers into `facts.head` and checks the skew on both sides. */
export function createTimestampGate(scheme: Scheme, options: HeadOptions & RecencyOptions): Gate {
  return {
    name: 'timestamp',
    check(exchange: Exchange): Verdict {
      const named = toNamedByConnection(exchange.headers);
      // Behind us it would be gone, and the app would go by what is left (CVE-2022-31813).
      if (named !== undefined && scheme.headerNames.some((name) => named.has(name)))
        return refuse('malformed_signature', 'malformed_signature', 'Connection names a header of the signature');
      const head = scheme.readHead(exchange.headers, options);
      if ('code' in head) return head;
      const refusal = head.timestamp === undefined ? undefined : judgeRecency(head.timestamp, exchange.receivedAt, options);
      if (refusal !== undefined) return refusal;
      exchange.facts.head = head;
      return undefined;
    },
  };
}

/** Why a signed time is too old or too far ahead. */
export function judgeRecency(
  signedAt: EpochMilliseconds,
  receivedAt: EpochMilliseconds,
  { tolerance, onSkew }: RecencyOptions,
): Refusal | undefined {
  // Senders stamp whole seconds, so ours are cut alike: 300.9 s old counts as 300 s, as in the reference libraries.
  const skew = Math.floor(receivedAt / SECOND) * SECOND - Math.floor(signedAt / SECOND) * SECOND;
  onSkew(skew);
  if (tolerance === undefined) return undefined;
  if (skew > tolerance.past) return refuse('timestamp_outside_tolerance', 'timestamp_old', `${skew / SECOND} s old`);
  // A future bound too: without it one captured delivery stays good until its date comes.
  if (-skew > tolerance.future) return refuse('timestamp_outside_tolerance', 'timestamp_future', `${-skew / SECOND} s ahead`);
  return undefined;
}
