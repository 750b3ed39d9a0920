/** The forms of a URL that senders may sign. */
import { hash } from 'node:crypto';
import { isEqualInConstantTime, parseHex } from '../../core/bytes.ts';
import type { Secret } from '../../core/secret.ts';
import type { SchemeDescription } from './description.ts';
import type { Message } from './scheme.ts';

const DEFAULT_PORTS: Readonly<Record<string, string>> = { 'https:': '443', 'http:': '80' };
/** The host may follow a user and a password. */
const ORIGIN = /^(https?:)\/\/((?:[^/?#@]*@)?(?:[^/:?#@]+|\[[^\]]+\]))(:[0-9]+)?(?=[/?#]|$)/i;

/** Compiles the function that lists the forms of a URL to try; most senders use one form. */
export function compileUrlForms({ isPortOptional, decodedInUrl }: SchemeDescription): (url: string) => readonly string[] {
  if (decodedInUrl !== undefined) {
    const escapes = new RegExp([...decodedInUrl].map((c) => `%${c.charCodeAt(0).toString(16).padStart(2, '0')}`).join('|'), 'gi');
    return (url) => [url.replace(escapes, (escaped) => String.fromCharCode(Number.parseInt(escaped.slice(1), 16)))];
  }
  return isPortOptional === true ? toPortForms : (url) => [url];
}

/** The URL with and without the default port: Twilio includes it or not, depending on the settings of the phone number. */
function toPortForms(url: string): string[] {
  const [origin, scheme = '', host = '', port] = ORIGIN.exec(url) ?? [];
  if (origin === undefined) return [url];
  const other = port === undefined ? `:${DEFAULT_PORTS[scheme.toLowerCase()]}` : '';
  return [url, `${scheme}//${host}${other}${url.slice(origin.length)}`];
}

/** Adds user and password to the public URL of a route, if the sender signs them. */
export function addCredentials(publicUrl: string, credentials: Secret | undefined): string {
  if (credentials === undefined) return publicUrl;
  return publicUrl.replace('//', () => `//${credentials.expose().toString('latin1')}@`);
}

/** Path and query of a URL. */
export function toTarget(url: string): string {
  const [origin = ''] = ORIGIN.exec(url) ?? [];
  return url.slice(origin.length);
}

/** The query of a target or URL; undefined if it has none. */
export function toQuery(url: string): string | undefined {
  const mark = url.indexOf('?');
  return mark === -1 ? undefined : url.slice(mark + 1);
}

const DIGEST_LENGTH = 64;

/**
 * Whether the digest in the query is the digest of the body; undefined if the query does not end with a digest. A digest elsewhere in
 * the query is ignored: an attacker could move text of a form, which anyone may have written, into the query, but never to its end.
 */
export function toContentDigest({ url, body }: Message, parameter: string): boolean | undefined {
  const digits = url.slice(-DIGEST_LENGTH);
  const before = url.slice(0, -DIGEST_LENGTH);
  if (!before.endsWith(`?${parameter}=`) && !before.endsWith(`&${parameter}=`)) return undefined;
  // If the parameter is repeated, the app may use the other value.
  const digest = before.indexOf(`${parameter}=`) === before.lastIndexOf(`${parameter}=`) ? parseHex(digits) : undefined;
  return digest !== undefined && isEqualInConstantTime(digest, hash('sha256', body, 'buffer'));
}
