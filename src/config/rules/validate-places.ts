/** The rules about where a signature is, what it covers, and by which algorithms it is computed. */

import { parseJsonPath } from '../../core/json-path.ts';
import { error, type Path, type Problem, warning } from '../../core/problem.ts';
import { ALGORITHMS } from '../../verify/schemes/algorithms.ts';
import { isBodyPlace } from '../../verify/schemes/body-values.ts';
import { coversBody, coversQuery, isFieldPiece, signsSortedForm } from '../../verify/schemes/coverage.ts';
import type { Algorithm, SchemeDescription, SignatureDescription, TimestampUnit } from '../../verify/schemes/description.ts';
import { toPieceTitle } from '../../verify/schemes/layout.ts';
import type { DedupConfig, WebhookConfig } from '../schema/config.ts';

const KEYED_DIGESTS: ReadonlySet<Algorithm> = new Set(['sha256-secret-first', 'sha256-secret-last']);

/** The settings of a route of the gate, or of a verifier of the library, whose safety depends on what is signed. */
export interface SignedRoute extends Pick<WebhookConfig, 'description' | 'scheme' | 'allowWeakDigest'> {
  readonly dedup: 'off' | Pick<DedupConfig, 'unsignedId' | 'onStoreError'>;
}

/** Reports what an attacker can change under a signature, and settings with which a captured signature counts more than once. */
export function checkCoverage({ description, dedup, scheme }: SignedRoute, path: Path): Problem[] {
  const { signed, unsignedBody } = description;
  if (signed.length === 0 || coversBody(description)) {
    const message = 'the signature covers the whole body';
    return unsignedBody === undefined ? [] : [error([...path, 'custom', 'unsignedBody'], message, 'remove unsignedBody')];
  }
  if (unsignedBody === undefined) return [];
  return [
    warning([...path, 'scheme'], toCoverageText(description, scheme), 'let the app check by the API of the sender what matters'),
    ...checkOnce(dedup, scheme, [...path, 'dedup']),
  ];
}

/** If the body is not signed, only dedup stops a second body with the same signature. */
function* checkOnce(dedup: SignedRoute['dedup'], scheme: string, path: Path): Iterable<Problem> {
  const reuse = 'one captured signature is valid for any number of other bodies';
  if (dedup === 'off') {
    yield error(path, `${scheme} does not sign the whole body: without dedup, ${reuse}`, 'use dedup');
    return;
  }
  if (dedup.unsignedId === 'trust')
    yield error([...path, 'unsignedId'], `${scheme} does not sign the ID: with trust, ${reuse}`, 'unsignedId: check');
  if (dedup.onStoreError === 'forward')
    yield error(
      [...path, 'onStoreError'],
      `${scheme} does not sign the whole body: while the store is down, ${reuse}`,
      'onStoreError: refuse, and the sender retries',
    );
}

function toCoverageText({ signed, timestamp, id }: SchemeDescription, scheme: string): string {
  const places = signed.flatMap((piece) => {
    if (piece === 'timestamp') return timestamp === undefined || 'entry' in timestamp.from ? [] : [timestamp.from];
    if (piece === 'id') return id === undefined || 'xml' in id ? [] : [id];
    return isFieldPiece(piece) ? [piece] : [];
  });
  const names = places.filter(isBodyPlace).map(toPieceTitle).join('; ');
  const covered = names === '' ? 'no part of the body' : `only these parts of the body: ${names}`;
  return `${scheme} signs ${covered}. Anyone who captured a delivery that the app has not handled yet can change the rest`;
}

/** Everything wrong with a scheme that somebody wrote. */
export function* checkDescription(description: SchemeDescription, path: Path): Iterable<Problem> {
  const { signed, signature } = description;
  const isToken = signature?.forms.some(({ algorithm }) => algorithm === 'token') === true;
  if (isToken !== (signature?.encoding === 'text'))
    yield error(
      [...path, 'signature', 'encoding'],
      'encoding: text and algorithm: token require each other',
      'encoding: text, with algorithm: token',
    );
  const { secret, contentDigestParameter } = description;
  if (isToken && (secret.encoding !== 'utf8' || secret.digest !== undefined))
    yield error([...path, 'secret'], 'a token is compared with the secret as it is', 'remove encoding and digest');
  if (contentDigestParameter !== undefined && !coversQuery(description))
    yield error(
      [...path, 'contentDigestParameter'],
      'the URL is not signed, so anyone could write the digest of another body into it',
      'signed: [url, form]',
    );
  if (isToken && signed.length > 0) yield error([...path, 'signed'], 'a token does not sign anything', 'signed: []');
  if (!isToken && description.jwt === undefined && !coversContent(description))
    yield error(
      [...path, 'signed'],
      'the body is not signed, so anyone could change it',
      'signed: [..., body]; or unsignedBody: true, if the sender signs only some fields, and you accept that',
    );
  yield* checkTimestamp(description, path);
  yield* checkPassable(description, path);
  yield* checkPlaces(description, path);
  yield* checkAlgorithms(description, path);
}

