/** Leaves Events on whoever creates the pods, where people look: bounded in their rate, beside the way of the admission, and none is worth a failure. */
import { randomBytes } from 'node:crypto';
import { type Clock, type Milliseconds, toInstant } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { runDetached } from '../../core/safe-events.ts';
import { TokenBucket } from '../../core/token-bucket.ts';
import type { KubeClient } from '../client/client.ts';
import { KubeError } from '../client/error.ts';
import type { ReviewedRequest } from '../injector/review.ts';
import type { EventOutcome } from './injector-metrics.ts';
import type { AdmissionLogger } from './log-events.ts';
import type { News } from './reviewer.ts';
import { shorten } from './warnings.ts';

/** What it stands on. */
export interface EventsParts {
  readonly kube: Pick<KubeClient, 'request'>;
  readonly clock: Clock;
  readonly logger: AdmissionLogger;
  /** The injector's pod. */
  readonly instance: string;
  readonly onOutcome: (outcome: EventOutcome) => void;
}

/** A thousand pods of one owner are one Event. */
const REPEATED_WITHIN_MS: Milliseconds = 600_000;
const MOST_REMEMBERED = 2_000;
const BURST = 25;
const PER_SECOND = 1;
const MOST_UNDER_WAY = 8;
/** RBAC is not given back every second. */
const FORBIDDEN_FOR_MS: Milliseconds = 600_000;
const TIMEOUT_MS: Milliseconds = 5_000;
/** Of events.k8s.io/v1: 1 kB. */
const LONGEST_NOTE = 900;
const LONGEST_NAME = 200;
const UNNAMED = '…';

/** Sends them. */
export class Events {
  readonly #parts: EventsParts;
  readonly #told = new Map<string, Milliseconds>();
  readonly #budget: TokenBucket;
  #underWay = 0;
  #forbiddenUntil: Milliseconds = 0;

  constructor(parts: EventsParts) {
    this.#parts = parts;
    this.#budget = new TokenBucket(PER_SECOND, BURST, parts.clock);
  }

  /** Returns at once, and never throws. */
  tell(news: News): void {
    const outcome = this.#judge(news);
    if (outcome !== undefined) this.#parts.onOutcome(outcome);
    else runDetached(this.#send(news));
  }

  /** Why it is not sent. */
  #judge({ request, reason, note }: News): EventOutcome | undefined {
    const now = this.#parts.clock.monotonic();
    if (toRegarding(request) === undefined) return 'dropped';
    if (now < this.#forbiddenUntil) return 'forbidden';
    const key = [request.namespace, request.owner?.uid ?? request.name, reason, note].join('\n');
    const told = this.#told.get(key);
    if (told !== undefined && now - told < REPEATED_WITHIN_MS) return 'repeated';
    if (this.#underWay >= MOST_UNDER_WAY || !this.#budget.take()) return 'dropped';
    this.#remember(key, now);
    return undefined;
  }

  #remember(key: string, now: Milliseconds): void {
    this.#told.delete(key);
    this.#told.set(key, now);
    const oldest = this.#told.size > MOST_REMEMBERED ? this.#told.keys().next().value : undefined;
    if (oldest !== undefined) this.#told.delete(oldest);
  }

  async #send(news: News): Promise<void> {
    const { kube, clock, logger, instance, onOutcome } = this.#parts;
    const path = `/apis/events.k8s.io/v1/namespaces/${encodeURIComponent(news.request.namespace)}/events`;
    this.#underWay++;
    try {
      await kube.request('POST', path, { body: toEvent(news, instance, toInstant(clock.now())), timeout: TIMEOUT_MS });
      onOutcome('sent');
    } catch (thrown) {
      const isForbidden = thrown instanceof KubeError && thrown.status === 403 && thrown.reason === 'Forbidden';
      // A namespace that is being deleted is forbidden, too, and tells nothing of our rights.
      if (isForbidden && !thrown.message.includes('being terminated')) {
        this.#forbiddenUntil = clock.monotonic() + FORBIDDEN_FOR_MS;
        onOutcome('forbidden');
      } else onOutcome('failed');
      logger.warn('event_failed', { namespace: news.request.namespace, problem: shorten(toErrorText(thrown)) });
    } finally {
      this.#underWay--;
    }
  }
}

function toEvent({ request, type, reason, note }: News, instance: string, now: string): object {
  const regarding = toRegarding(request);
  return {
    apiVersion: 'events.k8s.io/v1',
    kind: 'Event',
    metadata: {
      name: `${(regarding?.name ?? '').slice(0, LONGEST_NAME)}.${randomBytes(8).toString('hex')}`,
      namespace: request.namespace,
    },
    // Microseconds are asked for.
    eventTime: now.replace('Z', '000Z'),
    reportingController: 'sidegate.dev/injector',
    reportingInstance: instance,
    action: 'Inject',
    reason,
    type,
    regarding: { ...regarding, namespace: request.namespace },
    note: shorten(note, LONGEST_NOTE),
  };
}

interface Regarding {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid?: string;
}

/** The pod's owner; else the pod, where it has its name already. */
function toRegarding({ owner, name }: ReviewedRequest): Regarding | undefined {
  if (owner !== undefined) return owner;
  return name.endsWith(UNNAMED) ? undefined : { apiVersion: 'v1', kind: 'Pod', name };
}
