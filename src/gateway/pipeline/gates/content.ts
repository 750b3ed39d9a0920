/** Checks, by the header fields alone and before the body is read, whether the route accepts the content. */

import { isExactValue, type MediaType, NO_MEDIA_TYPE, parseMediaType, toEssence, toMediaForm } from '../../../core/media-type.ts';
import type { ParsedHead } from '../../../core/parsed-head.ts';
import { Refusal, refuse } from '../../../core/refusal.ts';
import type { BodyCheck, ContentGate } from './gate.ts';
import { compileBodyCheck } from './media-type.ts';

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
const UNSUPPORTED = refuse('unsupported_media_type', 'unsupported_media_type');

function compileTypeCheck({
  contentTypes: accepted,
  bindsMediaType,
  checksBody,
  mayBeEmpty,
}: ContentOptions): (head: ParsedHead) => BodyCheck | Refusal {
  const contentTypes = accepted.filter((each) => each !== NO_MEDIA_TYPE);
  const acceptsNone = contentTypes.length < accepted.length;
  const essences = new Set(contentTypes.filter((each) => !isExactValue(each)));
  const toBodyCheck = checksBody ? compileBodyCheck(contentTypes) : () => acceptBody;
  const common = compileCommonTypes(essences, toBodyCheck);
  const exact = compileExactValues(contentTypes.filter(isExactValue), toBodyCheck);
  const checkValue = (contentType: string): BodyCheck | Refusal => {
    const checkExact = exact?.get(contentType.toLowerCase());
    if (checkExact === undefined && !essences.has(toEssence(contentType))) return UNSUPPORTED;
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
    return isAccepted ? requireEmptyBody : UNSUPPORTED;
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