/** Rejects what no delivery can satisfy. */
function* checkPassable({ signature, signed, timestamp, contentShape }: SchemeDescription, path: Path): Iterable<Problem> {
  const { header = '', list, form, json, forms = [] } = signature ?? {};
  const no = 'so no delivery could be verified';
  if (list !== undefined && forms.length > 0 && forms.every(({ prefix }) => prefix.includes(list)))
    yield error(
      [...path, 'signature', 'list'],
      `each prefix in forms contains the separator, ${no}`,
      'remove list, or correct it',
    );
  const from = timestamp?.from;
  if (from !== undefined && 'header' in from && header !== '' && from.header.toLowerCase() === header.toLowerCase())
    yield error(
      [...path, 'timestamp'],
      `${header} would be needed twice, ${no}`,
      'timestamp: { entry: PREFIX }, or another header',
    );
  const signsForm = signed.some((piece) => piece === 'form' || (typeof piece === 'object' && 'form' in piece));
  if (signed.includes('form') && (form !== undefined || json !== undefined))
    yield error(
      [...path, 'signed'],
      `the signed form would contain its own signature, ${no}`,
      'sign the fields: [{ form: NAME }]',
    );
  if (contentShape !== undefined && signsForm)
    yield error([...path, 'contentShape'], `a form is not JSON, ${no}`, 'remove contentShape');
}

function* checkTimestamp(description: SchemeDescription, path: Path): Iterable<Problem> {
  const { signed, signature, timestamp } = description;
  if (signed.includes('timestamp') && timestamp === undefined)
    yield error(
      [...path, 'signed'],
      'the place of the signed timestamp is missing',
      'timestamp: { header: NAME } or { entry: PREFIX }',
    );
  if (timestamp !== undefined && !isTimeSigned(description))
    yield error(
      [...path, 'timestamp'],
      'the timestamp is not signed, so a replay could carry a new one',
      'remove timestamp, or sign it',
    );
  if (timestamp !== undefined && 'entry' in timestamp.from) yield* checkTimeEntry(timestamp.unit, signature?.list, path);
}

/** At least by a checksum, which has separate rules. */
function coversContent(description: SchemeDescription): boolean {
  return coversBody(description) || description.signed.includes('crc32') || description.unsignedBody !== undefined;
}

/** As a piece, as part of the whole body, or among the headers that the request lists as signed. */
function isTimeSigned(description: SchemeDescription): boolean {
  const { signed, timestamp } = description;
  if (timestamp === undefined || signed.includes('timestamp')) return true;
  if ('claim' in timestamp.from) return true;
  if ('json' in timestamp.from) return coversBody(description);
  return 'header' in timestamp.from && signed.some((piece) => typeof piece === 'object' && 'headersIn' in piece);
}

function checkTimeEntry(unit: TimestampUnit, list: string | undefined, path: Path): Problem[] {
  if (list === undefined) {
    const missing = 'the timestamp is an entry of a list, but the signature header is not a list';
    return [error([...path, 'signature', 'list'], missing, 'list: ","')];
  }
  if (unit !== 'http-date' || list === ';') return [];
  const message = 'an HTTP date contains a comma and spaces, so it cannot be an entry of a list that they separate';
  return [error([...path, 'timestamp', 'unit'], message, 'list: ";", if the sender separates the entries so')];
}

