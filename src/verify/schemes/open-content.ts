/**
 * Compares the deliveries of one event: what the signature leaves open in the body and the target, without what is new in each attempt
 * and means nothing to an app. Two messages that an app could read differently never become equal.
 */
import type { SignedHead } from '../../core/event.ts';
import { type HeaderFields, listForwarded, toFoldedName } from '../../core/headers.ts';
import { parseStrictJson } from '../../core/strict-json.ts';
import { toSignaturePlace } from './body-head.ts';
import { isBodyPlace, JSON_BOUNDS } from './body-values.ts';
import { coversBody, coversQuery, listSignedPlaces, readsBody } from './coverage.ts';
import type { SchemeDescription } from './description.ts';
import { blankHeader } from './header-list.ts';
import { isRead } from './layout.ts';
import { compileCut, cutPairs } from './removal.ts';
import type { Message } from './scheme.ts';
import { parseStrictQuery } from './strict-form.ts';
import { toQuery } from './url.ts';

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
