/** The ways in which senders write the URL that they sign. */
import { hash } from 'node:crypto';
import { isEqualInConstantTime, parseHex } from '../../core/bytes.ts';
import type { SchemeDescription } from './description.ts';
import type { Message } from './scheme.ts';

const DEFAULT_PORTS: Readonly<Record<string, string>> = { 'https:': '443', 'http:': '80' };
const ORIGIN = /^(https?:)\/\/([^/:?#]+|\[[^\]]+\])(:[0-9]+)?(?=[/?#]|$)/i;

/** Compiles the forms to try of a URL; most senders have one. */
export function compileUrlForms({ isPortOptional, decodedInUrl }: SchemeDescription): (url: string) => readonly string[] {
  if (decodedInUrl !== undefined) {
    const escapes = new RegExp([...decodedInUrl].map((c) => `%${c.charCodeAt(0).toString(16).padStart(2, '0')}`).join('|'), 'gi');
    return (url) => [url.replace(escapes, (escaped) => String.fromCharCode(Number.parseInt(escaped.slice(1), 16)))];
  }
  return isPortOptional === true ? toPortForms : (url) => [url];
}

/** With the port as it stands, and the other way round: Twilio writes it or leaves it out, by what the number's settings say. */
function toPortForms(url: string): string[] {
  const [origin, scheme = '', host = '', port] = ORIGIN.exec(url) ?? [];
  if (origin === undefined) return [url];
  const other = port === undefined ? `:${DEFAULT_PORTS[scheme.toLowerCase()]}` : '';
  return [url, `${scheme}//${host}${other}${url.slice(origin.length)}`];
}

const DIGEST_LENGTH = 64;

/**
 * Whether the query's digest is the content's; undefined where the query does not end with one. Elsewhere it says nothing: text of
 * a form, which anybody may have written, can be passed off as a part of the query, but never as its end.
 */
export function toContentDigest({ url, body }: Message, parameter: string): boolean | undefined {
  const digits = url.slice(-DIGEST_LENGTH);
  const before = url.slice(0, -DIGEST_LENGTH);
  if (!before.endsWith(`?${parameter}=`) && !before.endsWith(`&${parameter}=`)) return undefined;
  // Twice there, who reads the URL behind us may go by the other.
  const digest = before.indexOf(`${parameter}=`) === before.lastIndexOf(`${parameter}=`) ? parseHex(digits) : undefined;
  return digest !== undefined && isEqualInConstantTime(digest, hash('sha256', body, 'buffer'));
}
