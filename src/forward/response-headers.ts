/** Writes the header the sender gets: the app's, without what is of its hop only or could switch the sender off. */
import { type RawHeaders, toFoldedName } from '../core/headers.ts';

const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** By which a receiver tells its sender to stop: an app's bug or a header injection must not end all deliveries silently. */
const SENDER_SWITCHES = new Set(['webhook-delivery', 'x-slack-no-retry']);

/** Never a trailer (RFC 9110 §6.5.1): framing, routing, authentication, content description. */
const FORBIDDEN_TRAILERS = new Set([
  ...HOP_BY_HOP,
  'content-length',
  'content-type',
  'content-encoding',
  'content-range',
  'host',
  'authorization',
  'proxy-authorization',
  'www-authenticate',
  'set-cookie',
  'cache-control',
  'location',
  'retry-after',
  'age',
  'date',
  'expires',
  'vary',
  'warning',
]);

/** The app's field lines for the sender; the parser has proven that none of them can split the answer. */
export function toSenderHeaders(headers: RawHeaders, allowed: ReadonlySet<string>): string[] {
  const named = toNamedByConnection(headers);
  const out: string[] = [];
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    const value = headers[i + 1] as string;
    const lower = name.toLowerCase();
    if (HOP_BY_HOP.has(lower) || named?.has(lower) === true) continue;
    const folded = toFoldedName(lower);
    if (SENDER_SWITCHES.has(folded) && !allowed.has(folded)) continue;
    out.push(name, value);
  }
  return out;
}

/** The trailers that may be passed on. */
export function toSenderTrailers(trailers: RawHeaders, allowed: ReadonlySet<string>): [string, string][] {
  const fields = toSenderHeaders(trailers, allowed);
  const out: [string, string][] = [];
  for (let i = 0; i < fields.length; i += 2) {
    const name = fields[i] as string;
    if (!FORBIDDEN_TRAILERS.has(name.toLowerCase())) out.push([name, fields[i + 1] as string]);
  }
  return out;
}

function toNamedByConnection(headers: RawHeaders): Set<string> | undefined {
  let named: Set<string> | undefined;
  for (let i = 0; i < headers.length; i += 2) {
    if ((headers[i] as string).toLowerCase() !== 'connection') continue;
    named ??= new Set();
    for (const token of (headers[i + 1] as string).split(',')) named.add(token.trim().toLowerCase());
  }
  // Content-Length frames the answer: naming it must not remove it.
  named?.delete('content-length');
  return named;
}
