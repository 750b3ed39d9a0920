/** Finds out why a signature was rejected: tries variants of the request and of the keys, with one or two changes, within a budget. */

import type { SignedHead } from '../../core/event.ts';
import type { Refusal } from '../../core/refusal.ts';
import { Secret } from '../../core/secret.ts';
import { trimEnds } from '../../core/text.ts';
import { isBodyPlace } from '../../verify/schemes/body-values.ts';
import type { SecretEncoding } from '../../verify/schemes/description.ts';
import { compileTwinTest, renameToTwins } from '../../verify/schemes/head.ts';
import type { Scheme, VerifyKey } from '../../verify/schemes/scheme.ts';
import {
  type AnalysisInput,
  type CandidateKey,
  type ExplainFinding,
  type Explanation,
  isRefused,
  type Meter,
  readWholeHead,
} from './analysis.ts';
import { type BodyForm, toBodyForms } from './body-forms.ts';
import type { ExplainCause } from './explain-metrics.ts';
import { analyzeToken, toFinding, toHeadHints, toTimeHints } from './findings.ts';
import { type HeadForm, toHeadForms } from './head-forms.ts';

/** Which parts a combination changes. */
interface AnalysisShape {
  readonly head: boolean;
  readonly key: boolean;
  readonly body: boolean;
}

/** Likely ones first. Changes of the body come last, because its forms cost most. Three changes at once would prove little. */
const SHAPES: readonly AnalysisShape[] = [
  { head: false, key: false, body: false },
  { head: false, key: true, body: false },
  { head: true, key: false, body: false },
  { head: false, key: false, body: true },
  { head: true, key: true, body: false },
  { head: false, key: true, body: true },
  { head: true, key: false, body: true },
];
/** The cost of the signed header fields and of a MAC, beside body and URL. */
const CANDIDATE_BYTES = 128;

/** The combination that matched. */
interface Match {
  readonly head: HeadForm;
  readonly body: BodyForm;
  readonly key: KeyForm;
}

/** Runs the analysis; at each `yield` the caller can let other work run. */
export function* analyze(given: AnalysisInput, meter: Meter): Generator<void, Explanation> {
  const analysisInput = withUsedNames(given);
  const { scheme, request } = analysisInput;
  if (scheme.token !== undefined) return yield* analyzeToken(analysisInput, scheme.token.jwt, meter);
  const head = readWholeHead(analysisInput);
  const hints = toHeadHints(analysisInput, head);
  const times = toTimes(analysisInput, head);
  const match = request.body === undefined ? undefined : yield* search(analysisInput, request.body, meter);
  if (match !== undefined) return toProven(match, hints, times);
  const found = [...hints, ...times];
  if (found.length === 0 || (request.body !== undefined && hints.length === 0)) found.unshift(...toUnknown(analysisInput, meter));
  return { findings: found, isProven: false };
}

/** Reads a request under the alternative header names if it has only those, as the gate does. */
function withUsedNames(given: AnalysisInput): AnalysisInput {
  const { description } = given.scheme;
  if (!compileTwinTest(description)(given.request.headers)) return given;
  return { ...given, scheme: given.compile(renameToTwins(description)) };
}

/** Findings on the timestamp, which is in the head or, in some schemes, in the body. */
function toTimes(analysisInput: AnalysisInput, head: SignedHead | Refusal): ExplainFinding[] {
  const { scheme, request } = analysisInput;
  if (isRefused(head)) return [];
  if (head.timestamp !== undefined) return toTimeHints(analysisInput, head.timestamp);
  const { timestamp } = scheme.description;
  if (timestamp === undefined || !isBodyPlace(timestamp.from) || request.body === undefined) return [];
  const identity = scheme.identify(head, { method: request.method, url: '', body: request.body });
  return 'problem' in identity || identity.timestamp === undefined ? [] : toTimeHints(analysisInput, identity.timestamp);
}

