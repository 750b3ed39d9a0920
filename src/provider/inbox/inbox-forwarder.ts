/** Stores an admitted delivery in the queue instead of forwarding it, and answers 202, or what the sender needs, once it is durable (`ack: onAccept`). */
import { createHash, randomUUID } from 'node:crypto';
import type { Admitted } from '../../core/admitted.ts';
import type { ClientResponse } from '../../core/client-response.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { SidegateError, toErrorText } from '../../core/errors.ts';
import { refuse } from '../../core/refusal.ts';
import type { RequestTrace } from '../../core/request-trace.ts';
import { toBodyFingerprint, toRequestFingerprint } from '../../gateway/pipeline/event-keys.ts';
import type { Forwarder, RequestPolicy } from '../../gateway/upstream/forwarder.ts';
import type { ForwardOutcome } from '../../gateway/upstream/outcome.ts';
import { toInboxEndpoint, toInboxMetadata } from '../events/inbox-request.ts';
import type { DeliveryQueue, NewEvent } from '../queue/delivery-queue.ts';

/** The dependencies of an inbox. */
export interface InboxParts {
  readonly clock: Clock;
  readonly queue: Pick<DeliveryQueue, 'append' | 'replay' | 'wake'>;
}

/** The settings of a route that an inbox needs. */
export interface InboxOptions {
  readonly route: string;
  /** `dedup.unsignedId: trust`: events with the same bytes and different IDs are different. */
  readonly trustsUnsignedId: boolean;
  /** By which the sender learns that the delivery is stored. */
  readonly status: number;
  /** The text that the sender needs as well. */
  readonly text?: string | undefined;
}

/** The type of the events in lists and metrics: the body belongs to the sender, and is not interpreted. */
const INBOX_TYPE = 'inbox';
/** The bound of `NewEvent.metadata`; request heads are limited to a fraction of it by default. */
const MAX_METADATA_BYTES = 64 * 1024;

/** Creates the forwarder of a route with an inbox. */
export function createInboxForwarder(options: InboxOptions, policy: RequestPolicy, parts: InboxParts): Forwarder {
  const { clock, queue } = parts;
  return {
    async forward(admitted, response, trace) {
      const startedAt = clock.monotonic();
      const took = (): Milliseconds => clock.monotonic() - startedAt;
      try {
        const event = toEvent(options, policy, admitted, trace, clock);
        const [result] = await queue.append([event]);
        if (result === 'duplicate') await repeat(event.id, toInboxEndpoint(options.route), parts);
      } catch (thrown) {
        return toFailure(thrown, took());
      }
      return accept(response, options, took());
    },
  };
}

/**
 * The gate allowed an event that the queue still has: after a restart without a store, after `sidegate forget`, or when its ID was forgotten. If
 * the app never handled it, it is sent again.
 */
async function repeat(event: string, endpoint: string, { clock, queue }: InboxParts): Promise<void> {
  let replayed = 0;
  for await (const progress of queue.replay({ event, endpoint, states: ['dead', 'skipped'] }, clock.now()))
    replayed = progress.replayed;
  if (replayed > 0) await queue.wake(endpoint);
}

function toEvent(
  options: InboxOptions,
  policy: RequestPolicy,
  admitted: Admitted,
  trace: RequestTrace | undefined,
  clock: Clock,
): NewEvent {
  const { route } = options;
  const { head, body } = admitted;
  if (!Buffer.isBuffer(body)) throw new Error(`route ${route} has an inbox but does not verify bodies`);
  const headers = policy.toUpstreamHeaders(admitted, trace);
  const metadata = toInboxMetadata({ method: head.method, path: head.target.raw, headers });
  if (Buffer.byteLength(metadata) > MAX_METADATA_BYTES) throw new Error(`the request head exceeds ${MAX_METADATA_BYTES} bytes`);
  return {
    id: toEventId(options, admitted),
    type: INBOX_TYPE,
    createdAt: clock.now(),
    body,
    metadata,
    targets: [{ endpoint: toInboxEndpoint(route) }],
  };
}

/**
 * From what dedup claims and compares, and so the same for every repetition of a delivery: one that arrives again after a crash between here and
 * the confirmation of its ID is stored once. It covers all that the signature leaves open, so that another delivery is never taken for a
 * stored one. Hashed, because the IDs of senders may contain any character.
 */
function toEventId({ route, trustsUnsignedId }: InboxOptions, { claimed, head }: Admitted): string {
  const { event, claim } = claimed ?? {};
  const identity = trustsUnsignedId ? event?.id : (event?.digest ?? event?.id);
  if (event === undefined || claim === undefined || identity === undefined) return `in_${randomUUID()}`;
  const isBodyOpen = event.openContent !== undefined || trustsUnsignedId;
  const open = [toRequestFingerprint(head, event), isBodyOpen ? toBodyFingerprint(event) : ''].join('\n');
  return `in_${createHash('sha256').update(`${route}\n${identity}\n${open}`).digest('base64url')}`;
}

function accept(
  response: ClientResponse,
  { status, text = '' }: Pick<InboxOptions, 'status' | 'text'>,
  upstreamMs: Milliseconds,
): ForwardOutcome {
  if (response.destroyed) return { kind: 'responded', status, upstreamMs };
  const contentBytes = Buffer.byteLength(text, 'latin1');
  // RFC 9110 §8.6: a 204 has no Content-Length.
  const length = status === NO_CONTENT ? [] : ['Content-Length', String(contentBytes)];
  response.writeHead(status, undefined, text === '' ? length : ['Content-Type', 'text/plain', ...length]);
  response.end(text, 'latin1');
  return { kind: 'responded', status, contentBytes, upstreamMs };
}

const NO_CONTENT = 204;

/** Nothing was stored, or the queue cannot say: the sender has to retry, and the same event is then stored once. */
function toFailure(thrown: unknown, upstreamMs: Milliseconds): ForwardOutcome {
  const isFull = thrown instanceof SidegateError && thrown.code === 'queue_full';
  const detail = toErrorText(thrown);
  const refusal = isFull ? refuse('overloaded', 'queue_full', detail) : refuse('store_unavailable', 'queue_unavailable', detail);
  return { kind: 'failed', refusal, failure: { kind: 'connect', nothingSent: true, detail }, upstreamMs };
}
