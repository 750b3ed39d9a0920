/**
 * Checks, by the header fields alone and before the body is read, whether the route accepts the content. After the verification, checks
 * that the body is of the media type that the request names, because the signature covers only the body.
 */
import { isUtf8 } from 'node:buffer';
import { BYTE_ORDER_MARK, canBeForm, findFirstByte, MIN_NON_UTF_8 } from '../../../core/bytes.ts';
import { isExactValue, type MediaType, NO_MEDIA_TYPE, parseMediaType, toEssence, toMediaForm } from '../../../core/head.ts';
import { isJson } from '../../../core/json-scan.ts';
import { Refusal, refuse } from '../../../core/refusal.ts';
import type { ParsedHead } from '../../../core/request.ts';
import type { BodyCheck, ContentGate } from './gate.ts';

/** The content that the route accepts. */
interface ContentOptions {
  /** Media types, lower case: with parameters for exact values of the header; `none` for empty requests without Content-Type. */
  readonly contentTypes: readonly string[];
  /** Maximum size of the content, in bytes. */
  readonly maxBody: number;
  readonly allowQuery: boolean;
  /** Whether the signature covers the query of requests by this method. Default: none. */
  readonly coversQueryOf?: (method: string) => boolean;
  readonly allowContentEncoding: boolean;
  /** The content is signed, so it must have only one interpretation: UTF-8, and no parameter that parsers disagree about. */
  readonly bindsMediaType: boolean;
  /** The verified body must be of the media type that the head names; not so for Amazon SNS, which sends JSON as text/plain. */
  readonly checksBody: boolean;
  /** Whether a request by this method needs no Content-Type if it is empty. Default: none. */
  readonly mayBeEmpty?: (method: string) => boolean;
}

const [DASH, LESS_THAN, BRACKET, BRACE] = [0x2d, 0x3c, 0x5b, 0x7b];

/** Checks the query, Content-Encoding, Content-Type and declared Content-Length. */
export function createContentGate(options: ContentOptions): ContentGate {
  const checkType = compileTypeCheck(options);
  return {
    check(head) {
      // The signature covers neither, so an attacker with one valid delivery could change them at will.
      const allowsQuery = options.allowQuery || options.coversQueryOf?.(head.method) === true;
      if (head.target.query !== undefined && !allowsQuery) return refuse('malformed_request', 'query_not_signed');
      if (!options.allowContentEncoding && isEncoded(head)) return refuse('unsupported_media_type', 'content_encoding');
      const checkBody = checkType(head);
      if (checkBody instanceof Refusal) return checkBody;
      const { declaredLength } = head.body;
      if (declaredLength !== undefined && declaredLength > options.maxBody) return refuse('body_too_large', 'body_too_large');
      return checkBody;
    },
  };
}

/** An app would guess the type of a body, so somebody with a captured delivery must not be able to take its type away. */
const requireEmptyBody: BodyCheck = (body) =>
  body.length === 0 ? undefined : refuse('unsupported_media_type', 'unsupported_media_type', 'a body without Content-Type');

const acceptBody: BodyCheck = () => undefined;

function compileTypeCheck({
  contentTypes: accepted,
  bindsMediaType,
  checksBody,
  mayBeEmpty,
}: ContentOptions): (head: ParsedHead) => BodyCheck | Refusal {
  const contentTypes = accepted.filter((each) => each !== NO_MEDIA_TYPE);
  const acceptsNone = contentTypes.length < accepted.length;
  const unsupported = refuse('unsupported_media_type', 'unsupported_media_type', {
    detail: `accepted: ${accepted.join(', ')}`,
    ...(contentTypes.length > 0 && { accept: contentTypes }),
  });
  const essences = new Set(contentTypes.filter((each) => !isExactValue(each)));
  const toBodyCheck = checksBody ? compileBodyCheck(contentTypes) : () => acceptBody;
  const common = compileCommonTypes(essences, toBodyCheck);
  const exact = compileExactValues(contentTypes.filter(isExactValue), toBodyCheck);
  const checkValue = (contentType: string): BodyCheck | Refusal => {
    const checkExact = exact?.get(contentType.toLowerCase());
    if (checkExact === undefined && !essences.has(toEssence(contentType))) return unsupported;
    if (!bindsMediaType) return acceptBody;
    const known = checkExact ?? common.get(contentType);
    if (known !== undefined) return known;
    const mediaType = parseMediaType(contentType);
    if ('problem' in mediaType) return refuse('unsupported_media_type', 'unsupported_media_type', mediaType.problem);
    return toBodyCheck(mediaType);
  };
  return ({ headers, body, method }) => {
    if (headers.count('content-type') > 1) return refuse('malformed_request', 'malformed', 'repeated Content-Type');
    const contentType = headers.get('content-type');
    if (contentType !== undefined) return checkValue(contentType);
    // The length of a chunked body is known only when it ends.
    const isAccepted = (acceptsNone || mayBeEmpty?.(method) === true) && (body.declaredLength ?? 0) === 0;
    return isAccepted ? requireEmptyBody : unsupported;
  };
}

