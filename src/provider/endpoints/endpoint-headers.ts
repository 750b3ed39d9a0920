/** The headers that an endpoint may have besides those that the sender writes. */

import { HOP_BY_HOP } from '../../core/field-policy.ts';
import { toFoldedName } from '../../core/headers.ts';
import type { Fault } from '../../core/problem.ts';

/** Headers that the sender writes, or that change how the request is framed, read or answered. All names are folded. */
const RESERVED: ReadonlySet<string> = new Set([
  ...HOP_BY_HOP,
  'host',
  'content-length',
  'content-type',
  'content-encoding',
  'content-range',
  'expect',
  'user-agent',
  'accept-encoding',
  'traceparent',
  'tracestate',
  'via',
]);
/** The signature, in the two spellings that receivers accept, and what sidegate says to apps. */
const RESERVED_PREFIXES = ['webhook-', 'svix-', 'sidegate-', 'proxy-'];
const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/;
/** Visible ASCII; spaces and tabs only inside. */
const VALUE = /^(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?$/;
const MAX_HEADERS = 32;
const MAX_TOTAL_BYTES = 8_192;
/** `: ` and the line end. */
const LINE_OVERHEAD = 4;

/** The first problem of an endpoint's headers. Names are compared as apps may fold them: `webhook_id` is `Webhook-Id` to a CGI app. */
export function findHeaderProblem(headers: readonly (readonly [name: string, value: string])[]): Fault | undefined {
  if (headers.length > MAX_HEADERS)
    return { problem: `there are ${headers.length} headers`, hint: `at most ${MAX_HEADERS} are allowed` };
  const seen = new Set<string>();
  let bytes = 0;
  for (const [name, value] of headers) {
    if (!NAME.test(name)) return { problem: 'a header name is not a token', hint: 'use letters, digits and dashes' };
    const folded = toFoldedName(name);
    if (RESERVED.has(folded) || RESERVED_PREFIXES.some((prefix) => folded.startsWith(prefix)))
      return {
        problem: `the header ${name} cannot be set`,
        hint: 'sidegate writes it itself, or it would change how the request is read; choose another name',
      };
    if (seen.has(folded))
      return { problem: `the header ${name} is set twice`, hint: 'names are compared without case, and `_` counts as `-`' };
    // The value may be a secret.
    if (!VALUE.test(value))
      return {
        problem: `the value of the header ${name} is invalid`,
        hint: 'use visible ASCII characters, with spaces only between them',
      };
    seen.add(folded);
    bytes += name.length + value.length + LINE_OVERHEAD;
  }
  if (bytes <= MAX_TOTAL_BYTES) return undefined;
  return { problem: `the headers have ${bytes} bytes`, hint: `at most ${MAX_TOTAL_BYTES} are allowed` };
}