/** Tries all combinations of at most two changes, in the order of SHAPES. */
function* search(analysisInput: AnalysisInput, body: Buffer, meter: Meter): Generator<void, Match | undefined> {
  const asReceived: BodyForm = { cause: undefined, text: '', bytes: body };
  const forms: Forms = {
    heads: new LazyList<HeadForm>(undefined, toHeadForms(analysisInput)),
    bodies: new LazyList(asReceived, toBodyForms(body, meter)),
    keys: new LazyList<KeyForm>(undefined, toKeyForms(analysisInput)),
  };
  for (const shape of SHAPES) {
    for (const candidate of combine(forms, shape)) {
      if (candidate === undefined) {
        yield;
        continue;
      }
      const keys = candidate.key.toKeys(candidate.head.scheme);
      if (keys.length === 0) continue;
      const bytes = candidate.body.bytes.length + candidate.head.url.length + CANDIDATE_BYTES;
      if (!meter.takeCandidate(keys.length * bytes)) return undefined;
      yield;
      if (isMatch(analysisInput, candidate, keys)) return candidate;
    }
  }
  return undefined;
}

interface Forms {
  readonly heads: LazyList<HeadForm>;
  readonly bodies: LazyList<BodyForm>;
  readonly keys: LazyList<KeyForm>;
}

/** All combinations with the changes of one shape; yields undefined where other work can run. */
function* combine({ heads, bodies, keys }: Forms, shape: AnalysisShape): Generator<Match | undefined> {
  for (const head of heads.all(shape.head)) {
    if (head === undefined) yield undefined;
    // A token does not depend on the body.
    else if (!shape.body || head.scheme.description.signed.length > 0)
      for (const body of bodies.all(shape.body)) yield* withKeys(head, body, keys.all(shape.key));
  }
}

function* withKeys(
  head: HeadForm,
  body: BodyForm | undefined,
  keys: Iterable<KeyForm | undefined>,
): Generator<Match | undefined> {
  if (body === undefined) yield undefined;
  else for (const key of keys) yield key && { head, body, key };
}

function isMatch({ request }: AnalysisInput, { head: form, body: { bytes } }: Match, keys: readonly VerifyKey[]): boolean {
  const { scheme, headers, url } = form;
  const { method } = request;
  const head = readWholeHead({ scheme, request: { ...request, headers, body: bytes }, allowDotInId: true, allowQuery: true });
  return !isRefused(head) && scheme.verify(head, { method, url, body: bytes }, keys) !== undefined;
}

function toProven({ head, body, key }: Match, hints: readonly ExplainFinding[], times: readonly ExplainFinding[]): Explanation {
  const parts: string[] = [];
  if (head.cause !== undefined) parts.push(head.text);
  if (body.cause !== undefined) parts.push(body.text);
  if (key.cause !== undefined) parts.push(`with ${key.text}`);
  const text = `it matches ${parts.join(', and ')}${key.cause === undefined ? `, with ${key.text}` : ''}`;
  const causes = [head.cause, body.cause, key.cause].filter((cause) => cause !== undefined);
  const proven = causes.map((cause) => toFinding(cause, text, cause === head.cause ? head.fix : undefined));
  // The signature is valid as received: only the form of the head, or the time, was wrong.
  if (proven.length === 0) return { findings: [...hints, ...times], isProven: true };
  return { findings: [...proven, ...times], isProven: true };
}

