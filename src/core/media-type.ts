/** Parses Content-Type (RFC 9110 §8.3) strictly: a value that two parsers could interpret differently is a problem. */

/** How an app parses a body of a media type. */
export type MediaForm = 'json' | 'form' | 'multipart' | 'text' | 'xml' | 'other';

/** A media type whose parameters, except the boundary, do not change how a body is parsed. */
export interface MediaType {
  /** type/subtype, lower case. */
  readonly essence: string;
  readonly form: MediaForm;
  /** Set only for multipart bodies. */
  readonly boundary: string | undefined;
}

/** Why a value is rejected; safe to log. */
interface MediaTypeProblem {
  readonly problem: string;
}

const ESSENCE = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+\/[!#$%&'*+.^_`|~0-9A-Za-z-]+/;
/** One parameter, or none: `a/b;` is a media type (RFC 9110 §5.6.6). Longer values are rejected, so that matching stays cheap. */
const PARAMETER =
  /[\t ]*;[\t ]*(?:([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64})=(?:([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256})|"([ !#-[\]-~]{0,256})"))?/y;
/** RFC 2046 §5.1.1. */
const BOUNDARY = /^[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]$/;
const MAX_PARAMETERS = 8;
/** A boundary of which all parsers read the same: unquoted, without characters that mean something in the header or in a delimiter. */
const PLAIN_BOUNDARY = /^[\t ]*boundary=([-0-9A-Za-z_.]{0,69}[0-9A-Za-z])$/;
/** Two names of one encoding (Encoding Standard §4.2). */
const UTF_8 = new Set(['utf-8', 'utf8']);

/** One JSON value on each line; one line alone is JSON. */
const JSON_LINES = new Set(['application/x-ndjson', 'application/ndjson', 'application/jsonl']);

/** The media type without parameters (RFC 9110 §8.3.1), lower case. */
export function toEssence(value: string): string {
  const end = value.indexOf(';');
  return (end === -1 ? value : value.slice(0, end)).trim().toLowerCase();
}

/**
 * The Content-Type without the boundary of a multipart body, which is new in each attempt; undefined if there is none, or if two parsers
 * could read another one: `xboundary=a; boundary=b`.
 */
export function cutBoundary(value: string): string | undefined {
  if (!value.includes(';') || value.includes('"') || toMediaForm(value) !== 'multipart') return undefined;
  const isBoundary = (part: string): boolean => /boundary/i.test(part);
  const parts = value.split(';');
  const at = parts.findIndex(isBoundary);
  const boundary = PLAIN_BOUNDARY.exec(parts[at] ?? '')?.[1];
  if (boundary === undefined || parts.findLastIndex(isBoundary) !== at) return undefined;
  return parts.with(at, (parts[at] ?? '').slice(0, -boundary.length)).join(';');
}

/** The values of Content-Type as they are compared: apps choose parsers by any part of them. */
export function toComparedType(values: readonly string[]): readonly string[] {
  const [value = ''] = values;
  return values.length === 1 ? [cutBoundary(value) ?? value] : values;
}

/** How a body of a media type is parsed; an entry of `contentTypes` may have parameters, which do not matter. */
export function toMediaForm(mediaType: string): MediaForm {
  const essence = toEssence(mediaType);
  if (essence === 'application/json' || essence.endsWith('+json') || JSON_LINES.has(essence)) return 'json';
  if (essence === 'application/x-www-form-urlencoded') return 'form';
  if (essence.startsWith('multipart/')) return 'multipart';
  if (essence === 'application/xml' || essence === 'text/xml' || essence.endsWith('+xml')) return 'xml';
  return essence.startsWith('text/') ? 'text' : 'other';
}

/**
 * Parses the media type of a body that must have only one interpretation. The signature does not cover Content-Type: with another
 * charset, or with a parameter that only some parsers support, the same bytes are a different message.
 */
export function parseMediaType(value: string): MediaType | MediaTypeProblem {
  const essence = ESSENCE.exec(value)?.[0];
  if (essence === undefined) return { problem: 'Content-Type is not type/subtype' };
  const parameters = parseParameters(value, essence.length);
  if ('problem' in parameters) return parameters;
  const charset = parameters.values.get('charset');
  if (charset !== undefined && !UTF_8.has(charset.toLowerCase())) return { problem: 'the charset is not utf-8' };
  if (hasHiddenCharset(parameters.values)) return { problem: 'Content-Type names a charset in another parameter' };
  const type = essence.toLowerCase();
  const form = toMediaForm(type);
  if (form !== 'multipart') return { essence: type, form, boundary: undefined };
  const boundary = parameters.values.get('boundary');
  if (boundary === undefined || !BOUNDARY.test(boundary)) return { problem: 'the boundary is missing or malformed (RFC 2046)' };
  return { essence: type, form, boundary };
}

/** Some parsers search the whole value for `charset=`, and find it in `x-charset=utf-7` and in `x="charset=utf-7"`. */
function hasHiddenCharset(parameters: ReadonlyMap<string, string>): boolean {
  return [...parameters].some(([name, value]) => name !== 'charset' && /charset/i.test(name + value));
}

function parseParameters(value: string, start: number): { readonly values: ReadonlyMap<string, string> } | MediaTypeProblem {
  const values = new Map<string, string>();
  for (let at = start; at < value.length; at = PARAMETER.lastIndex) {
    PARAMETER.lastIndex = at;
    const match = PARAMETER.exec(value);
    if (match === null || values.size === MAX_PARAMETERS) return { problem: 'the parameters of Content-Type are malformed' };
    const [, name, token, quoted] = match;
    if (name === undefined) continue;
    // RFC 2231: Python and others read the charset from `charset*=utf-7''…`, or from `charset*0=utf` and `charset*1=-7`.
    if (name.includes('*')) return { problem: 'Content-Type has an extended parameter (RFC 2231)' };
    const key = name.toLowerCase();
    if (values.has(key)) return { problem: 'Content-Type repeats a parameter' };
    values.set(key, token ?? quoted ?? '');
  }
  return { values };
}

/** In `contentTypes`: requests without Content-Type, which must be empty. */
export const NO_MEDIA_TYPE = 'none';

/** An entry of `contentTypes` with parameters is the exact value of a header, in lower case; it need not follow the grammar. */
export function isExactValue(contentType: string): boolean {
  return contentType.includes(';');
}

/** Picks the first of a route's media types that fits the body, or the first one if none fits; undefined if there is nothing to name. */
export function pickMediaType(contentTypes: readonly string[], body: Buffer): string | undefined {
  const mediaTypes = contentTypes.filter((each) => each !== NO_MEDIA_TYPE);
  if (body.length === 0 && mediaTypes.length < contentTypes.length) return undefined;
  const [first = 'application/json'] = mediaTypes;
  const isJson = /^[\s]*[{[]/.test(body.subarray(0, 64).toString('latin1'));
  const wanted: MediaForm | undefined = isJson ? 'json' : body.includes('=') ? 'form' : undefined;
  return mediaTypes.find((each) => toMediaForm(each) === wanted) ?? first;
}
