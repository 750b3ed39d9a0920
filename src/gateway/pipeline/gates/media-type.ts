/** Checks that the verified body is of the media type that the request names: the signature covers only the body. */
import { type MediaType, toMediaForm } from '../../../core/media-type.ts';
import { refuse } from '../../../core/refusal.ts';
import type { BodyCheck } from './gate.ts';

const [QUOTE, DASH, LESS_THAN, BRACKET, BRACE] = [0x22, 0x2d, 0x3c, 0x5b, 0x7b];
const NO_FORM_STARTS = new Set([0, QUOTE, DASH, LESS_THAN, BRACKET, BRACE]);
/** Tab, line feed, vertical tab, form feed, carriage return and space. */
const WHITE_SPACE = new Set([0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x20]);
/** All bytes of UTF-8 are lower; the byte order marks of UTF-16 begin with 0xfe or 0xff. */
const MIN_NON_UTF_8 = 0xfe;
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);

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
  const first = findFirstByte(body);
  if (form === 'form') return first !== undefined && cannotStartForm(first) ? 'the content is not a form' : undefined;
  if (!hasSeveralForms) return undefined;
  if (form === 'xml') return first === LESS_THAN ? undefined : 'the content is not XML';
  return first === BRACE || first === BRACKET ? 'the content is JSON, but Content-Type names another media type' : undefined;
}

/** Beginnings of JSON, XML, a multipart boundary, and other encodings than UTF-8: a parameter's name begins with none of them. */
function cannotStartForm(byte: number): boolean {
  return NO_FORM_STARTS.has(byte) || byte >= MIN_NON_UTF_8;
}

function findJsonProblem(body: Buffer, hasSeveralForms: boolean): string | undefined {
  // Parsers that guess the encoding of JSON, such as Python's, look for NUL in the first two bytes (RFC 4627 §3).
  if (body[0] === 0 || body[1] === 0) return 'the JSON content is not UTF-8';
  if ((body[0] ?? 0) >= MIN_NON_UTF_8) return 'the JSON content is not UTF-8';
  if (startsWith(body, BYTE_ORDER_MARK)) return 'the JSON content begins with a byte order mark';
  const first = findFirstByte(body);
  if (!hasSeveralForms || first === undefined || first === BRACE || first === BRACKET) return undefined;
  return isOtherForm(body, first) && !isJson(body) ? 'the content is not JSON' : undefined;
}

/** XML, multipart content or parameters: an app that parses them as JSON finds nothing, and may report success. */
function isOtherForm(body: Buffer, first: number): boolean {
  return first === LESS_THAN || first === DASH || body.includes('=');
}

/** A JSON string, number or literal: rare, and cannot be confused with a form. */
function isJson(body: Buffer): boolean {
  try {
    JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body));
    return true;
  } catch {
    return false;
  }
}

/** No preamble, and the whole first line: the parameter is not signed, and another boundary would yield other parts. */
function isBoundedBy(body: Buffer, boundary: string): boolean {
  return startsWith(body, Buffer.from(`--${boundary}\r\n`, 'latin1'));
}

function startsWith(body: Buffer, start: Buffer): boolean {
  return body[0] === start[0] && body.subarray(0, start.length).equals(start);
}

/** The first byte that is not white space, after an optional byte order mark. */
function findFirstByte(body: Buffer): number | undefined {
  let at = startsWith(body, BYTE_ORDER_MARK) ? BYTE_ORDER_MARK.length : 0;
  while (at < body.length && WHITE_SPACE.has(body[at] ?? 0)) at++;
  return body[at];
}
