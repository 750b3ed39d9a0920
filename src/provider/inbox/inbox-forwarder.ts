/** Stores an admitted delivery in the queue instead of forwarding it, and answers 202, or what the sender needs, once it is durable (`ack: onAccept`). */
import { createHash, randomUUID } from 'node:crypto';
import type { Admitted } from '../../core/admitted.ts';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { SidegateError, toErrorText } from '../../core/errors.ts';
import { toDigestId, type VerifiedEvent } from '../../core/event.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import type { ClientResponse, ParsedHead } from '../../core/request.ts';
import type { StoredDeliveries } from '../../gateway/pipeline/gates/dedup.ts';
import { toBodyFingerprint, toEventFingerprint, toRequestFingerprint } from '../../gateway/pipeline/gates/dedup.ts';
import type { Forwarder, RequestPolicy } from '../../gateway/upstream/forwarder.ts';
import type { ForwardOutcome } from '../../gateway/upstream/outcome.ts';
import { INBOX_TYPE, toInboxEndpoint, toInboxMetadata } from '../events/event.ts';
import type { DeliveryQueue, NewEvent } from '../queue/delivery-queue.ts';
import { isQueueBusy } from '../queue/store-client.ts';

export interface InboxOptions {
  readonly route: string;
  /** `ack: onAccept`. Without it, only `repeat` is used: deliveries may be stored that the route accepted when it had it. */
  readonly stores: boolean;
  /** `dedup.unsignedId: trust`: events with the same bytes and different IDs are different. */
  readonly trustsUnsignedId: boolean;
  /** The sender can send the same signed bytes for different events. */
  readonly repeatsBytes: boolean;
  /** By which the sender learns that the delivery is stored. */
  readonly status: number;
  /** The text that the sender needs as well. */
  readonly text?: string | undefined;
}

/** The bound of `NewEvent.metadata`; request heads are limited to a fraction of it by default. */
const MAX_METADATA_BYTES = 64 * 1024;
/** The part of the retention in which the queue must know an event: IDs are confirmed later than events are stored. */
const KNOWN_SHARE = 0.9;
/** The IDs under which deliveries are stored, as `toEventId` returned them last: of a lost one, that under which it was accepted. */
const eventIds = new WeakMap<VerifiedEvent, string>();

/** A delivery is lost if the queue was replaced or went back to an earlier state. */
export interface Inbox extends StoredDeliveries {
  readonly forwarder: Forwarder;
}

/** Undefined without a sending side. */
export type CreateInbox = (options: InboxOptions, policy: RequestPolicy) => Inbox | undefined;

export function createInbox(
  options: InboxOptions,
  policy: RequestPolicy,
  parts: {
    readonly clock: Clock;
    readonly queue: Pick<DeliveryQueue, 'append' | 'findEvent' | 'repair' | 'stats'>;
    /** How long the queue keeps each event after it was accepted. */
    readonly retention: Milliseconds;
    /** Whether there can be deliveries for the endpoint. */
    readonly isUsed: (endpoint: string) => boolean;
  },
): Inbox {
  const { clock, queue, retention } = parts;
  const endpoint = toInboxEndpoint(options.route);
  const repeat = async (event: string): Promise<void> => {
    for await (const _ of queue.repair('retry', { event, endpoint, states: ['dead', 'skipped'] }, clock.now()));
  };
  return {
    clock,
    storedFor: options.stores ? retention * KNOWN_SHARE : undefined,
    forwarder: {
      async forward(admitted, response, trace) {
        const startedAt = clock.monotonic();
        const took = (): Milliseconds => clock.monotonic() - startedAt;
        let queuedAs: string;
        try {
          const event = toEvent(options, admitted, policy.toUpstreamHeaders(admitted, trace), clock.now());
          const [result] = await queue.append([event]);
          // Its ID was forgotten: after a restart without a store, after `sidegate forget`, or after `dedup.retention`.
          // A conflict: only values differ that are new in each attempt.
          if (result !== 'stored') await repeat(event.id);
          queuedAs = event.id;
        } catch (thrown) {
          return toFailure(thrown, took());
        }
        return { ...accept(response, options), queuedAs, upstreamMs: took() };
      },
    },
    toId: (...delivery) => toEventId(options, ...delivery),
    async repeat(id, acceptedAt) {
      if (!parts.isUsed(endpoint)) return 'known';
      try {
        await repeat(id);
        // An older event that is missing was delivered and has left the queue, maybe only now: so its statistics are read afterwards.
        if (acceptedAt === undefined || (await queue.findEvent(id)) !== undefined) return 'known';
        if (acceptedAt <= (await queue.stats(clock.now())).prunedUntil) return 'known';
        return 'lost';
      } catch (thrown) {
        return toRefusal(thrown);
      }
    },
  };
}

