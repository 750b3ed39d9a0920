/** The catalogue of causes: what each one means and how it is mended (docs/explain.md). */
import type { ExplainCause } from '../../telemetry/metrics/labels.ts';

/** One cause, for the operator. */
export interface CauseEntry {
  readonly meaning: string;
  readonly mend: string;
}

/** Every cause there is. */
export const CAUSES: Readonly<Record<ExplainCause, CauseEntry>> = {
  headers_missing: {
    meaning: 'a header that the scheme needs is not there',
    mend: 'turn signing on at the sender, and let every proxy on the way pass the headers on',
  },
  headers_malformed: {
    meaning: 'the signature headers are not written as the scheme writes them',
    mend: 'compare them with the scheme of the route, and see to it that nothing on the way repeats or rewrites them',
  },
  headers_swapped: {
    meaning: 'the id stands in the header of the timestamp, and the timestamp in that of the id',
    mend: 'correct the names of the two headers at the sender',
  },
  header_family: {
    meaning: 'the headers have the names of another family with the same meaning (`svix-*` and `webhook-*`), or of both at once',
    mend: 'set `scheme` to the preset of that family',
  },
  signature_header: {
    meaning: 'the signature stands in another header than the one that the scheme reads',
    mend: 'set `scheme` to the preset of this sender, or describe the header under `custom.signature.header`',
  },
  signature_prefix: {
    meaning: 'what stands before the signature is missing, or is not what the scheme expects',
    mend: 'let the sender write the prefix, or describe it under `custom.signature.forms`',
  },
  signature_encoding: {
    meaning: 'the signature is right, but written in another encoding (hex, base64, base64url)',
    mend: 'let the sender write it as the scheme does, or describe it under `custom.signature.encoding`',
  },
  signature_algorithm: {
    meaning: 'the signature is made by another algorithm than the scheme or the keys of the route have',
    mend: 'change the algorithm at the sender, or describe it under `custom.signature.forms`; public keys check only what key pairs sign',
  },
  signed_pieces: {
    meaning: 'the sender signed other pieces than the scheme signs, such as the content alone',
    mend: 'sign what the scheme signs, or describe it under `custom.signed`; without id and timestamp a capture can be replayed',
  },
  other_preset: {
    meaning: 'the headers are those of another sender that there is a preset for',
    mend: 'set `scheme` to that preset, or let this sender call the route that was made for it',
  },
  timestamp_unit: {
    meaning: 'the timestamp is in another unit (seconds, milliseconds, RFC 3339) than the scheme has',
    mend: 'correct the unit at the sender, or describe it under `custom.timestamp.unit`',
  },
  clock_skew: {
    meaning: 'the timestamp lies ahead, or off by whole half hours: a clock, or a time zone, is wrong',
    mend: 'set the clocks of both machines by NTP, and stamp in UTC; `sidegate_timestamp_skew_seconds` shows which senders are off',
  },
  late: {
    meaning: 'the delivery is older than the tolerance: it waited in a queue, was retried with its old timestamp, or is a replay',
    mend: 'let the sender stamp and sign each attempt anew, or widen `tolerance.past`',
  },
  url: {
    meaning: 'the sender signed another URL than the one the gate puts together',
    mend: 'set `publicUrl` to the address that the sender calls, as it is entered there: scheme, host, port and path',
  },
  key_expired: {
    meaning: 'it is signed by a key of this route whose `notAfter` has passed',
    mend: 'give the sender the new secret, or move `notAfter` until it has it',
  },
  key_not_yet_valid: {
    meaning: 'it is signed by a key of this route whose `notBefore` has not come',
    mend: 'move `notBefore` to before the day on which the sender changes over',
  },
  other_route_key: {
    meaning: 'it is signed with the secret of another route',
    mend: 'correct the URL at the sender, or give this route that secret',
  },
  secret_encoding: {
    meaning: 'the secret is the right one, but its text is read otherwise by the sender (utf8, base64, hex)',
    mend: 'set `secret.encoding` of the key, or write the secret as the sender shows it',
  },
  secret_prefix: {
    meaning: 'the secret is the right one, but the sender counts `whsec_` as part of it, or the gate does',
    mend: 'write the secret with, or without, its prefix, and set `secret.encoding`',
  },
  secret_whitespace: {
    meaning: 'the secret is the right one but for whitespace, a line end or quotes around it, here or at the sender',
    mend: 'write the secret again on the side that has them: `printf %s` leaves no line end, and values of env files need no quotes',
  },
  body_whitespace: {
    meaning: 'whitespace, mostly a line end, was added to the content or cut off it on the way',
    mend: 'send the bytes that were signed: with curl `--data-binary`, not `--data`; and let no middleware trim them',
  },
  body_line_ends: {
    meaning: 'line ends were turned from CRLF into LF, or the other way',
    mend: 'pass the content on as bytes, not as text',
  },
  body_bom: {
    meaning: 'a byte order mark was cut off the content, or put before it',
    mend: 'write the content without one, and pass it on as bytes, not as text',
  },
  body_charset: {
    meaning: 'the content was turned from UTF-8 into Latin-1, or the other way',
    mend: 'pass the content on as bytes, not as text',
  },
  body_reserialised: {
    meaning: 'the JSON was parsed and written again, with other whitespace than it was signed with',
    mend: 'find the proxy or middleware that parses the content (body parsers, API gateways, WAFs) and let it pass the raw bytes on',
  },
  body_escapes: {
    meaning: 'the JSON was parsed and written again, with other escapes (`\\u…`, `\\/`) than it was signed with',
    mend: 'find the proxy or middleware that parses the content (body parsers, API gateways, WAFs) and let it pass the raw bytes on',
  },
  body_compression: {
    meaning: 'the content was compressed or decompressed between the signing and the gate',
    mend: 'switch compression of requests off in the proxies on the way, or sign what goes over the wire',
  },
  body_form: {
    meaning: 'form content was decoded, or the content was put into a form, after it was signed',
    mend: 'choose the content type `application/json` at the sender, and let no middleware decode forms',
  },
  body_base64: {
    meaning: 'the content arrives base64-encoded, as some API gateways hand it on, while its bytes were signed',
    mend: 'let the gateway decode the content before it passes it on',
  },
  body_empty: {
    meaning: 'the content was lost on the way, or was signed as if it were empty',
    mend: 'look for what reads the content before the gate, and for redirects, which lose it',
  },
  unknown: {
    meaning: 'nothing that was tried matches: most likely it is another secret, or an attack',
    mend: 'take the secret anew from the settings of this very endpoint at the sender, and run `sidegate explain` on a captured request',
  },
  skipped: {
    meaning: 'the refusal was not looked into: `explain.perMinute` was used up, or too many waited',
    mend: 'capture a request and run `sidegate explain` on it',
  },
};