/** A CRC-32 is not a digest: four chosen bytes anywhere in another body give it the same one. Only the ID then stops a changed copy. */
export function* checkWeakDigest({ description, scheme, allowWeakDigest, dedup }: SignedRoute, path: Path): Iterable<Problem> {
  const { signed, timestamp } = description;
  if (signed.includes('receiverId')) {
    const message = `${scheme} signs the ID under which the sender knows the receiver`;
    yield error([...path, 'receiverId'], message, 'receiverId: the ID of the webhook at the sender');
    return;
  }
  const at = [...path, 'allowWeakDigest'];
  const isWeak = signed.includes('crc32') && !signed.includes('body');
  if (!isWeak && allowWeakDigest) yield warning(at, `${scheme} does not sign a CRC-32`, 'remove allowWeakDigest');
  if (!isWeak) return;
  const message = `${scheme} signs only a CRC-32 of the body, so anyone who has a signed delivery can send another body with its signature`;
  if (!allowWeakDigest) {
    yield error(at, message, 'allowWeakDigest: true, if the app reads the event from the API of the sender by its ID');
    return;
  }
  yield warning(at, `${message} until the delivery is handled`);
  if (dedup === 'off' || dedup.onStoreError === 'forward')
    yield error(
      [...path, 'dedup'],
      `${scheme} is safe only if each ID is accepted once`,
      'use dedup, without onStoreError: forward',
    );
  if (!signed.includes('id') || timestamp === undefined || !signed.includes('timestamp'))
    yield error(
      [...path, 'custom', 'signed'],
      'a CRC-32 is accepted only beside a signed ID and time',
      'signed: [id, timestamp, crc32]',
    );
}

/** The ID must be there where duplicates are identified by it. */
export function* checkId({ description, dedup, scheme }: SignedRoute, path: Path): Iterable<Problem> {
  const { id, signed } = description;
  const message = 'the signed ID must be in one place that is read before the signature is verified';
  if (signed.includes('id') && (id === undefined || 'xml' in id || ('json' in id && id.json.includes('[*]'))))
    yield error([...path, 'id'], message, 'id: { header: NAME }');
  const hint = 'set id: { json: $.id } or id: { header: NAME }, or switch dedup off';
  if (signed.length === 0 && id === undefined && dedup !== 'off')
    yield error(path, `${scheme} has no ID that identifies duplicates`, hint);
}

/** Whether the parts of the description fit together. */
function checkPlaces(description: SchemeDescription, path: Path): Problem[] {
  return [
    ...(description.jwt?.content === undefined ? checkSignaturePlace(description.signature, [...path, 'signature']) : []),
    ...checkSignatureParts(description, path),
    ...checkRemoval(description, [...path, 'signed']),
    ...checkOnlyFields(description, [...path, 'onlySignedFields']),
    ...checkContentField(description, [...path, 'contentField']),
    ...checkSortedForm(description, [...path, 'signed']),
  ];
}

function* checkSignaturePlace(signature: SignatureDescription | undefined, path: Path): Iterable<Problem> {
  if (signature === undefined) return;
  const { header, query, json, form, content, moreHeaders } = signature;
  const places = [header === '' ? undefined : header, query, json, form, content].filter((place) => place !== undefined);
  if (places.length === 0) yield error(path, 'the place of the signature is missing', 'signature: { header: X-Signature }');
  if (places.length === 0) return;
  if (places.length > 1) yield error(path, 'the signature has several places', 'name one of header, query, json and form');
  if (signature.path !== undefined && form === undefined)
    yield error([...path, 'path'], 'a path needs a form field', 'form: NAME; or json: PATH, if the body is JSON');
  if (moreHeaders !== undefined && header === '')
    yield error([...path, 'moreHeaders'], 'the signature is not in a header', 'name the first header in header');
  const { parts } = signature;
  if (parts !== undefined && parts.signature >= parts.count)
    yield error([...path, 'parts', 'signature'], 'the entries have no such part', 'count from 0');
}

/** Parts can be read only if a header has one signature: of several, an attacker could choose. */
function checkSignatureParts({ signature, signed, timestamp, id }: SchemeDescription, path: Path): Problem[] {
  const places: object[] = [...signed.filter(isFieldPiece), timestamp?.from ?? {}, id ?? {}];
  const used = places.flatMap((place) => ('signaturePart' in place ? [Number(place.signaturePart)] : []));
  if (used.length === 0) return [];
  const { parts, list, moreHeaders, header = '' } = signature ?? {};
  const hint = 'signature: { header: NAME, parts: { separator: ".", count: 2, signature: 1 } }';
  if (parts === undefined || header === '') return [error([...path, 'signature', 'parts'], 'the signature has no parts', hint)];
  if (list !== undefined || moreHeaders !== undefined)
    return [error([...path, 'signature', 'list'], 'parts of several signatures cannot be read', 'remove list and moreHeaders')];
  const wrong = used.find((part) => part >= parts.count || part === parts.signature);
  if (wrong === undefined) return [];
  return [error([...path, 'signature', 'parts'], `part ${wrong} is the signature, or does not exist`, 'count from 0')];
}

