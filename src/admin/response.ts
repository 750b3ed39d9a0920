/** Responses of the admin port, as endpoints return them. */

/** A response; the server adds the fields that all responses have. */
export interface AdminResponse {
  readonly status: number;
  readonly contentType: string;
  readonly text: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** In every response: a browser runs nothing of it, shows it in no frame, and sends its URL to no other origin. The console's page has another policy. */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'Cache-Control': 'no-store',
  'Content-Security-Policy': "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
};
const PLAIN = 'text/plain; charset=utf-8';

/** One line of text: the result or the problem, and how to fix it. */
export function toPlain(status: number, line: string, headers?: Readonly<Record<string, string>>): AdminResponse {
  const response = { status, contentType: PLAIN, text: `${line}\n` };
  return headers === undefined ? response : { ...response, headers };
}

/** A JSON value. */
export function toJson(value: unknown, contentType = 'application/json'): AdminResponse {
  return { status: 200, contentType, text: `${JSON.stringify(value, undefined, 2)}\n` };
}
