/** Parses Basic credentials (RFC 7617 §2) strictly: credentials that parsers interpret differently are rejected. */
import { parseBase64 } from '../core/bytes.ts';

/** A user name and a password from a request. */
export interface BasicCredentials {
  /** In Unicode NFC, as RFC 7617 §2.1 requires for comparison. */
  readonly user: string;
  /** The UTF-8 bytes of the password in NFC. */
  readonly password: Buffer;
}

/** Why they could not be parsed. For the log only: the client gets the same response as for a wrong password. */
export type CredentialsProblem = 'missing' | 'other_scheme' | 'malformed' | 'charset' | 'too_long';

/** One scheme, one or more spaces, one token68 and the end (RFC 9110 §11.4). No TAB, no list, no parameter. */
const BASIC = /^basic +([A-Za-z0-9\-._~+/]+=*)$/i;
const ANY_BASIC = /^basic(?:[\t ]|$)/i;
/** RFC 7617 §2: neither part may contain a control character. Proxies in C stop at NUL and ignore the rest. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern must match control characters
const CONTROL = /[\u0000-\u001f\u007f]/;
/** Of the decoded credentials. Bounds the work that an attacker can cause by hashing. */
const MAX_BYTES = 1_024;
const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * The credentials of an Authorization or Proxy-Authorization value. `latin1`: decodes bytes that are not UTF-8 as Latin-1, for clients that
 * predate RFC 7617.
 */
export function readBasic(
  value: string | undefined,
  { latin1 }: { readonly latin1: boolean },
): BasicCredentials | CredentialsProblem {
  if (value === undefined) return 'missing';
  const token = BASIC.exec(value)?.[1];
  if (token === undefined) return ANY_BASIC.test(value) ? 'malformed' : 'other_scheme';
  const bytes = parseBase64(token);
  if (bytes === undefined) return 'malformed';
  if (bytes.length > MAX_BYTES) return 'too_long';
  const text = decode(bytes, latin1);
  if (text === undefined) return 'charset';
  // Split at the first colon: a user name cannot contain one, but a password can.
  const colon = text.indexOf(':');
  if (colon === -1 || CONTROL.test(text)) return 'malformed';
  return { user: text.slice(0, colon).normalize('NFC'), password: Buffer.from(text.slice(colon + 1).normalize('NFC')) };
}

function decode(bytes: Buffer, latin1: boolean): string | undefined {
  try {
    return UTF8.decode(bytes);
  } catch {
    return latin1 ? bytes.toString('latin1') : undefined;
  }
}

/** The challenge (RFC 7617 §2 and §2.1). The realm is quoted, so it may contain any printable text (RFC 9110 §5.6.4). */
export function toBasicChallenge(realm: string): string {
  return `Basic realm="${realm.replace(/["\\]/g, '\\$&')}", charset="UTF-8"`;
}
