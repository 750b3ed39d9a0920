/** Are the signature headers well-formed, and is the delivery recent? Judged before the body is read. */
import type { Milliseconds } from '../core/clock.ts';
import type { Exchange } from '../core/exchange.ts';
import { refuse } from '../core/refusal.ts';
import type { Verdict } from '../core/verdict.ts';
import type { HeadOptions, Scheme } from '../schemes/scheme.ts';
import type { Gate } from './gate.ts';

/** How the route judges the signature's head. */
export interface TimestampOptions extends HeadOptions {
  /** How far the timestamp may lie in the past or the future. */
  readonly tolerance: Milliseconds;
  /** Told received minus signed time, for every well-formed head. */
  readonly onSkew: (skew: Milliseconds) => void;
}

const SECOND = 1000;

/** Reads the signature headers into `facts.head` and checks the skew on both sides. */
export function createTimestampGate(scheme: Scheme, options: TimestampOptions): Gate {
  return {
    name: 'timestamp',
    check(exchange: Exchange): Verdict {
      const head = scheme.readHead(exchange.headers, options);
      if ('code' in head) return head;
      // Senders stamp whole seconds, so ours are cut alike: 300.9 s old counts as 300 s, as in the reference libraries.
      const skew = Math.floor(exchange.receivedAt / SECOND) * SECOND - head.timestamp;
      options.onSkew(skew);
      if (skew > options.tolerance) return refuse('timestamp_outside_tolerance', 'timestamp_old', `${skew / SECOND} s old`);
      // A future bound too: without it one captured delivery stays good until its date comes.
      if (-skew > options.tolerance)
        return refuse('timestamp_outside_tolerance', 'timestamp_future', `${-skew / SECOND} s ahead`);
      exchange.facts.head = head;
      return undefined;
    },
  };
}
