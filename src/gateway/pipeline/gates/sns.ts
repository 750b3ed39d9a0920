/** Did Amazon SNS sign this message, for a topic of the route? Confirms the route's subscriptions on behalf of the app. */
import type { KeyObject } from 'node:crypto';
import { RemoteFailure } from '../../../auth/keys/https-get.ts';
import { isSignedByCertificate, parseSnsMessage, type SnsMessage } from '../../../auth/schemes/aws-sns.ts';
import type { EpochMilliseconds } from '../../../core/clock.ts';
import type { HeaderFields } from '../../../core/headers.ts';
import { type Refusal, type Reply, refuse } from '../../../core/refusal.ts';
import type { EventGate } from './gate.ts';
import { judgeRecency, type RecencyOptions } from './timestamp.ts';

/** What the gate needs of its route. */
export interface SnsOptions extends RecencyOptions {
  readonly topics: readonly string[];
  /** Follow the URL of a genuine SubscriptionConfirmation. */
  readonly confirm: boolean;
  /** Largest content in bytes. */
  readonly maxBody: number;
  readonly onKeyUsed: (topic: string, at: EpochMilliseconds) => void;
}

/** Where it asks; both reject with RemoteFailure. */
export interface SnsParts {
  /** The key of the certificate at a URL that was pinned. */
  readonly toKey: (url: URL) => Promise<KeyObject>;
  readonly follow: (url: URL) => Promise<unknown>;
}

/** Reads the body and verifies it. */
export function createSnsGate(options: SnsOptions, parts: SnsParts): EventGate {
  const topics = new Set(options.topics);
  return {
    async verify(head) {
      const body = await head.body.read(options.maxBody);
      if (!Buffer.isBuffer(body)) return body;
      const message = parseSnsMessage(body);
      if ('problem' in message) return refuse('malformed_signature', 'malformed_signature', message.problem);
      const contradicted = findContradiction(head.headers, message);
      if (contradicted !== undefined)
        return refuse('malformed_signature', 'malformed_signature', `${contradicted} says something else than the content`);
      // Anybody with an account there can have messages signed: only the topic tells whose they are. And nothing is fetched for others.
      if (!topics.has(message.topic))
        return refuse('signature_mismatch', 'sender_not_allowed', 'the topic is not one of the route');
      // Before the signature: an old message that somebody kept costs no fetch.
      const refusal = judgeRecency(message.timestamp, head.receivedAt, options) ?? (await checkSignature(message, parts));
      if (refusal !== undefined) return refusal;
      options.onKeyUsed(message.topic, head.receivedAt);
      if (message.type !== 'Notification') return answerHandshake(message, options, parts);
      const { id, timestamp, topic } = message;
      return { id, timestamp, keyName: topic, body };
    },
  };
}

/** These fields repeat what the content says, and are not signed: apps choose by them what to do with the content. */
function findContradiction(headers: HeaderFields, { type, topic, id }: SnsMessage): string | undefined {
  const said = { 'x-amz-sns-message-type': type, 'x-amz-sns-topic-arn': topic, 'x-amz-sns-message-id': id };
  return Object.entries(said).find(([name, value]) => headers.all(name).some((field) => field !== value))?.[0];
}

async function checkSignature(message: SnsMessage, { toKey }: SnsParts): Promise<Refusal | undefined> {
  try {
    const key = await toKey(message.certificateUrl);
    return isSignedByCertificate(message, key) ? undefined : refuse('signature_mismatch', 'bad_signature');
  } catch (thrown) {
    // Trouble of ours, or of the way there: SNS comes again.
    return refuse('secret_unavailable', 'secret_unavailable', toRemoteText(thrown));
  }
}

const DONE: Reply = { status: 200, contentType: 'text/plain', body: '' };

/** An end of a subscription is only taken note of: confirming it again is for people to decide. */
async function answerHandshake(message: SnsMessage, { confirm }: SnsOptions, { follow }: SnsParts): Promise<Refusal> {
  if (message.type === 'UnsubscribeConfirmation')
    return refuse('handshake', 'handshake', { reply: DONE, detail: 'the subscription has ended' });
  if (!confirm) return refuse('handshake_refused', 'handshake_refused', 'sns.confirm is false: confirm the subscription by hand');
  if (message.subscribeUrl === undefined)
    return refuse('handshake_refused', 'handshake_refused', "SubscribeURL is not of SNS in the topic's region");
  try {
    await follow(message.subscribeUrl);
    return refuse('handshake', 'handshake', { reply: DONE, detail: 'the subscription is confirmed' });
  } catch (thrown) {
    return refuse('secret_unavailable', 'handshake_unfinished', toRemoteText(thrown));
  }
}

/** Anything else is a bug, and goes on to be refused as one. */
function toRemoteText(thrown: unknown): string {
  if (thrown instanceof RemoteFailure) return thrown.message;
  throw thrown;
}
