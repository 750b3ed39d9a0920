/** Findings on a rejected request that need no search: from its head, without any hashing, and from its token; and how to fix each cause. */

import { hash } from 'node:crypto';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import type { DecodedToken, SignedHead } from '../../core/event.ts';
import { Refusal } from '../../core/refusal.ts';
import { coversQueryOf, TIMESTAMP_FORMATS, TIMESTAMP_UNITS } from '../../verify/schemes/coverage.ts';
import type { Jwt, Scheme } from '../../verify/schemes/scheme.ts';
import { compileHashedContent } from '../../verify/schemes/token.ts';
import { toQuery } from '../../verify/schemes/url.ts';
import { type AnalysisInput, type ExplainFinding, type Explanation, isRefused, type Meter } from './analysis.ts';
import { toBodyForms } from './body-forms.ts';
import type { ExplainCause } from './explain-metrics.ts';
import { toSeenPresets, toTwins } from './head-forms.ts';

const SECOND: Milliseconds = 1_000;
const HALF_HOUR: Milliseconds = 1_800_000;
/** A wrong time zone is recognized despite delays of up to this long. */
const LEEWAY: Milliseconds = 60_000;
/** A timestamp this far off is in another unit, not late. */
const YEAR: Milliseconds = 31_536_000_000;

/** Findings on the head, as the route's scheme reads it. */
export function toHeadHints(analysisInput: AnalysisInput, head: SignedHead | Refusal): ExplainFinding[] {
  if (!isRefused(head)) return [...toUnitHint(analysisInput), ...toAlgorithmHint(analysisInput, head)];
  const found = [...toPresetHints(analysisInput), ...toUnitHint(analysisInput)];
  if (head.reason === 'missing_signature') {
    if (!found.some(({ cause }) => cause === 'header_family')) found.push(toFinding('headers_missing', toMissing(analysisInput)));
  } else if (!found.some(({ cause }) => cause === 'timestamp_unit')) {
    found.push(toFinding('headers_malformed', `the signature headers are malformed: ${head.detail ?? 'they cannot be parsed'}`));
  }
  return found;
}

function toMissing({ scheme, request: { headers } }: AnalysisInput): string {
  const missing = toNeededHeaders(scheme).filter((name) => (headers.get(name.toLowerCase()) ?? '') === '');
  const last = missing.at(-1);
  if (last === undefined) return 'the signature, or a signed value, is missing';
  return missing.length === 1 ? `${last} is missing` : `${missing.slice(0, -1).join(', ')} and ${last} are missing`;
}

/** The headers that verification requires, as the scheme spells their names. */
function toNeededHeaders({ description: { id, timestamp, signature, signed } }: Scheme): string[] {
  const names = signature === undefined || signature.header === '' ? [] : [signature.header];
  if (timestamp !== undefined && 'header' in timestamp.from) names.unshift(timestamp.from.header);
  if (id !== undefined && 'header' in id && signed.includes('id')) names.unshift(id.header);
  return names;
}

function toPresetHints(analysisInput: AnalysisInput): ExplainFinding[] {
  const twins = toTwins(analysisInput.scheme.description);
  return toSeenPresets(analysisInput).flatMap(({ preset, names }) => {
    const name = preset.signature?.header ?? '';
    // A token header does not identify a sender, and a header of the route's own scheme does not point to another preset.
    if (preset.signed.length === 0 || analysisInput.scheme.headerNames.includes(name.toLowerCase())) return [];
    const isTwin = twins.has(name.toLowerCase());
    // A route that accepts both names gets here only if the request has both.
    if (isTwin && analysisInput.scheme.description.acceptsTwins === true)
      return [toFinding('header_family', `the request has ${name} beside headers of the other naming scheme`)];
    const text = isTwin ? `the headers use the naming of ${name}` : `this looks like ${names}: the request has ${name}`;
    return [toFinding(isTwin ? 'header_family' : 'other_preset', `${text} (scheme: ${names})`)];
  });
}

/** Recognizes the unit by the instant that the value means in each unit. */
function toUnitHint({ scheme: { description }, request: { headers, receivedAt } }: AnalysisInput): ExplainFinding[] {
  const { timestamp } = description;
  if (timestamp === undefined || !('header' in timestamp.from)) return [];
  const { unit, from } = timestamp;
  const text = headers.get(from.header.toLowerCase()) ?? '';
  const isNear = (at: EpochMilliseconds | undefined): boolean => at !== undefined && Math.abs(receivedAt - at) < YEAR;
  if (text === '' || isNear(TIMESTAMP_FORMATS[unit].parse(text))) return [];
  const other = TIMESTAMP_UNITS.find((each) => each !== unit && isNear(TIMESTAMP_FORMATS[each].parse(text)));
  if (other !== undefined)
    return [
      toFinding(
        'timestamp_unit',
        `the timestamp looks like ${TIMESTAMP_FORMATS[other].title}; this scheme uses ${TIMESTAMP_FORMATS[unit].title}`,
      ),
    ];
  // No unit fits exactly; a number that is about a thousand times too large is still milliseconds.
  const at = TIMESTAMP_FORMATS[unit].parse(text);
  const isScaled = unit === 's' && at !== undefined && at > receivedAt + 10 * YEAR;
  return isScaled ? [toFinding('timestamp_unit', 'the timestamp looks like milliseconds; this scheme uses seconds')] : [];
}

