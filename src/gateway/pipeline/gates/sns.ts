/** Verifies that Amazon SNS signed a message of one of the route's topics, and confirms the route's subscriptions for the app. */

import type { EpochMilliseconds } from '../../../core/clock.ts';
import type { VerifiedEvent } from '../../../core/event.ts';
import type { HeaderFields } from '../../../core/head.ts';
import { acknowledge, type Proof, type Refusal, refuse } from '../../../core/refusal.ts';
import type { Client, ParsedHead } from '../../../core/request.ts';
import type { CertificateKey } from '../../../verify/keys/certificates.ts';
import { RemoteFailure } from '../../../verify/keys/https-get.ts';
import { isSignedByCertificate, parseSnsMessage, type SnsMessage, toSnsOpenContent } from '../../../verify/schemes/aws-sns.ts';
import type { EventGate } from './gate.ts';
import { checkRecency, type RecencyOptions } from './signature.ts';

/** A request to SNS, for the client at an address; rejects with RemoteFailure. */
type FetchFrom<T> = (url: URL, client: string) => Promise<T>;

/** Verifies the body, which has the signature too. */
export function createSnsGate(
  options: RecencyOptions & {
    readonly topics: readonly string[];
    /** Follow the URL of a valid SubscriptionConfirmation. */
    readonly confirm: boolean;
    /** Maximum size of the content, in bytes. */
    readonly maxBody: number;
    readonly onKeyUsed: (topic: string, at: EpochMilliseconds) => void;
  },
  parts: {
    /** The key of the certificate at a pinned URL. */
    readonly toKey: FetchFrom<CertificateKey>;
    readonly follow: FetchFrom<unknown>;
  },
): EventGate {
  const topics = new Set(options.topics);
  return { maxBody: options.maxBody, check: (head) => (body) => verify(head, body) };

  async function verify({ headers, receivedAt, client }: ParsedHead, body: Buffer): Promise<VerifiedEvent | Refusal> {
    const message = parseSnsMessage(body);
    if ('problem' in message) return refuse('malformed_signature', 'malformed_signature', message.problem);
    const contradicted = findContradiction(headers, message);
    if (contradicted !== undefined)
      return refuse('malformed_signature', 'malformed_signature', `${contradicted} contradicts the content`);
    // Anyone with an AWS account can get messages signed: only the topic identifies the sender. Nothing is fetched for other topics.
    if (!topics.has(message.topic))
      return refuse('signature_mismatch', 'sender_not_allowed', "the topic is not in the route's list");
    // Before the signature: a replayed old message costs no fetch.
    const refusal = checkRecency(message.timestamp, receivedAt, options) ?? (await checkSignature(message, client, parts.toKey));
    if (refusal !== undefined) return refusal;
    options.onKeyUsed(message.topic, receivedAt);
    if (message.type !== 'Notification') return handleHandshake(message, client, options.confirm ? parts.follow : undefined);
    const { id, timestamp, topic } = message;
    return { id, timestamp, keyName: topic, body, openContent: toSnsOpenContent(body) };
  }
}

/** These fields repeat parts of the content and are not signed, but apps use them to decide how to handle it. */
function findContradiction(headers: HeaderFields, { type, topic, id }: SnsMessage): string | undefined {
  const expected = { 'x-amz-sns-message-type': type, 'x-amz-sns-topic-arn': topic, 'x-amz-sns-message-id': id };
  return Object.entries(expected).find(([name, value]) => headers.all(name).some((field) => field !== value))?.[0];
}

async function checkSignature(
  message: SnsMessage,
  { address }: Client,
  toKey: FetchFrom<CertificateKey>,
): Promise<Refusal | undefined> {
  try {
    const { key, onVerified } = await toKey(message.certificateUrl, address);
    if (!isSignedByCertificate(message, key)) return refuse('signature_mismatch', 'bad_signature');
    onVerified();
    return undefined;
  } catch (thrown) {
    // A problem of ours or of the network: SNS retries.
    return refuse('secret_unavailable', 'secret_unavailable', toRemoteText(thrown));
  }
}

const DONE: Proof = { state: 'handshake', reply: { status: 200, contentType: 'text/plain', body: '' } };

/** The end of a subscription is only logged: people must decide whether to subscribe again. */
async function handleHandshake(
  message: SnsMessage,
  { address }: Client,
  follow: FetchFrom<unknown> | undefined,
): Promise<Refusal> {
  if (message.type === 'UnsubscribeConfirmation') return acknowledge(DONE, 'the subscription has ended');
  if (follow === undefined)
    return refuse('handshake_refused', 'handshake_refused', 'sns.confirm is false: confirm the subscription by hand');
  if (message.subscribeUrl === undefined)
    return refuse('handshake_refused', 'handshake_refused', "SubscribeURL is not an SNS URL in the topic's region");
  try {
    await follow(message.subscribeUrl, address);
    return acknowledge(DONE, 'the subscription is confirmed');
  } catch (thrown) {
    return refuse('secret_unavailable', 'handshake_unfinished', toRemoteText(thrown));
  }
}

/** Any other error is a bug and is rethrown, so that the request is rejected with internal_error. */
function toRemoteText(thrown: unknown): string {
  if (thrown instanceof RemoteFailure) return thrown.message;
  throw thrown;
}
