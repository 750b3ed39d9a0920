/** What an independent truth for one sender looks like: it signs as the sender does, and where the sender publishes a verifier, it verifies with that. */

/** A delivery before it is signed. */
export interface Delivery {
  readonly method: string;
  /** The public URL, as the sender was given it. */
  readonly url: string;
  readonly contentType: string;
  /** UTF-8 text without a byte order mark: the senders' libraries take strings. */
  readonly body: Buffer;
  readonly id: string;
  /** Milliseconds since the epoch. */
  readonly timestamp: number;
}

/** A delivery as it arrives: some senders sign in the URL or in the body. */
export interface SignedDelivery {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/** What the receiver is given by the sender: a shared secret, or a public key. */
export interface ReceiverKey {
  readonly text: string;
  /** How the text becomes key bytes; what the sender's own receiver does where it is missing. */
  readonly encoding?: 'utf8' | 'base64' | 'hex';
}

/** Which bytes of a signed delivery a change of which must be noticed. */
export interface Covered {
  readonly body: boolean;
  readonly url: boolean;
  readonly id: boolean;
  readonly timestamp: boolean;
}

/** One sender as one library, or one document, sees it. */
export interface Oracle {
  readonly preset: string;
  /** Where one preset has several forms. */
  readonly form?: string;
  readonly signedBy: string;
  readonly verifiedBy?: string;
  /** The code or the document that the signature rests on. */
  readonly source: string;
  readonly secret: ReceiverKey;
  readonly otherSecret: ReceiverKey;
  readonly covers: Covered;
  /** A delivery such as the sender makes; `timestamp` in milliseconds. */
  sample(timestamp: number): Delivery;
  sign(delivery: Delivery): SignedDelivery | Promise<SignedDelivery>;
  /** By the library's own clock where it has a tolerance: sign with the time of now. */
  verify?(signed: SignedDelivery, secret: ReceiverKey): boolean | Promise<boolean>;
}

/** Only the body. */
export const BODY: Covered = { body: true, url: false, id: false, timestamp: false };
/** The body and the time of the attempt. */
export const BODY_AND_TIME: Covered = { ...BODY, timestamp: true };
/** The body, the id and the time of the attempt. */
export const BODY_ID_AND_TIME: Covered = { ...BODY_AND_TIME, id: true };
/** The body and the URL. */
export const BODY_AND_URL: Covered = { ...BODY, url: true };

/** A delivery of JSON. */
export function toJsonDelivery(url: string, timestamp: number, content: unknown): Delivery {
  return {
    method: 'POST',
    url,
    contentType: 'application/json',
    body: Buffer.from(JSON.stringify(content)),
    id: 'evt_2f0c6b7e9a',
    timestamp,
  };
}

/** The delivery with these headers beside its Content-Type. */
export function withHeaders(delivery: Delivery, headers: Readonly<Record<string, string>>): SignedDelivery {
  const { method, url, body, contentType } = delivery;
  return { method, url, body, headers: { 'content-type': contentType, ...headers } };
}

/** A header's value; the empty text where it is missing. */
export function getHeader(signed: SignedDelivery, name: string): string {
  return signed.headers[name] ?? '';
}

/** Whether a verifier that throws on what it refuses accepts. */
export async function isAccepted(action: () => unknown): Promise<boolean> {
  try {
    await action();
    return true;
  } catch {
    return false;
  }
}
