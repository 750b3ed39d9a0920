/** The identity of a verified message: its ID, whether the ID is signed, the timestamp if it is in the body, and what is compared of its deliveries. */

import { hash } from 'node:crypto';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { type DecodedToken, type EventIdentity, type SignedHead, toDigestId } from '../../core/event.ts';
import { type HeaderFields, listForwarded, toFoldedName } from '../../core/head.ts';
import { type Chunks, toBytes } from '../../core/hmac.ts';
import { parseJsonListPath, readJsonPath } from '../../core/json-path.ts';
import { readScalar, readScalars, toJsonText, toWholeSpan } from '../../core/json-scan.ts';
import { parseStrictJson } from '../../core/strict-json.ts';
import { toSignaturePlace } from './body-head.ts';
import { BodyContent, compileBodyPlace, isBodyPlace, JSON_BOUNDS, toPath } from './body-values.ts';
import { coversBody, coversId, coversQuery, isRead, listSignedPlaces, readsBody, TIMESTAMP_FORMATS } from './coverage.ts';
import type { ContentShape, IdSource, SchemeDescription } from './description.ts';
import { VALID_ID } from './head.ts';
import { blankHeader } from './header-list.ts';
import { compileCut, cutPairs } from './removal.ts';
import type { Identified, Message } from './scheme.ts';
import { parseStrictQuery } from './strict-form.ts';
import { toQuery } from './url.ts';
import { compileXmlPath } from './xml-path.ts';

/** Identifies a message; `signed` returns the signed bytes. */
export type Identify = (head: SignedHead, message: Message, signed: () => Chunks) => Identified;

/** 132 bits: enough that no two IDs ever collide. */
const DIGEST_LENGTH = 22;

interface Shape {
  readonly title: string;
  /** The first characters that fit. */
  readonly starts: string;
}

const SHAPES: Readonly<Record<ContentShape, Shape>> = {
  'json-object': { title: 'a JSON object', starts: '{' },
  'json-array': { title: 'a JSON array', starts: '[' },
  'json-object-or-array': { title: 'a JSON object or array', starts: '{[' },
};

/** Compiles the function. Throws for an invalid path, which the config's validation should have rejected. */
export function compileIdentity(description: SchemeDescription): Identify {
  const { signed, contentShape } = description;
  const shape = contentShape === undefined ? undefined : SHAPES[contentShape];
  const readClaim = compileClaimId(description.id);
  const readHeadId = readClaim ?? ((head: SignedHead) => head.id);
  const readId = compileId(description);
  const readTime = compileTime(description);
  const isIdSigned = coversId(description);
  const toCompared = compileCompared(description);
  const readsContent = readId?.needsJson === true || readTime !== undefined || shape !== undefined;
  return (head, message, toSigned) => {
    const content = readsContent ? toContent(message.body) : NO_CONTENT;
    const problem = findShapeProblem(shape, content, message.body);
    if (problem !== undefined) return { problem };
    const timestamp = readTime === undefined ? head.timestamp : readTime(content);
    if (typeof timestamp === 'object') return timestamp;
    const id = readId === undefined ? readHeadId(head) : readId.read(content, message.body);
    // A token does not cover the rest of the message, so there are no signed bytes to compute a digest of.
    const isKnown = signed.length === 0 || (id !== undefined && isIdSigned);
    const compared = toCompared(head, message, !isKnown && id !== undefined);
    if (isKnown) return { id, timestamp, ...compared };
    return { ...identifyByContent(toSigned(), id, head.kind), timestamp, ...compared };
  };
}

/** Reads the ID from the body of a verified message; undefined if it is not there. */
interface IdReader {
  readonly needsJson: boolean;
  /** `content`: empty if it is not JSON. */
  read(content: Buffer, body: Buffer): string | undefined;
}

/** Undefined if the ID is in the head, or was already read because it is signed. */
function compileId({ id: source, signed }: SchemeDescription): IdReader | undefined {
  if (source === undefined || signed.includes('id')) return undefined;
  if ('xml' in source) {
    const read = compileXmlPath(source.xml);
    return { needsJson: false, read: (_, body) => toId(read(body)) };
  }
  if ('form' in source) {
    const read = compileBodyPlace(source, false);
    return { needsJson: false, read: (_, body) => toId(read(new BodyContent(body))) };
  }
  if (!('json' in source)) return undefined;
  const list = parseJsonListPath(source.json);
  if (list !== undefined)
    return {
      needsJson: true,
      read: (content) => toCommonId(readScalars(content, list.list.steps, list.item.steps)?.map(toId) ?? []),
    };
  const path = toPath(source.json);
  return { needsJson: true, read: (content) => toId(readScalar(content, path.steps)) };
}