function toUnknown({ request: { body, headers }, scheme, publicUrl }: AnalysisInput, meter: Meter): ExplainFinding[] {
  if (body === undefined) return [toFinding('unknown', 'the body was not kept, so no variant could be tried')];
  const tried = `none of ${meter.candidates} candidates matches${meter.isExceeded ? ', and the budget of the analysis was used up' : ''}`;
  if (scheme.signsUrl)
    return [toFinding('url', toUrlText(tried, publicUrl)), toFinding('unknown', `${tried}: otherwise the secret differs`)];
  if (body.length === 0)
    return [toFinding('unknown', `${tried}; the body is empty: something in front of sidegate may have consumed it`)];
  if (headers.get('content-encoding') !== undefined)
    return [
      toFinding('unknown', `${tried}; there is a Content-Encoding: a proxy may have compressed the body after it was signed`),
    ];
  const isDirect = headers.get('via') === undefined && headers.get('x-forwarded-for') === undefined;
  const proxies = isDirect ? '' : '; the request passed proxies, which may have changed the body';
  return [toFinding('unknown', `${tried}: the secret differs, or the body was parsed and serialized again${proxies}`)];
}

/** The URL first: the sender signs it, and proxies change it more often than secrets are wrong. */
function toUrlText(tried: string, publicUrl: string): string {
  const known = publicUrl === '' ? 'the host of the request' : 'publicUrl';
  const own = `the sender signs the URL, which may differ from ${known} with the path and query that arrive here`;
  return `${tried}: ${own}. Other schemes, hosts, ports, prefixes and slashes, and other orders and encodings of the query were tried`;
}

/** The source yields unchanged forms first, then changed ones. */
class LazyList<T extends { readonly cause: unknown }> {
  readonly #created: T[];
  readonly #source: Iterator<T | undefined>;
  #isDone = false;

  constructor(first: T | undefined, source: Iterator<T | undefined>) {
    this.#created = first === undefined ? [] : [first];
    this.#source = source;
  }

  /** Yields either the changed or the unchanged forms; undefined where other work can run. */
  *all(isChanged: boolean): Generator<T | undefined> {
    for (let i = 0; ; i++) {
      while (i >= this.#created.length && !this.#isDone) if (!this.#create()) yield undefined;
      const form = this.#created[i];
      if (form === undefined || (!isChanged && form.cause !== undefined)) return;
      if (isChanged === (form.cause !== undefined)) yield form;
    }
  }

  /** Returns false if the source let other work run first. */
  #create(): boolean {
    const { value, done } = this.#source.next();
    if (done === true) this.#isDone = true;
    else if (value === undefined) return false;
    else this.#created.push(value);
    return true;
  }
}

// The keys that may have signed a request, and other ways to decode the text of a secret.

/** One key, or one decoding of its secret. */
interface KeyForm {
  /** Undefined for an unchanged live key of the route. */
  readonly cause: ExplainCause | undefined;
  /** "with the key …" */
  readonly text: string;
  /** The key, prepared for `scheme`; empty if the scheme cannot use it. */
  readonly toKeys: (scheme: Scheme) => readonly VerifyKey[];
}

/** Everything to try, likely ones first: the live keys, expired and future keys, other decodings, keys of other routes. */
function* toKeyForms({ scheme, keys, others, request: { receivedAt } }: AnalysisInput): Generator<KeyForm> {
  const live = keys.filter((key) => isLive(key, receivedAt));
  for (const key of live) yield toOwnForm(undefined, `the key ${key.name}`, key, scheme);
  for (const key of keys) {
    if (isLive(key, receivedAt)) continue;
    const isExpired = key.notAfter !== undefined && key.notAfter <= receivedAt;
    const when = isExpired ? 'which has expired' : 'which is not valid yet';
    yield toOwnForm(isExpired ? 'key_expired' : 'key_not_yet_valid', `the key ${key.name}, ${when}`, key, scheme);
  }
  for (const key of live) yield* toSecretForms(key);
  for (const key of others) yield* toForeignForms(key);
}

function isLive({ notBefore, notAfter }: CandidateKey, now: number): boolean {
  return (notBefore === undefined || notBefore <= now) && (notAfter === undefined || now < notAfter);
}

