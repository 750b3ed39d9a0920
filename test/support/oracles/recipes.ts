/** The senders' signatures by nothing but node:crypto, each written from its document; independent of the scheme engine. */
import { createHmac, createPrivateKey, type KeyObject, sign as signBytes } from 'node:crypto';

type Encoding = 'hex' | 'base64' | 'base64url';

/** An HMAC over the pieces in a row. */
export function hmac(
  algorithm: 'sha1' | 'sha256' | 'sha512',
  key: string | Buffer,
  pieces: readonly (string | Buffer)[],
  encoding: Encoding = 'hex',
): string {
  const mac = createHmac(algorithm, key);
  for (const piece of pieces) mac.update(piece);
  return mac.digest(encoding);
}

/** Whole seconds. */
export function toSeconds(timestamp: number): string {
  return String(Math.floor(timestamp / 1000));
}

/** RFC 3339 with nanoseconds, as Twitch writes it. */
export function toNanoseconds(timestamp: number): string {
  return new Date(timestamp).toISOString().replace('Z', '123456Z');
}

/** HubSpot decodes these in the request URI before it signs, and no others. */
const HUBSPOT_DECODED = /%(?:3A|2F|3F|40|21|24|27|28|29|2A|2C|3B)/gi;

/** The URI that HubSpot's v3 signature covers. */
export function toHubspotUri(url: string): string {
  return url.replace(HUBSPOT_DECODED, (encoded) => decodeURIComponent(encoded));
}

/** The ed25519 key of a seed; PKCS #8 is a fixed prefix before it (RFC 8410 section 7). */
export function toEd25519(seed: Buffer): KeyObject {
  const key = Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), seed]);
  return createPrivateKey({ key, format: 'der', type: 'pkcs8' });
}

/** An ed25519 signature in hex. */
export function signEd25519(key: KeyObject, bytes: Buffer): string {
  return signBytes(null, bytes, key).toString('hex');
}

/** An ECDSA signature over SHA-256, DER in base64. */
export function signEcdsa(key: KeyObject, bytes: Buffer): string {
  return signBytes('sha256', bytes, { key, dsaEncoding: 'der' }).toString('base64');
}
