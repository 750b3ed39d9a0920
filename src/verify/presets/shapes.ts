/** Shapes that many senders share: what they sign, how the signature is written, and what they send. */
import type { SchemeDescription, SenderDescription, SignatureDescription, Tolerance } from '../schemes/description.ts';

const MINUTE_MS = 60_000;

/** A tolerance in minutes, the same in both directions by default. */
export function minutes(past: number, future = past): Tolerance {
  return { past: past * MINUTE_MS, future: future * MINUTE_MS };
}

/** The tolerance that Standard Webhooks recommends. */
export const FIVE_MINUTES: Tolerance = minutes(5);

export const JSON_ONLY: readonly string[] = ['application/json'];
export const JSON_OR_FORM: readonly string[] = ['application/json', 'application/x-www-form-urlencoded'];
/** For senders that let users choose the format. */
export const JSON_XML_OR_FORM: readonly string[] = [...JSON_OR_FORM, 'application/xml', 'text/xml'];
/** For senders that let users choose the method. */
export const ANY_METHOD: readonly string[] = ['POST', 'PUT', 'PATCH', 'DELETE', 'GET'];
/** Without multipart, whose files are not among the fields. */
export const URL_ENCODED: readonly string[] = ['application/x-www-form-urlencoded'];
export const FORMS: readonly string[] = ['application/x-www-form-urlencoded', 'multipart/form-data'];

const COMMON = {
  secret: { encoding: 'utf8' },
  tolerance: FIVE_MINUTES,
  contentTypes: JSON_ONLY,
} as const;

/** Only the raw body is signed, so the signed bytes identify duplicates, unless the body has an ID. */
export const BODY = { ...COMMON, signed: ['body'], separator: '' } as const;

/** The timestamp, a dot and the raw body are signed. */
export const TIME_AND_BODY = { ...COMMON, signed: ['timestamp', 'body'], separator: '.' } as const;

/** As Slack signs: `v0`, the timestamp and the raw body, with colons between them. */
export const VERSION_TIME_AND_BODY = { ...COMMON, signed: [{ text: 'v0' }, 'timestamp', 'body'], separator: ':' } as const;

/** Nothing is signed: a header contains the secret itself. */
export const TOKEN = { ...COMMON, signed: [], separator: '' } as const;

/** A header with an HMAC-SHA256 in hex. */
export function hexIn(header: string, prefix = ''): SignatureDescription {
  return { header, encoding: 'hex', forms: [{ prefix, algorithm: 'hmac-sha256' }] };
}

/** A header with an HMAC-SHA256 in base64. */
export function base64In(header: string, prefix = ''): SignatureDescription {
  return { header, encoding: 'base64', forms: [{ prefix, algorithm: 'hmac-sha256' }] };
}

/** A header with entries between commas, of which those with the prefix are HMAC-SHA256s in hex. */
export function hexListIn(header: string, prefix: string): SignatureDescription {
  return { ...hexIn(header, prefix), list: ',' };
}

/** A header with the secret itself. */
export function tokenIn(header: string): SignatureDescription {
  return { header, encoding: 'text', forms: [{ prefix: '', algorithm: 'token' }] };
}

/** A scheme, with the `docs` and the `key` of its sender. */
type SenderScheme = Omit<SchemeDescription, 'name' | 'from'> & Omit<SenderDescription, 'title'>;

/** A preset: its name in the config, the name of the sender, and the scheme. */
export function sender(name: string, title: string, { docs, key, ...scheme }: SenderScheme): SchemeDescription {
  return { ...scheme, name, from: { title, docs, key } };
}