function toOwnForm(cause: ExplainCause | undefined, text: string, key: CandidateKey, own: Scheme): KeyForm {
  const toKeys = (scheme: Scheme): readonly VerifyKey[] => {
    if (scheme === own && key.key !== undefined) return [key.key];
    // Another preset may decode secrets in another way: some decode whsec_, others use it as written.
    return [
      ...parse(scheme, key.secret, key.encoding),
      ...(key.encoding === undefined ? [] : parse(scheme, key.secret, undefined)),
    ];
  };
  return { cause, text, toKeys };
}

function* toForeignForms({ route, name, secret, encoding, key }: CandidateKey): Generator<KeyForm> {
  const text = `the key ${name} of the route ${route}`;
  yield {
    cause: 'other_route_key',
    text,
    toKeys: (scheme) => [
      ...(key === undefined ? [] : [key]),
      ...parse(scheme, secret, encoding),
      ...(encoding === undefined ? [] : parse(scheme, secret, undefined)),
    ],
  };
}

/** One decoding of a secret's text. */
interface SecretForm {
  readonly cause: ExplainCause;
  readonly how: string;
  readonly bytes: Buffer | undefined;
}

function* toSecretForms({ name, secret }: CandidateKey): Generator<KeyForm> {
  const seen = new Set<string>();
  for (const { cause, how, bytes } of decodeSecret(secret.expose().toString('latin1'))) {
    if (bytes === undefined || bytes.length === 0 || seen.has(bytes.toString('latin1'))) continue;
    seen.add(bytes.toString('latin1'));
    const decoded = new Secret(bytes);
    yield { cause, text: `the secret of the key ${name} ${how}`, toKeys: (scheme) => parse(scheme, decoded, 'utf8') };
  }
}

function* decodeSecret(text: string): Generator<SecretForm> {
  yield* toEncodings(text, 'secret_encoding', '');
  const bare = text.replace(PREFIX, '');
  if (bare !== text) yield { cause: 'secret_prefix', how: 'without its prefix', bytes: toBytes(bare) };
  else yield { cause: 'secret_prefix', how: 'with whsec_ before it', bytes: toBytes(`whsec_${text}`) };
  const clean = trimEnds(text.startsWith(BOM) ? text.slice(BOM.length) : text, WRAPPING);
  if (clean !== text) yield* toEncodings(clean, 'secret_whitespace', ' and without the characters around it');
  yield {
    cause: 'secret_whitespace',
    how: 'with a trailing line ending, which the sender may have',
    bytes: toBytes(`${text}\n`),
  };
  // kubectl shows the values of a Secret in base64; pasted into `stringData` or a file, they stay encoded.
  const inner = BASE64.test(clean) ? Buffer.from(clean, 'base64').toString('latin1').trim() : '';
  if (inner !== '') yield* toEncodings(inner, 'secret_encoding', ', which is base64 of the secret');
}

const PREFIX = /^wh(?:sec|sk)_/;
/** A byte order mark (latin1). */
const BOM = 'ï»¿';
/** Whitespace and quotes. */
const WRAPPING: ReadonlySet<string> = new Set(' \t\r\n"\'`');
const BASE64 = /^[A-Za-z0-9+/_-]+={0,2}$/;
const HEX = /^(?:[0-9A-Fa-f]{2})+$/;

function* toEncodings(text: string, cause: ExplainCause, also: string): Generator<SecretForm> {
  const bare = text.replace(PREFIX, '');
  yield { cause, how: `decoded as utf8${also}`, bytes: toBytes(text) };
  yield { cause, how: `decoded as base64${also}`, bytes: BASE64.test(bare) ? Buffer.from(bare, 'base64') : undefined };
  yield { cause, how: `decoded as hex${also}`, bytes: HEX.test(bare) ? Buffer.from(bare, 'hex') : undefined };
}

function toBytes(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}

function parse(scheme: Scheme, secret: Secret, encoding: SecretEncoding | undefined): VerifyKey[] {
  const parsed = scheme.parseKey('tried', secret, encoding);
  return 'key' in parsed ? [parsed.key] : [];
}
