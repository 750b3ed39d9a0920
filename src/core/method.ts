/** Request methods (RFC 9110 §9). */

/** In characters; the longest registered method, UPDATEREDIRECTREF, has 17 (IANA HTTP Method Registry). */
export const MAX_METHOD_LENGTH = 32;

/** Requests by these methods usually have no content (RFC 9110 §9.3.1, §9.3.5), so they need no Content-Type; they must be empty then. */
export const METHODS_WITHOUT_CONTENT: ReadonlySet<string> = new Set(['GET', 'HEAD', 'DELETE']);