/** Compiles the function that reads the ID from a token; undefined if it is not there. A text that is not an ID stands for one by its digest. */
function compileClaimId(source: IdSource | undefined): ((head: SignedHead) => string | undefined) | undefined {
  if (source === undefined || !('claim' in source)) return undefined;
  const read = compileClaim(source.claim);
  return ({ token }) => {
    const text = token === undefined ? undefined : toText(read(token.claims));
    if (text === undefined || text === '') return undefined;
    return VALID_ID.test(text) ? text : toDigestId(hash('sha256', text, 'base64url').slice(0, DIGEST_LENGTH));
  };
}

/** Compiles the function that reads a claim of a token. */
export function compileClaim(text: string): (claims: DecodedToken['claims']) => unknown {
  const path = toPath(text);
  return (claims) => readJsonPath(path, claims);
}

/** For several events in one delivery: one known event among new ones must not make the delivery a duplicate. */
function toCommonId(ids: readonly (string | undefined)[]): string | undefined {
  if (ids.length <= 1 || ids.includes(undefined)) return ids.length === 1 ? ids[0] : undefined;
  return toDigestId(toDigest([ids.join('\n')]));
}

/** Compiles the function that reads the timestamp from the body; undefined if it is not there, or was already read because it is signed. */
function compileTime({
  timestamp: time,
  signed,
}: SchemeDescription): ((content: Buffer) => EpochMilliseconds | { problem: string }) | undefined {
  if (time === undefined || !('json' in time.from) || signed.includes('timestamp')) return undefined;
  const { json } = time.from;
  const path = toPath(json);
  const format = TIMESTAMP_FORMATS[time.unit];
  return (content) =>
    format.parse(toText(readScalar(content, path.steps)) ?? '') ?? { problem: `${json} in the body is not ${format.form}` };
}

/** No path matches it. */
const NO_CONTENT = Buffer.alloc(0);

function toContent(body: Buffer): Buffer {
  return toJsonText(body) ?? NO_CONTENT;
}

/** The shape separates the signed pieces, so that nothing may come before it, such as a byte order mark. */
function findShapeProblem(shape: Shape | undefined, content: Buffer, body: Buffer): string | undefined {
  if (shape === undefined) return undefined;
  const first = String.fromCharCode(content[toWholeSpan(content).from] ?? 0);
  return content.length === body.length && shape.starts.includes(first) ? undefined : `the body is not ${shape.title}`;
}

/** Accepts only IDs that are safe in log lines and store keys. */
function toId(value: unknown): string | undefined {
  const text = toText(value);
  return text !== undefined && VALID_ID.test(text) ? text : undefined;
}

/** The text of a string or of an exact number. */
export function toText(value: unknown): string | undefined {
  // Above 2^53 JavaScript parses different numbers as equal, so two events would have the same ID.
  return typeof value === 'string' || Number.isSafeInteger(value) ? String(value) : undefined;
}

/** Identifies the event by the signed bytes, because its ID is absent or not signed. Each unsigned kind is a separate event. */
function identifyByContent(signed: Chunks, id: string | undefined, kind: string | undefined): Omit<EventIdentity, 'timestamp'> {
  const contentDigest = toDigest(signed);
  if (kind === undefined) return { id: id ?? toDigestId(contentDigest), digest: contentDigest };
  const digest = toDigest([...signed, `\0${kind}`]);
  return { id: id ?? toDigestId(digest), digest, contentDigest };
}

function toDigest(chunks: Chunks): string {
  const [only] = chunks;
  const bytes = chunks.length === 1 && Buffer.isBuffer(only) ? only : toBytes(chunks);
  return hash('sha256', bytes, 'base64url').slice(0, DIGEST_LENGTH);
}

// The contents by which deliveries of one event are compared: what the signature leaves open in the body and the target, without what is new in each
// attempt and means nothing to an app. Two messages that an app could read differently never become equal.

/** The contents that identify an event, besides its ID and the digest of what was signed (core/event.ts). */
interface Compared {
  readonly openContent?: Buffer;
  readonly lastingContent?: Buffer;
}

