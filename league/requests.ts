/** Writes the league's requests, byte by byte. */
import { COLON, toToken } from './users.ts';

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