/** A secret cannot verify signatures of a key pair, nor the reverse. */
function toAlgorithmHint({ keys }: AnalysisInput, { signatures }: SignedHead): ExplainFinding[] {
  const known = new Set(keys.map(({ key }) => (key?.material as { algorithm?: string } | undefined)?.algorithm));
  const sent = [...new Set(signatures.map(({ algorithm }) => algorithm))];
  if (known.has(undefined) || keys.length === 0 || sent.length === 0 || sent.some((algorithm) => known.has(algorithm))) return [];
  const text = `the signatures use ${sent.join(' and ')}, but the keys of the route are for ${[...known].join(' and ')}`;
  return [toFinding('signature_algorithm', text)];
}

/** Why the timestamp is not accepted; empty if it is. */
export function toTimeHints(
  { tolerance, request: { receivedAt } }: AnalysisInput,
  signedAt: EpochMilliseconds,
): ExplainFinding[] {
  const skew = receivedAt - signedAt;
  if (tolerance === undefined || Math.abs(skew) >= YEAR || (skew <= tolerance.past && -skew <= tolerance.future)) return [];
  const distance = Math.round(Math.abs(skew) / SECOND);
  if (skew < 0)
    return [
      toFinding(
        'clock_skew',
        `the timestamp is ${distance} s in the future: the sender's clock is fast, or the local clock is slow`,
      ),
    ];
  const past = Math.round(tolerance.past / SECOND);
  const offset = Math.round(skew / HALF_HOUR) * HALF_HOUR;
  if (offset >= HALF_HOUR && offset <= 28 * HALF_HOUR && Math.abs(skew - offset) <= LEEWAY)
    return [
      toFinding(
        'clock_skew',
        `the timestamp is ${distance} s old, a multiple of half an hour: a clock or a time zone may be wrong`,
      ),
    ];
  return [toFinding('late', `the delivery is ${distance} s old; the tolerance is ${past} s`)];
}

// Findings on a rejected JSON Web Token, from what it says: the analysis does not verify it again.

/** Runs the analysis; at each `yield` the caller can let other work run. */
export function* analyzeToken(analysisInput: AnalysisInput, jwt: Jwt, meter: Meter): Generator<void, Explanation> {
  const { scheme, allowDotInId, request } = analysisInput;
  const head = scheme.readHead(request.headers, { allowDotInId });
  if (head instanceof Refusal) return { findings: toHeadHints(analysisInput, head), isProven: false };
  const inBody = request.body && readBodyToken(jwt, request.body);
  if (inBody !== undefined && 'problem' in inBody)
    return { findings: [toFinding('headers_malformed', `the token is malformed: ${inBody.problem}`)], isProven: false };
  const token = head.token ?? inBody;
  const findings = head.timestamp === undefined ? [] : toTimeHints(analysisInput, head.timestamp);
  if (token !== undefined) {
    findings.push(...toExpiry(analysisInput, token), ...toClaimHints(jwt, token), ...toKeyHints(analysisInput, token));
    const body = request.body ?? (coversQueryOf(scheme.description, request.method) ? Buffer.alloc(0) : undefined);
    const changed = body === undefined ? undefined : yield* findBody(analysisInput, jwt.readBodyHash(token.claims), body, meter);
    if (changed !== undefined) findings.unshift(changed);
  }
  if (findings.length === 0)
    findings.push(toFinding('unknown', 'the token is well-formed and for this route, but no key of the route signed it'));
  return { findings, isProven: false };
}

function readBodyToken(jwt: Jwt, body: Buffer): ReturnType<Jwt['readClaims']> | undefined {
  const token = jwt.readBody?.(body);
  return token === undefined || 'problem' in token ? token : jwt.readClaims(token);
}

function toExpiry({ request: { receivedAt } }: AnalysisInput, { claims }: DecodedToken): ExplainFinding[] {
  const { exp } = claims as { exp?: unknown };
  if (typeof exp !== 'number' || receivedAt < exp * 1_000) return [];
  return [toFinding('late', `the token expired ${Math.round(receivedAt / 1_000 - exp)} s before it arrived`)];
}

function toClaimHints({ listStrangeClaims }: Jwt, { claims }: DecodedToken): ExplainFinding[] {
  const wrong = listStrangeClaims(claims);
  if (wrong.length === 0) return [];
  const are = wrong.length === 1 ? 'is' : 'are';
  return [toFinding('token_claims', `the token is for another receiver: ${wrong.join(', ')} ${are} not accepted`)];
}

