/** Content-Type (RFC 9110 §8.3), read strictly: a value that two parsers could read in two ways is a problem. */

/** How an app reads content of a media type. */
export type MediaForm = 'json' | 'form' | 'multipart' | 'text' | 'xml' | 'other';

/** A media type whose parameters change nothing about how its content is read, but for the boundary. */
export interface MediaType {
  /** type/subtype, lower case. */
  readonly essence: string;
  readonly form: MediaForm;
  /** Of multipart content only. */
  readonly boundary: string | undefined;
}

/** Why a value is no such media type; safe to log. */
export interface MediaTypeProblem {
  readonly problem: string;
}

const ESSENCE = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+\/[!#$%&'*+.^_`|~0-9A-Za-z-]+/;
/** One parameter, or none: `a/b;` is a media type (RFC 9110 §5.6.6). Longer values are rejected, so that nothing here is costly. */
const PARAMETER =
  /[\t ]*;[\t ]*(?:([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64})=(?:([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256})|"([ !#-[\]-~]{0,256})"))?/y;
/** RFC 2046 §5.1.1. */
const BOUNDARY = /^[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]$/;
const MAX_PARAMETERS = 8;
/** Two names of one encoding (Encoding Standard §4.2). */
const UTF_8 = new Set(['utf-8', 'utf8']);

/** How content of a media type (type/subtype, lower case) is read. */
export function toMediaForm(essence: string): MediaForm {
  if (essence === 'application/json' || essence.endsWith('+json')) return 'json';
  if (essence === 'application/x-www-form-urlencoded') return 'form';
  if (essence.startsWith('multipart/')) return 'multipart';
  if (essence === 'application/xml' || essence === 'text/xml' || essence.endsWith('+xml')) return 'xml';
  return essence.startsWith('text/') ? 'text' : 'other';
}

/**
 * Reads a value for content that must be read in one way only. The signature does not cover Content-Type: with another charset, or with
 * a parameter that only some parsers take, the same bytes are another message.
 */
export function parseMediaType(value: string): MediaType | MediaTypeProblem {
  const essence = ESSENCE.exec(value)?.[0];
  if (essence === undefined) return { problem: 'Content-Type is not type/subtype' };
  const parameters = parseParameters(value, essence.length);
  if ('problem' in parameters) return parameters;
  const charset = parameters.values.get('charset');
  if (charset !== undefined && !UTF_8.has(charset.toLowerCase())) return { problem: 'the charset is not utf-8' };
  const type = essence.toLowerCase();
  const form = toMediaForm(type);
  if (form !== 'multipart') return { essence: type, form, boundary: undefined };
  const boundary = parameters.values.get('boundary');
  if (boundary === undefined || !BOUNDARY.test(boundary)) return { problem: 'the boundary is missing or malformed (RFC 2046)' };
  return { essence: type, form, boundary };
}

function parseParameters(value: string, start: number): { readonly values: ReadonlyMap<string, string> } | MediaTypeProblem {
  const values = new Map<string, string>();
  for (let at = start; at < value.length; at = PARAMETER.lastIndex) {
    PARAMETER.lastIndex = at;
    const match = PARAMETER.exec(value);
    if (match === null || values.size === MAX_PARAMETERS) return { problem: 'the parameters of Content-Type are malformed' };
    const [, name, token, quoted] = match;
    if (name === undefined) continue;
    // RFC 2231: Python and others take `charset*=utf-7''…`, or `charset*0=utf` and `charset*1=-7`, for the charset.
    if (name.includes('*')) return { problem: 'Content-Type has an extended parameter (RFC 2231)' };
    const key = name.toLowerCase();
    if (values.has(key)) return { problem: 'Content-Type repeats a parameter' };
    values.set(key, token ?? quoted ?? '');
  }
  return { values };
}

/** Of the media types that a route takes, the first one that content can be; the first one of all where it is none. */
export function pickMediaType(contentTypes: readonly string[], body: Buffer): string {
  const [first = 'application/json'] = contentTypes;
  const isJson = /^[\s]*[{[]/.test(body.subarray(0, 64).toString('latin1'));
  const wanted: MediaForm | undefined = isJson ? 'json' : body.includes('=') ? 'form' : undefined;
  return contentTypes.find((each) => toMediaForm(each) === wanted) ?? first;
}
