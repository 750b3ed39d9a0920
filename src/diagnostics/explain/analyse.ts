/** Finds out why a signature was refused: tries what would have made it match, one or two changes at a time, within a budget. */

import type { VerifyKey } from '../../auth/schemes/scheme.ts';
import type { SignedHead } from '../../core/event.ts';
import { Refusal } from '../../core/refusal.ts';
import { type BodyForm, toBodyForms } from './body-forms.ts';
import { toFinding, toHeadHints, toTimeHints } from './hints.ts';
import { type KeyForm, toKeyForms } from './key-forms.ts';
import { List } from './list.ts';
import type { Meter } from './meter.ts';
import { type Reading, toReadings } from './readings.ts';
import type { Explanation, Finding, Suspect } from './suspect.ts';

/** What is changed in a combination. */
interface Shape {
  readonly reading: boolean;
  readonly key: boolean;
  readonly body: boolean;
}

/** The likely first, and those of the content last, as its forms cost most. Three changes at once would prove little to anybody. */
const SHAPES: readonly Shape[] = [
  { reading: false, key: false, body: false },
  { reading: false, key: true, body: false },
  { reading: true, key: false, body: false },
  { reading: false, key: false, body: true },
  { reading: true, key: true, body: false },
  { reading: false, key: true, body: true },
  { reading: true, key: false, body: true },
];
/** Of an assembled head, and the fixed cost of a MAC. */
const CANDIDATE_BYTES = 128;

/** What matched. */
interface Match {
  readonly reading: Reading;
  readonly body: BodyForm;
  readonly key: KeyForm;
}

/** Analyses; at each `yield` the caller may let other work go first. */
export function* analyse(suspect: Suspect, meter: Meter): Generator<void, Explanation> {
  const { scheme, allowDotInId, request } = suspect;
  const head = scheme.readHead(request.headers, { allowDotInId });
  const hints = toHeadHints(suspect, head);
  const times = toTimes(suspect, head);
  const match = request.body === undefined ? undefined : yield* search(suspect, request.body, meter);
  if (match !== undefined) return toProven(match, hints, times);
  const found = [...hints, ...times];
  if (request.body !== undefined && hints.length === 0) found.unshift(toUnknown(suspect, meter));
  if (found.length === 0) found.push(toUnknown(suspect, meter));
  return { findings: found, isProven: false };
}

/** The time of the head, or of the content where the scheme has it there. */
function toTimes(suspect: Suspect, head: SignedHead | Refusal): Finding[] {
  const { scheme, request } = suspect;
  if (head instanceof Refusal) return [];
  if (head.timestamp !== undefined) return toTimeHints(suspect, head.timestamp);
  const { timestamp } = scheme.description;
  if (timestamp === undefined || !('json' in timestamp.from) || request.body === undefined) return [];
  const identity = scheme.identify(head, { method: request.method, url: '', body: request.body });
  return 'problem' in identity || identity.timestamp === undefined ? [] : toTimeHints(suspect, identity.timestamp);
}

/** Tries all combinations of at most two changes, in the order of SHAPES. */
function* search(suspect: Suspect, body: Buffer, meter: Meter): Generator<void, Match | undefined> {
  const asReceived: BodyForm = { cause: undefined, text: '', bytes: body };
  const forms: Forms = {
    readings: new List<Reading>(undefined, toReadings(suspect)),
    bodies: new List(asReceived, toBodyForms(body, meter)),
    keys: new List<KeyForm>(undefined, toKeyForms(suspect)),
  };
  for (const shape of SHAPES) {
    for (const candidate of combine(forms, shape)) {
      if (candidate === undefined) {
        yield;
        continue;
      }
      const keys = candidate.key.toKeys(candidate.reading.scheme);
      if (keys.length === 0) continue;
      if (!meter.takeCandidate(keys.length * (candidate.body.bytes.length + CANDIDATE_BYTES))) return undefined;
      yield;
      if (isMatch(suspect, candidate, keys)) return candidate;
    }
  }
  return undefined;
}

interface Forms {
  readonly readings: List<Reading>;
  readonly bodies: List<BodyForm>;
  readonly keys: List<KeyForm>;
}

/** All combinations with the changes of one shape; undefined where other work may go first. */
function* combine({ readings, bodies, keys }: Forms, shape: Shape): Generator<Match | undefined> {
  for (const reading of readings.all(shape.reading)) {
    if (reading === undefined) yield undefined;
    // A token says nothing of the content.
    else if (!shape.body || reading.scheme.description.signed.length > 0)
      for (const body of bodies.all(shape.body)) yield* withKeys(reading, body, keys.all(shape.key));
  }
}

function* withKeys(
  reading: Reading,
  body: BodyForm | undefined,
  keys: Iterable<KeyForm | undefined>,
): Generator<Match | undefined> {
  if (body === undefined) yield undefined;
  else for (const key of keys) yield key && { reading, body, key };
}

function isMatch({ request: { method } }: Suspect, { reading, body: { bytes } }: Match, keys: readonly VerifyKey[]): boolean {
  const { scheme, headers, url } = reading;
  const head = scheme.readHead(headers, { allowDotInId: true });
  return !(head instanceof Refusal) && scheme.verify(head, { method, url, body: bytes }, keys) !== undefined;
}

function toProven({ reading, body, key }: Match, hints: readonly Finding[], times: readonly Finding[]): Explanation {
  const parts: string[] = [];
  if (reading.cause !== undefined) parts.push(reading.text);
  if (body.cause !== undefined) parts.push(body.text);
  if (key.cause !== undefined) parts.push(`with ${key.text}`);
  const text = `it matches ${parts.join(', and ')}${key.cause === undefined ? `, with ${key.text}` : ''}`;
  const causes = [reading.cause, body.cause, key.cause].filter((cause) => cause !== undefined);
  const proven = causes.map((cause) => toFinding(cause, text));
  // Genuine as it is: only the head, or the time, was against it.
  if (proven.length === 0) return { findings: [...hints, ...times], isProven: true };
  return { findings: [...proven, ...times], isProven: true };
}

function toUnknown({ request: { body, headers } }: Suspect, meter: Meter): Finding {
  if (body === undefined) return toFinding('unknown', 'the content was not kept, so nothing could be tried');
  const tried = `none of ${meter.candidates} readings matches${meter.isExceeded ? ', and there were more than the analysis may try' : ''}`;
  if (body.length === 0)
    return toFinding('unknown', `${tried}; the body is empty, so something may have read it before the gate`);
  if (headers.get('content-encoding') !== undefined)
    return toFinding('unknown', `${tried}; there is a Content-Encoding, so a proxy may have compressed what was signed`);
  const via = headers.get('via') === undefined && headers.get('x-forwarded-for') === undefined;
  const proxies = via ? '' : '; proxies stand before the gate, which may have changed the content';
  return toFinding('unknown', `${tried}: another secret, or a body that was parsed and written again${proxies}`);
}