function* checkRemoval({ signature, signed, decodedInUrl }: SchemeDescription, path: Path): Iterable<Problem> {
  const isInBody = signature?.json !== undefined || signature?.form !== undefined;
  if (isInBody && (signed.includes('body') || signed.some((piece) => typeof piece === 'object' && 'bodySha256' in piece)))
    yield error(path, 'the body contains its own signature', 'signed: [bodyWithoutSignature]');
  if (signed.includes('bodyWithoutSignature') && (!isInBody || signature?.path !== undefined || !endsInMember(signature?.json)))
    yield error(path, 'the body has no field with the signature that could be removed', 'signature: { json: $.signature }');
  if (signature?.query !== undefined && (signed.includes('url') || signed.includes('target')))
    yield error(path, 'the URL contains its own signature', 'signed: [urlWithoutSignature]');
  if (signed.includes('urlWithoutSignature') && (signature?.query === undefined || decodedInUrl !== undefined))
    yield error(path, 'the URL has no parameter with the signature that could be removed', 'signature: { query: NAME }');
}

function endsInMember(json: string | undefined): boolean {
  const path = json === undefined ? undefined : parseJsonPath(json);
  return path === undefined || ('steps' in path && typeof path.steps.at(-1) === 'string');
}

function checkOnlyFields({ onlySignedFields, signed, signature }: SchemeDescription, path: Path): Problem[] {
  if (onlySignedFields === undefined) return [];
  const isForm = signed.some((piece) => isFieldPiece(piece) && 'form' in piece) && signature?.json === undefined;
  return isForm ? [] : [error(path, 'no form field is signed', 'signed: [{ form: NAME }]')];
}

function checkContentField({ contentField, signed }: SchemeDescription, path: Path): Problem[] {
  if (contentField === undefined || signed.includes('body')) return [];
  return [error(path, 'the body is not signed, so no field can take its place', 'signed: [body], or remove contentField')];
}

function checkSortedForm(description: SchemeDescription, path: Path): Problem[] {
  const { json, path: inField } = description.signature ?? {};
  if (!signsSortedForm(description) || (json === undefined && inField === undefined)) return [];
  return [error(path, 'sortedForm signs whole fields of a form', 'signature: { form: NAME } or { header: NAME }, without path')];
}

/** The kind of a key selects among the algorithms: secrets compute MACs or digests or are compared, key pairs verify. */
function* checkAlgorithms(description: SchemeDescription, root: Path): Iterable<Problem> {
  const path = [...root, 'signature', 'forms'];
  const algorithms = [...new Set(description.signature?.forms.map(({ algorithm }) => algorithm) ?? [])];
  const asymmetric = algorithms.filter((algorithm) => ALGORITHMS[algorithm].isAsymmetric);
  const secret = algorithms.filter((algorithm) => !ALGORITHMS[algorithm].isAsymmetric);
  // HMACs do not weaken each other; a token or a plain digest next to them would.
  const isMixed = secret.length > 1 && secret.some((algorithm) => !algorithm.startsWith('hmac-'));
  if (asymmetric.length > 1 || isMixed)
    yield error(
      path,
      'two algorithms use the same kind of key',
      'use at most one algorithm for key pairs; several for secrets only if all are HMACs',
    );
  // Other formats are recognized by their content.
  const { format, prefix = '' } = description.publicKey ?? {};
  if (asymmetric.length > 0 && secret.length > 0 && format === 'raw' && prefix === '')
    yield error(
      [...root, 'publicKey', 'prefix'],
      'without a prefix, a raw public key looks like a secret: anyone could sign with it by an HMAC',
      'publicKey: { prefix: … }, if the sender writes one; or format: spki, with the public key in PEM',
    );
  if (secret.includes('sha256-secret-first')) yield* checkExtension(description, path);
  if (secret.some((algorithm) => KEYED_DIGESTS.has(algorithm)))
    yield warning(path, 'SHA-256 of the secret and the body is not HMAC', 'use an HMAC, if the sender offers one');
}

/**
 * Length extension: who knows SHA-256(secret + message) can compute it for the message with certain bytes appended, without the secret.
 * They begin with 0x80 and contain zeros, so neither JSON nor a header, a URL or UTF-8 text can end with them (RFC 6151 §2).
 */
function checkExtension({ signed, contentShape }: SchemeDescription, path: Path): Problem[] {
  const hasBytes = signed.some((piece) => piece === 'body' || piece === 'bodyWithoutSignature' || piece === 'form');
  if (!hasBytes || (contentShape !== undefined && !signed.includes('form'))) return [];
  const message = 'with sha256-secret-first, an attacker can append bytes to the body of a captured delivery (length extension)';
  return [
    error(path, message, 'contentShape: json-object, if the sender sends nothing else; otherwise the signature is not secure'),
  ];
}
