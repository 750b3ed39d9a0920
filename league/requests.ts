/** The users of every server of the league, and the requests that they send, byte by byte. */
import { makeHash } from '../src/users/password-hash.ts';

/** A user with the bcrypt hash that every server is given. */
export interface LeagueUser {
  readonly user: string;
  readonly hash: string;
}

/** The longest password that bcrypt reads; what stands behind it is lost. */
const BCRYPT_READS = 72;
/** Each hash takes 2^cost rounds. */
const CHEAP = 4;
const COSTLY = 11;

/** Whose password has a colon. */
export const COLON = { user: 'u', password: 'p:q' };
/** RFC 7617's own example beyond ASCII. */
export const POUND = { user: 'test', password: '123£' };
/** Whose password is longer than bcrypt reads. */
export const LONG = { user: 'long', password: `${'a'.repeat(BCRYPT_READS)}X` };
/** Whose hash is the costliest of all, for what is measured. */
export const SLOW = { user: 'slow', password: 'hard to guess' };

/** Hashes the passwords; in the form that htpasswd writes and all servers read. */
export async function makeUsers(): Promise<LeagueUser[]> {
  const costs = [
    [COLON, CHEAP],
    [POUND, CHEAP],
    [LONG, CHEAP],
    [SLOW, COSTLY],
  ] as const;
  return Promise.all(
    costs.map(async ([{ user, password }, cost]) => ({ user, hash: await makeHash(password, { algorithm: 'bcrypt', cost }) })),
  );
}

/** The credentials as base64, each character of the text one byte in `encoding`. */
export function toToken(user: string, password: string, encoding: 'utf8' | 'latin1' = 'utf8'): string {
  return Buffer.from(`${user}:${password}`, encoding).toString('base64');
}

/** The user whom most rows come as: right in every point. */
export const GOOD = `Basic ${toToken(COLON.user, COLON.password)}`;

/** What differs from `GET /x` with a Host, asking to close. */
export interface RequestParts {
  readonly line?: string;
  /** Field lines behind the request line; left out, Host and Connection. */
  readonly standard?: readonly string[];
  /** Field lines behind those. */
  readonly fields?: readonly string[];
  readonly body?: string;
}

const STANDARD = ['Host: gate.example', 'Connection: close'];

/** A request without credentials, unless `fields` has them. */
export function toRequest({ line = 'GET /x HTTP/1.1', standard = STANDARD, fields = [], body = '' }: RequestParts): string {
  return `${[line, ...standard, ...fields].join('\r\n')}\r\n\r\n${body}`;
}

/** A request with the Authorization lines given. */
export function withAuthorization(...values: readonly string[]): string {
  return toRequest({ fields: values.map((value) => `Authorization: ${value}`) });
}

/** A request of the user who may come in. */
export function toGoodRequest(parts: RequestParts): string {
  return toRequest({ ...parts, fields: [`Authorization: ${GOOD}`, ...(parts.fields ?? [])] });
}
