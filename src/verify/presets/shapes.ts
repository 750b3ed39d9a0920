/** Shapes that many senders share: what they sign, and how the signature is written. */
import type { SignatureDescription } from '../schemes/description.ts';
import { FIVE_MINUTES, JSON_ONLY } from './defaults.ts';

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
