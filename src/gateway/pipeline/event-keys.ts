/** Builds the store keys of events and resources: short, and readable where that is safe. Also clears events from the store. */
import { hash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { Milliseconds } from '../../core/clock.ts';
import { toDigestId, type VerifiedEvent } from '../../core/event.ts';
import { listForwarded } from '../../core/headers.ts';
import { toComparedType } from '../../core/media-type.ts';
import type { ParsedHead } from '../../core/request.ts';
import { type Forgotten, type SeenIds, StoreUnavailable } from '../../state/seen-ids.ts';

/** Longer names are hashed, so that senders cannot make keys long; so are names that cannot be printed. */
const PLAIN = /^[\x21-\x7e]{1,64}$/;
const FINGERPRINT_LENGTH = 16;
const RADIX = 36;
/** The output of `toDigestId`. */
const DIGEST_ID = /^sha256-([A-Za-z0-9_-]{16,43})$/;

/** The key of an event, by its id. */
export function toIdKey(route: string, id: string): string {
  return toKey(route, id);
}

/** The key of the signed content, for signatures that do not cover the id. */
export function toDigestKey(route: string, digest: string): string {
  return `${route}:d:${digest}`;
}

/** The key of one of the kinds that the same signed content may be delivered under; `slot` is counted from 1. */
export function toKindKey(route: string, contentDigest: string, slot: number): string {
  return `${route}:k${slot}:${contentDigest}`;
}

/** The key of a resource; `kind`: a digit, the kind of its versions. */
export function toResourceKey(route: string, kind: string, name: string): string {
  return toKey(`${route}:o${kind}`, name);
}

/** A short hash that distinguishes ids; has no spaces. */
export function toIdFingerprint(id: string): string {
  return hash('sha256', id, 'base64url').slice(0, FINGERPRINT_LENGTH);
}

/**
 * Distinguishes the contents that a sender signed with the same id; has no spaces. It decides only what is counted, so a checksum will
 * do: SHA-256 would take as much CPU as the signature.
 */
export function toContentFingerprint(content: Buffer): string {
  return `${content.length.toString(RADIX)}-${crc32(content).toString(RADIX)}`;
}

/**
 * The last words of the headers by which senders say what an event is and where it is from. Other headers, such as counters of retries,
 * can differ in a retry, so that not all of them can be compared.
 */
const TELLING =
  /(?:^|[^a-z0-9])(?:event|topic|type|action|kind|operation|resource|source|project|dataset|domain|environment|subject|event[^a-z0-9]key|(?:event|source|webhook)[^a-z0-9]name)$/;
/** Where a proxy found the app. */
const FORWARDED = /^x[^a-z0-9]forwarded[^a-z0-9](?:host|prefix)$/;
/** A host that is an address, perhaps with a port: it selects no virtual host, and a retry at another replica has another one. */
const ADDRESS = /^(?:[0-9.]+|\[[0-9a-f:.]+\])(?::[0-9]{0,5})?$/i;

/**
 * Distinguishes requests by what few signatures cover and apps read: the method, the path with the query, the host, the media type, and
 * headers that name the event. It is made of what the app gets.
 */
export function toRequestFingerprint({ method, target, headers, client }: ComparedHead, { openHead }: VerifiedEvent): string {
  const isTrusted = client.viaTrustedProxy || client.viaIdentityProxy;
  const isPlace = (name: string): boolean => name === 'host' || (isTrusted && FORWARDED.test(name));
  const fields = listForwarded(headers, (name) => isPlace(name) || isTelling(name));
  for (const field of fields) if (isPlace(field[0]) && ADDRESS.test(field[1])) field[1] = '';
  const type = toComparedType(headers.all('content-type'));
  return toIdFingerprint(JSON.stringify([method, openHead ?? target.raw, client.scheme, type, fields]));
}

function isTelling(name: string): boolean {
  return TELLING.test(name) && name !== 'content-type';
}

/** The part of a head that identifies an event. */
type ComparedHead = Pick<ParsedHead, 'method' | 'target' | 'headers' | 'client'>;

/** Distinguishes contents, so that no two are taken for each other. */
export function toBodyFingerprint(content: Buffer): string {
  return hash('sha256', content, 'base64url').slice(0, FINGERPRINT_LENGTH);
}

/** Distinguishes the events that may share an unsigned ID, with a digest of what was signed. */
export function toEventFingerprint({ openContent, lastingContent }: VerifiedEvent, digest: string): string {
  if (lastingContent !== undefined) return toBodyFingerprint(lastingContent);
  return openContent === undefined ? digest : `${toBodyFingerprint(openContent)}${digest}`;
}

/** The value stored with a key, without spaces: what is compared, and at the end the digest, by which `forgetEvent` clears that key as well. */
export function joinFingerprint(request: string, content: string, digest: string = content): string {
  return (digest === content ? [request, content] : [request, content, digest]).join('.');
}

/** How a delivery was accepted that is stored before the app handles it. Later settings of the config do not say that. */
interface Acceptance {
  /** For how long its ID is remembered. */
  readonly retention: Milliseconds;
  /** How long it is certainly stored. */
  readonly storedFor: Milliseconds;
  readonly requestId: string;
}

/** Adds how the delivery was accepted. */
export function markStored(fingerprint: string, { retention, storedFor, requestId }: Acceptance): string {
  return `${retention}~${storedFor}~${requestId}~${fingerprint}`;
}

/** The parts that are compared, and what `markStored` added. */
export function splitFingerprint(fingerprint: string): {
  readonly request: string | undefined;
  readonly content: string | undefined;
  readonly stored: Acceptance | undefined;
} {
  const [joined = '', requestId, storedFor, retention] = fingerprint.split('~').reverse();
  const [request, content] = joined.split('.');
  const stored = requestId === undefined ? undefined : { requestId, retention: Number(retention), storedFor: Number(storedFor) };
  return { request, content, stored };
}

/** The tags `i`, `h` and `d` prevent collisions between the forms of keys. */
function toKey(group: string, name: string): string {
  return PLAIN.test(name) ? `${group}:i:${name}` : `${group}:h:${hash('sha256', name, 'base64url')}`;
}

/**
 * Clears one event, so that its next valid delivery is forwarded: the id, and the digest that was recorded with it.
 * Rejects with StoreUnavailable; if only the digest remains, the message says how to clear it.
 */
export async function forgetEvent(store: SeenIds, route: string, id: string): Promise<Forgotten['was']> {
  const byId = await store.forget(toIdKey(route, id));
  const digest = byId.fingerprint?.split('.').at(-1) ?? DIGEST_ID.exec(id)?.[1];
  if (digest === undefined) return byId.was;
  const byDigest = await forgetDigest(store, route, digest, byId.was);
  return byId.was === 'absent' ? byDigest : byId.was;
}

async function forgetDigest(store: SeenIds, route: string, digest: string, was: Forgotten['was']): Promise<Forgotten['was']> {
  try {
    return (await store.forget(toDigestKey(route, digest))).was;
  } catch (thrown) {
    if (!(thrown instanceof StoreUnavailable) || was === 'absent') throw thrown;
    // The id's entry, which named the digest, is gone: without this message nobody would know which digest to clear.
    const message = `${thrown.message}; the id was cleared, but not the digest of its content: forget the id ${toDigestId(digest)} as well`;
    throw new StoreUnavailable(thrown.failure, message, { cause: thrown });
  }
}