function toEvent(options: InboxOptions, admitted: Admitted, headers: readonly string[], createdAt: EpochMilliseconds): NewEvent {
  const { route } = options;
  const { head, body } = admitted;
  if (!Buffer.isBuffer(body)) throw new Error(`route ${route} has an inbox but does not verify bodies`);
  const { event, claim } = admitted.claimed ?? {};
  const metadata = toInboxMetadata({ method: head.method, path: head.target.raw, headers, event: event?.id });
  if (Buffer.byteLength(metadata) > MAX_METADATA_BYTES) throw new Error(`the request head exceeds ${MAX_METADATA_BYTES} bytes`);
  const id = event && claim && eventIds.get(event);
  return {
    id: id ?? `in_${randomUUID()}`,
    type: INBOX_TYPE,
    createdAt,
    body,
    metadata,
    targets: [{ endpoint: toInboxEndpoint(route) }],
  };
}

/**
 * From what dedup claims and compares, and so the same for every repetition of a delivery: one that arrives again after a crash between here and
 * the confirmation of its ID is stored once. It covers all that the signature leaves open, so that another delivery is never taken for a
 * stored one. Where bytes repeat, it also covers the ID, or else `by`, the request that was accepted. Hashed, because IDs may contain any character.
 */
function toEventId(options: InboxOptions, event: VerifiedEvent, head: ParsedHead, by: string | undefined): string | undefined {
  const { route, trustsUnsignedId, repeatsBytes } = options;
  const { digest, lastingContent } = event;
  // A sender can sign an ID again, with other content.
  const openContent = event.openContent ?? (digest === undefined ? event.body : undefined);
  // Then the digest is new in each attempt.
  const isByContent = digest !== undefined && (trustsUnsignedId || lastingContent !== undefined);
  const identity = isByContent ? event.id : (digest ?? event.id);
  const own = event.id === toDigestId(digest ?? '') ? by : event.id;
  if (identity === undefined || (repeatsBytes && own === undefined)) return undefined;
  const openText = openContent === undefined ? '' : toBodyFingerprint(openContent);
  const content = isByContent ? toEventFingerprint(event, digest) : openText;
  const open = [toRequestFingerprint(head, event), content, ...(repeatsBytes ? [own] : [])].join('\n');
  const id = `in_${createHash('sha256').update(`${route}\n${identity}\n${open}`).digest('base64url')}`;
  eventIds.set(event, id);
  return id;
}

function accept(response: ClientResponse, { status, text = '' }: Pick<InboxOptions, 'status' | 'text'>) {
  if (response.destroyed) return { kind: 'responded', status } as const;
  const contentBytes = Buffer.byteLength(text, 'latin1');
  // RFC 9110 §8.6: a 204 has no Content-Length.
  const length = status === 204 ? [] : ['Content-Length', String(contentBytes)];
  response.writeHead(status, undefined, text === '' ? length : ['Content-Type', 'text/plain', ...length]);
  response.end(text, 'latin1');
  return { kind: 'responded', status, contentBytes } as const;
}

/** Nothing was stored, or the queue cannot say: the sender has to retry, and the same event is then stored once. */
function toFailure(thrown: unknown, upstreamMs: Milliseconds): ForwardOutcome {
  const failure = { kind: 'connect', nothingSent: true, detail: toErrorText(thrown) } as const;
  return { kind: 'failed', refusal: toRefusal(thrown), failure, upstreamMs };
}

function toRefusal(thrown: unknown): Refusal {
  const isFull = isQueueBusy(thrown) || (thrown instanceof SidegateError && thrown.code === 'queue_full');
  const detail = toErrorText(thrown);
  const details = { detail, stage: 'queued' } as const;
  return isFull ? refuse('overloaded', 'queue_full', details) : refuse('store_unavailable', 'queue_unavailable', details);
}
