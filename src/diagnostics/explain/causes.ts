/** The catalogue of causes: what each one means, and how to fix it (docs/explain.md). */
import type { ExplainCause } from './explain-metrics.ts';

/** Describes a cause to the operator. */
interface CauseEntry {
  readonly meaning: string;
  readonly fix: string;
}

/** All causes. */
export const CAUSES: Readonly<Record<ExplainCause, CauseEntry>> = {
  headers_missing: {
    meaning: 'a header that the scheme requires is missing',
    fix: 'enable signing at the sender, and make sure that every proxy forwards the headers',
  },
  headers_malformed: {
    meaning: 'the signature headers do not have the format of the scheme',
    fix: 'compare them with the scheme of the route, and make sure that no proxy repeats or rewrites them',
  },
  headers_swapped: {
    meaning: 'the header of the timestamp holds the ID, and the header of the ID holds the timestamp',
    fix: 'swap the two headers at the sender',
  },
  header_family: {
    meaning: 'the headers use the other of two equivalent naming schemes (`svix-*` and `webhook-*`), or both',
    fix: 'set `scheme` to the preset with these header names; if the request has both, make sure that no proxy adds or renames headers',
  },
  signature_header: {
    meaning: 'the signature is in another header than the one that the scheme reads',
    fix: 'set `scheme` to the preset of this sender, or describe the header under `custom.signature.header`',
  },
  signature_prefix: {
    meaning: 'the prefix of the signature is missing, or is not the one that the scheme expects',
    fix: 'make the sender add the prefix, or describe the format under `custom.signature.forms`',
  },
  signature_encoding: {
    meaning: 'the signature is correct, but in another encoding (hex, base64, base64url)',
    fix: 'make the sender use the encoding of the scheme, or set `custom.signature.encoding`',
  },
  signature_algorithm: {
    meaning: 'the signature uses another algorithm than the scheme or the keys of the route',
    fix: 'change the algorithm at the sender, or describe it under `custom.signature.forms`; a public key verifies only signatures of its private key',
  },
  signed_pieces: {
    meaning: 'the sender signed other parts of the request than the scheme expects, for example only the body',
    fix: 'sign the parts that the scheme expects, or list them under `custom.signed`; without ID and timestamp, captured requests can be replayed',
  },
  other_preset: {
    meaning: 'the headers are those of another sender, which has a preset',
    fix: 'set `scheme` to that preset, or configure the sender to call the route that is meant for it',
  },
  timestamp_unit: {
    meaning: 'the timestamp is not in the unit of the scheme (seconds, milliseconds, RFC 3339, HTTP date)',
    fix: 'correct the unit at the sender, or set `custom.timestamp.unit`',
  },
  clock_skew: {
    meaning: 'the timestamp is in the future, or off by a multiple of half an hour: a clock or a time zone is wrong',
    fix: 'synchronize both clocks with NTP and use UTC timestamps; `sidegate_timestamp_skew_seconds` shows which senders are off',
  },
  late: {
    meaning:
      'the delivery is older than the tolerance: it waited in a queue, was retried with its old timestamp, or is a replay attack',
    fix: 'make the sender create a new timestamp and signature for each attempt, or increase `tolerance.past`',
  },
  url: {
    meaning: 'the sender signed another URL than the one that sidegate reconstructs',
    fix: 'set `publicUrl` to the URL that is configured at the sender: scheme, host, port and path prefix',
  },
  key_expired: {
    meaning: 'it is signed with a key of this route that has expired (`notAfter`)',
    fix: 'configure the new secret at the sender, or postpone `notAfter` until then',
  },
  key_not_yet_valid: {
    meaning: 'it is signed with a key of this route that is not valid yet (`notBefore`)',
    fix: 'set `notBefore` to a time before the sender switches to the key',
  },
  other_route_key: {
    meaning: 'it is signed with the secret of another route',
    fix: 'correct the URL at the sender, or configure that secret for this route',
  },
  secret_encoding: {
    meaning: 'the secret is correct, but the sender decodes its text in another way (utf8, base64, hex)',
    fix: 'set `secret.encoding` of the key, or enter the secret as the sender shows it',
  },
  secret_prefix: {
    meaning: 'the secret is correct, but either the sender or sidegate treats `whsec_` as part of it',
    fix: 'add or remove the prefix, and set `secret.encoding`',
  },
  secret_whitespace: {
    meaning: 'the secret is correct except for whitespace, a line ending or quotes around it, here or at the sender',
    fix: 'enter the secret again on the side that has them: `printf %s` adds no line ending, and values in env files need no quotes',
  },
  body_whitespace: {
    meaning: 'whitespace, usually a line ending, was added to the body or removed from it in transit',
    fix: 'send the bytes that were signed: with curl, use `--data-binary` instead of `--data`; and make sure that no middleware trims the body',
  },
  body_line_ends: {
    meaning: 'line endings were converted from CRLF to LF, or the reverse',
    fix: 'forward the body as bytes, not as text',
  },
  body_bom: {
    meaning: 'a byte order mark was removed from the body, or added to it',
    fix: 'write the body without one, and forward it as bytes, not as text',
  },
  body_charset: {
    meaning: 'the body was converted from UTF-8 to Latin-1, or the reverse',
    fix: 'forward the body as bytes, not as text',
  },
  body_reserialised: {
    meaning: 'the JSON was parsed and serialized again, with other whitespace than when it was signed',
    fix: 'find the proxy or middleware that parses the body (body parsers, API gateways, WAFs) and make it forward the raw bytes',
  },
  body_escapes: {
    meaning: 'the JSON was parsed and serialized again, with other escapes (`\\u…`, `\\/`) than when it was signed',
    fix: 'find the proxy or middleware that parses the body (body parsers, API gateways, WAFs) and make it forward the raw bytes',
  },
  body_compression: {
    meaning: 'the body was compressed or decompressed between the sender and sidegate',
    fix: 'disable request compression in the proxies, or sign the compressed bytes',
  },
  body_form: {
    meaning: 'a form body was decoded, or the body was put into a form, after it was signed',
    fix: 'choose the content type `application/json` at the sender, and make sure that no middleware decodes forms',
  },
  body_base64: {
    meaning: 'the body arrives base64-encoded, as some API gateways forward it, but the decoded bytes were signed',
    fix: 'make the gateway decode the body before forwarding it',
  },
  body_empty: {
    meaning: 'the body was lost in transit, or was signed as if it were empty',
    fix: 'look for something in front of sidegate that consumes the body, and for redirects, which drop it',
  },
  token_claims: {
    meaning: 'the JSON Web Token is for another receiver, or from another issuer, than the route accepts',
    fix: 'compare `jwt.audience` and `jwt.claims` with the settings at the sender',
  },
  unknown: {
    meaning: 'no candidate matches: most likely the secret differs, or it is an attack',
    fix: 'copy the secret again from the settings of this endpoint at the sender, and run `sidegate explain` on a captured request',
  },
  skipped: {
    meaning: 'the rejection was not analyzed: `explain.perMinute` was used up, or too many rejections were waiting',
    fix: 'capture a request and run `sidegate explain` on it',
  },
};