/** Compiles the function. `hasUnsignedId`: the event has an ID that the signature does not cover. */
export function compileCompared(
  description: SchemeDescription,
): (head: SignedHead, message: Message, hasUnsignedId: boolean) => Compared {
  const { perAttempt = [], signed } = description;
  // In a form as Twilio signs it, bytes can move between names and values.
  const isOpen = !coversBody(description) || signed.includes('form');
  const signedPlaces = signed.includes('form') ? [] : listSignedPlaces(description).filter(isBodyPlace);
  // Of what nobody signs, apps get what they get.
  const members = perAttempt.filter(isBodyPlace).filter((place) => !signedPlaces.some((other) => isSamePlace(other, place)));
  const values = [...listChanging(description), ...perAttempt].filter(isBodyPlace).filter((place) => !members.includes(place));
  const changing = [...values, ...members];
  const cutOpen = compileCut([...values, ...signedPlaces], members);
  const cutCovered = compileCut(values, members);
  const hasUnreadPlace = !coversBody(description) && !readsBody(description) && changing.length > 0;
  const listFields = compileFields(description);
  const isNewEachTime = description.timestamp !== undefined || perAttempt.length > 0;
  const toOpen = (message: Message): Buffer => (hasUnreadPlace && !isStrictJson(message.body) ? message.body : cutOpen(message));
  return (head, message, hasUnsignedId) => {
    const openContent = isOpen ? toOpen(message) : undefined;
    const open = openContent && { openContent };
    if (!hasUnsignedId || !(isNewEachTime || message.isMultipart === true)) return { ...open };
    const content = openContent ?? cutCovered(message);
    const fields = listFields(head);
    if (fields === undefined) return { ...open, lastingContent: content };
    // The end of the list is known, so the content begins at one place only.
    return { ...open, lastingContent: Buffer.concat([Buffer.from(JSON.stringify(fields)), content]) };
  };
}

/** Whether every parser reads the same from an unsigned body that the scheme did not read before the verification. */
function isStrictJson(body: Buffer): boolean {
  return parseStrictJson(body, JSON_BOUNDS).kind === 'value';
}

/** The places of the signature, and of a signed time. */
function listChanging(description: SchemeDescription): object[] {
  const { signature, timestamp } = description;
  const from = timestamp?.from ?? {};
  const isCovered = isBodyPlace(from) ? coversBody(description) : 'query' in from && coversQuery(description);
  const isSigned = isCovered || listSignedPlaces(description).some((place) => isSamePlace(place, from));
  const inBody = signature && toSignaturePlace(signature);
  const inQuery = signature?.query === undefined ? [] : [{ query: signature.query }];
  return [...(inBody === undefined ? [] : [inBody]), ...inQuery, ...(isSigned ? [from] : [])];
}

function isSamePlace(a: object, b: object): boolean {
  const names = ['json', 'form', 'path', 'query', 'header', 'signaturePart'];
  return JSON.stringify(a, names) === JSON.stringify(b, names);
}

/** The signed fields without those that are new in each attempt; undefined if there are none. */
function compileFields(description: SchemeDescription): (head: SignedHead) => readonly (string | undefined)[] | undefined {
  const changing = [description.timestamp?.from ?? {}, ...(description.perAttempt ?? [])];
  const headers = changing.flatMap((place) => ('header' in place ? [String(place.header).toLowerCase()] : []));
  const readers = description.signed.filter(isRead).map((piece) => {
    if ('headersIn' in piece) return (text: string | undefined) => text && headers.reduce(blankHeader, text);
    // The content has all of them.
    const isOmitted = 'sortedForm' in piece || changing.some((place) => isSamePlace(place, piece));
    return (text: string | undefined) => (isOmitted ? undefined : text);
  });
  if (readers.length === 0) return () => undefined;
  return ({ fields = [] }) => readers.map((read, at) => read(fields[at]));
}

/** Compiles the target without signed values and the signature, with the headers to compare; undefined if a scheme has none of both. */
export function compileOpenHead(description: SchemeDescription): ((target: string, headers: HeaderFields) => string) | undefined {
  const places = [...listChanging(description), ...(description.perAttempt ?? []), ...listSignedPlaces(description)];
  const cuts = new Map(places.flatMap((place) => ('query' in place ? [[String(place.query), true as const] as const] : [])));
  // A kind in another spelling is the same event, but an app may not know it.
  const names = new Set([...(description.comparedHeaders ?? []), ...(description.kind ?? [])].map(toFoldedName));
  if (cuts.size === 0 && names.size === 0) return undefined;
  return (target, headers) => {
    const query = cuts.size === 0 ? undefined : toQuery(target);
    const open =
      query === undefined
        ? target
        : target.slice(0, target.length - query.length) + cutPairs(query, parseStrictQuery(query), cuts);
    // No target contains a space.
    return names.size === 0 ? open : `${open} ${JSON.stringify(listForwarded(headers, (name) => names.has(toFoldedName(name))))}`;
  };
}