/** Prepared checks for the values that nearly all senders use, which then need no parsing. */
function compileCommonTypes(
  essences: Iterable<string>,
  toBodyCheck: (mediaType: MediaType) => BodyCheck,
): ReadonlyMap<string, BodyCheck> {
  const found = new Map<string, BodyCheck>();
  for (const essence of essences) {
    const form = toMediaForm(essence);
    if (form === 'multipart') continue;
    for (const parameters of ['', '; charset=utf-8', ';charset=utf-8', '; charset=UTF-8', ';charset=UTF-8'])
      found.set(essence + parameters, toBodyCheck({ essence, form, boundary: undefined }));
  }
  return found;
}

/** Values that are accepted as they are, because a sender writes them and no other; the body is checked as for the type before the `;`. */
function compileExactValues(
  values: readonly string[],
  toBodyCheck: (mediaType: MediaType) => BodyCheck,
): ReadonlyMap<string, BodyCheck> | undefined {
  if (values.length === 0) return undefined;
  return new Map(
    values.map((value) => [value, toBodyCheck({ essence: toEssence(value), form: toMediaForm(value), boundary: undefined })]),
  );
}

/** `identity` means no encoding (RFC 9110 §12.5.3): the app reads exactly the bytes that were signed. */
function isEncoded({ headers }: ParsedHead): boolean {
  if (headers.count('content-encoding') > 1) return true;
  const coding = headers.get('content-encoding');
  return coding !== undefined && coding.trim().toLowerCase() !== 'identity';
}

/**
 * For verified bodies only. Without the check a captured delivery could be replayed with another media type, and an attacker's text
 * in its JSON, such as a comment, would be parsed as form parameters.
 */
export function compileBodyCheck(contentTypes: readonly string[]): (mediaType: MediaType) => BodyCheck {
  const hasSeveralForms = new Set(contentTypes.map(toMediaForm)).size > 1;
  return (mediaType) => (body) => {
    const problem = findMismatch(mediaType, body, hasSeveralForms);
    return problem === undefined ? undefined : refuse('unsupported_media_type', 'unsupported_media_type', problem);
  };
}

/** Why content is not of the media type; `hasSeveralForms`: the route accepts others too, so the app may choose its parser by the header. */
function findMismatch({ form, boundary }: MediaType, body: Buffer, hasSeveralForms: boolean): string | undefined {
  if (form === 'json') return findJsonProblem(body, hasSeveralForms);
  if (form === 'multipart') return isBoundedBy(body, boundary ?? '') ? undefined : 'the content does not begin with its boundary';
  if (form === 'form') return canBeForm(body) ? undefined : 'the content is not a form';
  if (!hasSeveralForms) return undefined;
  const first = findFirstByte(body);
  if (form === 'xml') return first === LESS_THAN ? undefined : 'the content is not XML';
  return first === BRACE || first === BRACKET ? 'the content is JSON, but Content-Type names another media type' : undefined;
}

function findJsonProblem(body: Buffer, hasSeveralForms: boolean): string | undefined {
  // Parsers that guess the encoding of JSON, such as Python's, look for NUL in the first two bytes (RFC 4627 §3).
  if (body[0] === 0 || body[1] === 0) return 'the JSON content is not UTF-8';
  if ((body[0] ?? 0) >= MIN_NON_UTF_8) return 'the JSON content is not UTF-8';
  if (startsWith(body, BYTE_ORDER_MARK)) return 'the JSON content begins with a byte order mark';
  const first = findFirstByte(body);
  if (!hasSeveralForms || first === undefined || first === BRACE || first === BRACKET) return undefined;
  // A JSON string, number or literal is rare, and cannot be confused with a form.
  return isOtherForm(body, first) && !(isUtf8(body) && isJson(body)) ? 'the content is not JSON' : undefined;
}

/** XML, multipart content or parameters: an app that parses them as JSON finds nothing, and may report success. */
function isOtherForm(body: Buffer, first: number): boolean {
  return first === LESS_THAN || first === DASH || body.includes('=');
}

/** No preamble, and the whole first line: the parameter is not signed, and another boundary would yield other parts. */
function isBoundedBy(body: Buffer, boundary: string): boolean {
  return startsWith(body, Buffer.from(`--${boundary}\r\n`, 'latin1'));
}

function startsWith(body: Buffer, start: Buffer): boolean {
  return body[0] === start[0] && body.subarray(0, start.length).equals(start);
}
