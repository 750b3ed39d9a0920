/** Finds out why a signature was rejected: tries variants of the request and of the keys, with one or two changes, within a budget. */
import type { SignedHead } from '../../core/event.ts';
import type { Refusal } from '../../core/refusal.ts';
import { isBodyPlace } from '../../verify/schemes/body-values.ts';
import { compileTwinTest, renameToTwins } from '../../verify/schemes/head.ts';
import type { VerifyKey } from '../../verify/schemes/scheme.ts';
import { type AnalysisInput, type ExplainFinding, type Explanation, isRefused, type Meter, readWholeHead } from './analysis.ts';
import { type BodyForm, toBodyForms } from './body-forms.ts';
import { type HeadForm, toHeadForms } from './head-forms.ts';
import { analyzeToken, toFinding, toHeadHints, toTimeHints } from './hints.ts';
import { type KeyForm, toKeyForms } from './key-forms.ts';

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