/** Keys that have names, none of which is that of the token. */
function toKeyHints({ keys }: AnalysisInput, { header }: DecodedToken): ExplainFinding[] {
  const { kid } = header as { kid?: unknown };
  const ids = keys.map(({ key }) => (key?.material as { id?: string } | undefined)?.id);
  if (typeof kid !== 'string' || ids.length === 0 || ids.includes(undefined) || ids.includes(kid)) return [];
  return [toFinding('unknown', 'the token names a key (kid) that is not among the keys of the route')];
}

/** The form of the body that has the digest in the token. */
function* findBody(
  { scheme: { description }, request: { method, target } }: AnalysisInput,
  named: Buffer | undefined,
  body: Buffer,
  meter: Meter,
): Generator<void, ExplainFinding | undefined> {
  const digest = description.jwt?.bodyHash?.digest;
  const hashed = compileHashedContent(description)({ method, url: '', query: toQuery(target), body });
  if (digest === undefined || named === undefined || hashed instanceof Refusal) return undefined;
  if (named.equals(hash(digest, hashed, 'buffer'))) return undefined;
  if (hashed !== body) return toFinding('url', 'the token has the digest of other parameters than those of the query');
  for (const form of toBodyForms(body, meter)) {
    yield;
    if (form?.cause === undefined || !meter.takeCandidate(form.bytes.length)) continue;
    if (named.equals(hash(digest, form.bytes, 'buffer')))
      return toFinding(form.cause, `the token has the digest of the body ${form.text}`);
  }
  return toFinding('unknown', 'the token has the digest of another body');
}

/** How to fix each cause, in the order of docs/explain.md, which has their meanings. */
export const FIXES: Readonly<Record<ExplainCause, string>> = {
  headers_missing: 'enable signing at the sender, and make sure that every proxy forwards the headers',
  headers_malformed: 'compare them with the scheme of the route, and make sure that no proxy repeats or rewrites them',
  headers_swapped: 'swap the two headers at the sender',
  header_family:
    'set `scheme` to the preset with these header names; if the request has both, make sure that no proxy adds or renames headers',
  signature_header: 'set `scheme` to the preset of this sender, or describe the header under `custom.signature.header`',
  signature_prefix: 'make the sender add the prefix, or describe the format under `custom.signature.forms`',
  signature_encoding: 'make the sender use the encoding of the scheme, or set `custom.signature.encoding`',
  signature_algorithm:
    'change the algorithm at the sender, or describe it under `custom.signature.forms`; a public key verifies only signatures of its private key',
  signed_pieces:
    'sign the parts that the scheme expects, or list them under `custom.signed`; without ID and timestamp, captured requests can be replayed',
  other_preset: 'set `scheme` to that preset, or configure the sender to call the route that is meant for it',
  timestamp_unit: 'correct the unit at the sender, or set `custom.timestamp.unit`',
  clock_skew:
    'synchronize both clocks with NTP and use UTC timestamps; `sidegate_timestamp_skew_seconds` shows which senders are off',
  late: 'if the sender did not send it now, it is a replay, which must be rejected; otherwise make the sender sign each attempt with a new timestamp, or increase `tolerance.past`',
  url: 'set `publicUrl` to the URL that is configured at the sender: scheme, host, port and path prefix',
  key_expired: 'configure the new secret at the sender; postpone `notAfter` only if the old secret has not leaked',
  key_not_yet_valid: 'set `notBefore` to a time before the sender switches to the key',
  other_route_key:
    'correct the URL at the sender; if it is correct, somebody sends what was captured at the other route, which must be rejected',
  secret_encoding: 'set `secret.encoding` of the key, or enter the secret as the sender shows it',
  secret_prefix: 'add or remove the prefix, and set `secret.encoding`',
  secret_whitespace:
    'enter the secret again on the side that has them: `printf %s` adds no line ending, and values in env files need no quotes',
  body_whitespace:
    'send the bytes that were signed: with curl, use `--data-binary` instead of `--data`; and make sure that no middleware trims the body',
  body_line_ends: 'forward the body as bytes, not as text',
  body_bom: 'write the body without one, and forward it as bytes, not as text',
  body_charset: 'forward the body as bytes, not as text',
  body_reserialised:
    'find the proxy or middleware that parses the body (body parsers, API gateways, WAFs) and make it forward the raw bytes',
  body_escapes:
    'find the proxy or middleware that parses the body (body parsers, API gateways, WAFs) and make it forward the raw bytes',
  body_compression: 'disable request compression in the proxies, or sign the compressed bytes',
  body_form: 'choose the content type `application/json` at the sender, and make sure that no middleware decodes forms',
  body_base64: 'make the gateway decode the body before forwarding it',
  body_empty: 'look for something in front of sidegate that consumes the body, and for redirects, which drop it',
  token_claims: 'compare `jwt.audience` and `jwt.claims` with the settings at the sender',
  unknown:
    'copy the secret again from the settings of this endpoint at the sender, and run `sidegate explain` on a captured request',
  skipped: 'capture a request and run `sidegate explain` on it',
};

/** Creates a finding, by default with the cause's fix. */
export function toFinding(cause: ExplainCause, text: string, fix = FIXES[cause]): ExplainFinding {
  return { cause, text, fix };
}
