/** Reads Basic credentials (RFC 7617 §2) exactly: what another parser would read differently is refused, never guessed. */
import { parseBase64 } from '../../core/bytes.ts';

/** A user and a password as they were sent. */
export interface BasicCredentials {
  /** In Unicode's NFC, as RFC 7617 §2.1 asks for comparison. */
  readonly user: string;
  /** The UTF-8 bytes of the password in NFC. */
  readonly password: Buffer;
}

/** Why they could not be read; for the log only, as the sender gets the same answer as for a wrong password. */
export type CredentialsProblem = 'missing' | 'other_scheme' | 'malformed' | 'charset' | 'too_long';

/** How the decoded bytes are read. */
export interface BasicOptions {
  /** Reads bytes that are not UTF-8 as Latin-1, for clients of before RFC 7617. */
  readonly latin1: boolean;
}

/** One scheme, one or more spaces, one token68 and the end (RFC 9110 §11.4). No TAB, no list, no parameter. */
const BASIC = /^basic +([A-Za-z0-9\-._~+/]+=*)$/i;
const ANY_BASIC = /^basic(?:[\t ]|$)/i;
/** RFC 7617 §2: neither part may hold a control character. C proxies stop at NUL and let the rest be junk. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const CONTROL = /[\u0000-\u001f\u007f]/;
/** Bytes of the decoded pair; hashing more is work for an attacker. */
const LONGEST = 1_024;
const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The credentials of an Authorization or Proxy-Authorization value. */
export function readBasic(value: string | undefined, options: BasicOptions): BasicCredentials | CredentialsProblem {
  if (value === undefined) return 'missing';
  const token = BASIC.exec(value)?.[1];
  if (token === undefined) return ANY_BASIC.test(value) ? 'malformed' : 'other_scheme';
  const bytes = parseBase64(token);
  if (bytes === undefined) return 'malformed';
  if (bytes.length > LONGEST) return 'too_long';
  const text = decode(bytes, options);
  if (text === undefined) return 'charset';
  // The first colon only: a user cannot hold one, a password may.
  const colon = text.indexOf(':');
  if (colon === -1 || CONTROL.test(text)) return 'malformed';
  return { user: text.slice(0, colon).normalize('NFC'), password: Buffer.from(text.slice(colon + 1).normalize('NFC')) };
}

function decode(bytes: Buffer, { latin1 }: BasicOptions): string | undefined {
  try {
    return UTF8.decode(bytes);
  } catch {
    return latin1 ? bytes.toString('latin1') : undefined;
  }
}

/** A challenge (RFC 7617 §2 and §2.1); the realm is quoted, so it may hold any printable text (RFC 9110 §5.6.4). */
export function toBasicChallenge(realm: string): string {
  return `Basic realm="${realm.replace(/["\\]/g, '\\$&')}", charset="UTF-8"`;
}
