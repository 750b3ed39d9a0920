/** Creates Events on the owners of pods. Their rate is bounded; admission neither waits for them nor fails because of them. */
import { randomBytes } from 'node:crypto';
import { type Clock, type Milliseconds, toInstant } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { runDetached } from '../../core/safe-events.ts';
import { TokenBucket } from '../../core/throttle.ts';
import { type KubeClient, toKubePath } from '../client/client.ts';
import { KubeError } from '../client/error.ts';
import type { ReviewedRequest } from '../injector/review.ts';
import type { EventOutcome } from './injector-metrics.ts';
import type { AdmissionLogger } from './log-events.ts';
import { type PodEvent, shorten } from './reviewer.ts';

/** Events are deduplicated for this long, so that a thousand pods of one owner cause one Event. */
const REPEATED_WITHIN_MS: Milliseconds = 600_000;
const MAX_REMEMBERED = 2_000;
const BURST = 25;
const PER_SECOND = 1;
const MAX_IN_FLIGHT = 8;
/** How long no Event is sent after one was forbidden. */
const FORBIDDEN_FOR_MS: Milliseconds = 600_000;
const TIMEOUT_MS: Milliseconds = 5_000;
/** events.k8s.io/v1 allows 1 kB. */
const MAX_NOTE_LENGTH = 900;
const MAX_NAME_LENGTH = 200;
const UNNAMED = '…';

/** Sends Events. */
export class Events {
  readonly #parts;
  readonly #sent = new Map<string, Milliseconds>();
  readonly #budget: TokenBucket;
  #inFlight = 0;
  #forbiddenUntil: Milliseconds = 0;

  constructor(parts: {
    readonly kube: Pick<KubeClient, 'request'>;
    readonly clock: Clock;
    readonly logger: AdmissionLogger;
    /** Name of the injector's pod. */
    readonly instance: string;
    readonly onOutcome: (outcome: EventOutcome) => void;
  }) {
    this.#parts = parts;
    this.#budget = new TokenBucket(PER_SECOND, BURST, parts.clock);
  }

  /** Returns at once, and never throws. */
  send(podEvent: PodEvent): void {
    const outcome = this.#findSkipReason(podEvent);
    if (outcome !== undefined) this.#parts.onOutcome(outcome);
    else runDetached(this.#send(podEvent));
  }

  /** Why the Event is not sent, or undefined. */
  #findSkipReason({ request, reason, note }: PodEvent): EventOutcome | undefined {
    const now = this.#parts.clock.monotonic();
    if (toRegarding(request) === undefined) return 'dropped';
    if (now < this.#forbiddenUntil) return 'forbidden';
    const key = [request.namespace, request.owner?.uid ?? request.name, reason, note].join('\n');
    const sentAt = this.#sent.get(key);
    if (sentAt !== undefined && now - sentAt < REPEATED_WITHIN_MS) return 'repeated';
    if (this.#inFlight >= MAX_IN_FLIGHT || !this.#budget.take()) return 'dropped';
    this.#remember(key, now);
    return undefined;
  }

  #remember(key: string, now: Milliseconds): void {
    this.#sent.delete(key);
    this.#sent.set(key, now);
    const oldest = this.#sent.size > MAX_REMEMBERED ? this.#sent.keys().next().value : undefined;
    if (oldest !== undefined) this.#sent.delete(oldest);
  }

  async #send(podEvent: PodEvent): Promise<void> {
    const { kube, clock, logger, instance, onOutcome } = this.#parts;
    this.#inFlight++;
    try {
      const path = toKubePath('/apis/events.k8s.io/v1', 'namespaces', podEvent.request.namespace, 'events');
      await kube.request('POST', path, { body: toEvent(podEvent, instance, toInstant(clock.now())), timeout: TIMEOUT_MS });
      onOutcome('sent');
    } catch (thrown) {
      // A quota of one namespace, and the end of one, also forbid the object, but say nothing about our permissions.
      if (thrown instanceof KubeError && thrown.status === 403 && thrown.message.includes('cannot create resource')) {
        this.#forbiddenUntil = clock.monotonic() + FORBIDDEN_FOR_MS;
        onOutcome('forbidden');
      } else onOutcome('failed');
      logger.warn('event_failed', { namespace: podEvent.request.namespace, problem: shorten(toErrorText(thrown)) });
    } finally {
      this.#inFlight--;
    }
  }
}

function toEvent({ request, type, reason, note }: PodEvent, instance: string, now: string): object {
  const regarding = toRegarding(request);
  return {
    apiVersion: 'events.k8s.io/v1',
    kind: 'Event',
    metadata: {
      name: `${(regarding?.name ?? '').slice(0, MAX_NAME_LENGTH)}.${randomBytes(8).toString('hex')}`,
      namespace: request.namespace,
    },
    // The API requires microseconds.
    eventTime: now.replace('Z', '000Z'),
    reportingController: 'sidegate.dev/injector',
    reportingInstance: instance,
    action: 'Inject',
    reason,
    type,
    regarding: { ...regarding, namespace: request.namespace },
    note: shorten(note, MAX_NOTE_LENGTH),
  };
}

interface Regarding {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid?: string;
}

/** The pod's owner; otherwise the pod, if its name is complete. */
function toRegarding({ owner, name }: ReviewedRequest): Regarding | undefined {
  if (owner !== undefined) return owner;
  return name.endsWith(UNNAMED) ? undefined : { apiVersion: 'v1', kind: 'Pod', name };
}
