/** Signed deliveries, made without any code of the gate. */
import { createHmac, randomBytes } from 'node:crypto';

/** The Standard Webhooks example secret. */
export const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';

/** What may differ from a plain delivery. */
export interface DeliveryOptions {
  readonly id?: string;
  readonly timestamp?: number | string;
  readonly secret?: string;
  readonly body?: Buffer | string;
}

/** A delivery and the headers that sign it. */
export interface Delivery {
  readonly id: string;
  readonly body: Buffer;
  readonly headers: Record<string, string>;
}

/** Now, in unix seconds. */
export function unixNow(): number {
  return Math.floor(Date.now() / 1000);
}

/** HMAC-SHA256 over `id.timestamp.body`, base64, as `v1,…`. */
export function signV1(id: string, timestamp: number | string, body: Buffer, secret = SECRET): string {
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
  return `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest('base64')}`;
}

/** A signed delivery with a fresh id. */
export function makeDelivery(options: DeliveryOptions = {}): Delivery {
  const id = options.id ?? `msg_${randomBytes(9).toString('base64url')}`;
  const timestamp = options.timestamp ?? unixNow();
  const body = Buffer.from(options.body ?? JSON.stringify({ type: 'invoice.paid', id, created: unixNow(), data: {} }));
  return {
    id,
    body,
    headers: {
      'Content-Type': 'application/json',
      'Webhook-Id': id,
      'Webhook-Timestamp': String(timestamp),
      'Webhook-Signature': signV1(id, timestamp, body, options.secret),
    },
  };
}
