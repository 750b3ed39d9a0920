/** The ways in which senders write the URL that they sign. */
import { hash } from 'node:crypto';
import { isEqualInConstantTime, parseHex } from '../core/bytes.ts';
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

/** Whether the query's digest is the content's; undefined where the query has none. */
export function toContentDigest({ url, body }: Message, parameter: string): boolean | undefined {
  const mark = url.indexOf('?');
  if (mark === -1) return undefined;
  const found = new URLSearchParams(url.slice(mark + 1)).getAll(parameter);
  if (found.length === 0) return undefined;
  const digest = found.length === 1 ? parseHex(found[0] as string) : undefined;
  return digest !== undefined && isEqualInConstantTime(digest, hash('sha256', body, 'buffer'));
}
