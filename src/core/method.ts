/** Request methods (RFC 9110 §9). */

/** In characters; the longest registered method, UPDATEREDIRECTREF, has 17 (IANA HTTP Method Registry). */
export const MAX_METHOD_LENGTH = 32;
