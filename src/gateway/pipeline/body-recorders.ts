/**
 * Stores the bodies of forwarded events in the journal, on routes with `storeBody`. The entry point of a separate bundle
 * (scripts/bundle.ts), which only such a config loads.
 */
import { isUtf8 } from 'node:buffer';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { type JsonPattern, type JsonPatternStep, parseJsonPattern } from '../../core/json-path.ts';
import { type JsonBounds, type JsonSpan, listElements, listMembers, toWholeSpan } from '../../core/json-scan.ts';
import { containsSecret } from '../../core/secret.ts';
import { parseStrictJson } from '../../core/strict-json.ts';
import type { BodyStored } from '../../telemetry/journal/body-metrics.ts';
import type { BodyAbsence, JournalBody } from '../../telemetry/journal/journal.ts';
import { type RecordedBody, StoredBodies } from '../../telemetry/journal/stored-bodies.ts';
import type { SchemeDescription } from '../../verify/schemes/description.ts';
import type { BodyRecorder, RequestRecord } from './record.ts';

/** Parsed values take many times the memory of their text. */
const BOUNDS: JsonBounds = { maxDepth: 64, maxValues: 10_000 };
/** Credentials in the content, by preset; each reader could use them. */
const CREDENTIALS: Readonly<Record<string, readonly string[]>> = {
  // Tokens that Microsoft signs for the notification.
  'microsoft-graph': ['$.validationTokens'],
  // The signature is in the content, and each URL changes the subscription without a login.
  'aws-sns': ['$.Signature', '$.Token', '$.SubscribeURL', '$.UnsubscribeURL'],
  // The verification token that Slack sent before it signed requests.
  slack: ['$.token'],
};

/** The recorders of all routes. */
export class BodyRecorders {
  readonly #parts;
  readonly #stored: StoredBodies;
  /** As text, by route. */
  readonly #settings = new Map<string, string>();

  constructor(parts: {
    readonly clock: Clock;
    /** Memory of all bodies. */
    readonly maxBytes: number;
    readonly onBody: (outcome: BodyStored) => void;
    /** Whether the process is near its memory limit: nothing is stored then. */
    readonly isMemoryLow: () => boolean;
    /** The signing secrets of all routes: no body with one is stored. */
    readonly secrets: () => readonly Buffer[];
  }) {
    this.#parts = parts;
    this.#stored = new StoredBodies({ ...parts, onEvicted: () => parts.onBody('evicted') });
  }

  /** Memory of all bodies. */
  get bytes(): number {
    return this.#stored.bytes;
  }

  /** Removes half of the bodies: the process is near its memory limit. */
  shed(): void {
    this.#stored.shed();
  }

  /** Creates the recorder of a route. If its settings have changed, its bodies are removed: they may contain what must now be redacted. */
  open(
    route: string,
    {
      maxBytes,
      retention,
      redact,
    }: {
      /** Of one body. */
      readonly maxBytes: number;
      readonly retention: Milliseconds;
      readonly redact: readonly JsonPattern[];
    },
    description: SchemeDescription,
  ): BodyRecorder {
    const patterns = [...redact, ...toCredentials(description)];
    const text = JSON.stringify([maxBytes, retention, patterns]);
    if (this.#settings.get(route) !== text) this.#stored.forget(route);
    this.#settings.set(route, text);
    const { isMemoryLow, onBody, secrets } = this.#parts;
    return {
      record: (ended) => {
        const body = findForwarded(ended);
        if (!Buffer.isBuffer(body)) return body;
        // The request began before a reload.
        if (this.#settings.get(route) !== text) return ABSENT.expired;
        const content = isMemoryLow() ? 'memory_low' : toContent(body, { maxBytes, patterns, secrets: secrets() });
        onBody(typeof content === 'string' ? 'not_stored' : 'stored');
        return typeof content === 'string' ? ABSENT[content] : this.#stored.add(route, content, retention);
      },
    };
  }

  /** Removes the bodies of all other routes. */
  keep(routes: ReadonlySet<string>): void {
    for (const route of this.#settings.keys()) {
      if (routes.has(route)) continue;
      this.#settings.delete(route);
      this.#stored.forget(route);
    }
  }
}

const ABSENT: Readonly<Record<BodyAbsence, JournalBody>> = {
  not_verified: toAbsent('not_verified'),
  not_forwarded: toAbsent('not_forwarded'),
  too_large: toAbsent('too_large'),
  not_json: toAbsent('not_json'),
  not_text: toAbsent('not_text'),
  has_secret: toAbsent('has_secret'),
  memory_low: toAbsent('memory_low'),
  evicted: toAbsent('evicted'),
  expired: toAbsent('expired'),
};

function toAbsent(absence: BodyAbsence): JournalBody {
  return { content: absence, isTruncated: false, redactions: 0, release: () => undefined };
}

/**
 * Only events that were verified and forwarded: an untrusted client, or one that repeats a delivery that it captured, must not be able to
 * store anything, nor to push out the bodies of valid events.
 */
function findForwarded({ event, admitted, outcome }: RequestRecord): Buffer | JournalBody {
  // In observe mode, a repetition passes: it must not take the place of other bodies.
  if (event === undefined || admitted?.observed !== undefined) return ABSENT.not_verified;
  return admitted === undefined || outcome === undefined ? ABSENT.not_forwarded : event.body;
}

interface ContentRules {
  readonly maxBytes: number;
  readonly patterns: readonly JsonPattern[];
  readonly secrets: readonly Buffer[];
}

function toContent(body: Buffer, rules: ContentRules): RecordedBody | BodyAbsence {
  return rules.patterns.length === 0 || body.length === 0 ? toBeginning(body, rules) : toRedacted(body, rules);
}

/** A truncated text is not JSON, so nothing in it could be redacted. */
function toRedacted(body: Buffer, { maxBytes, patterns, secrets }: ContentRules): RecordedBody | BodyAbsence {
  if (body.length > maxBytes) return 'too_large';
  // In one interpretation: otherwise a repeated name could hide a value.
  if (parseStrictJson(body, BOUNDS).kind === 'problem') return 'not_json';
  const redacted = redactJson(body, patterns, maxBytes);
  if (redacted === undefined) return 'too_large';
  const { text, count } = redacted;
  return containsSecret(text, secrets) ? 'has_secret' : { content: text, isTruncated: false, redactions: count };
}

function toBeginning(body: Buffer, { maxBytes, secrets }: ContentRules): RecordedBody | BodyAbsence {
  const length = toBoundary(body, maxBytes);
  const beginning = body.subarray(0, length);
  if (!isUtf8(beginning)) return 'not_text';
  if (containsSecret(body, secrets, length)) return 'has_secret';
  return { content: beginning, isTruncated: length < body.length, redactions: 0 };
}

const CONTINUATION_MASK = 0xc0;
const CONTINUATION = 0x80;

/** At most `maxBytes`, and not within a character of UTF-8. */
function toBoundary(body: Buffer, maxBytes: number): number {
  if (body.length <= maxBytes) return body.length;
  let at = maxBytes;
  while (at > maxBytes - 4 && at > 0 && ((body[at] ?? 0) & CONTINUATION_MASK) === CONTINUATION) at--;
  return at;
}

/** Signatures and tokens, too: with its body, a signature could be sent again. */
function toCredentials({ name, signature, jwt }: SchemeDescription): JsonPattern[] {
  const paths = [signature?.content, signature?.json, jwt?.content, ...(CREDENTIALS[name] ?? [])].filter(
    (path) => path !== undefined,
  );
  // Keeps a form with a signature from being stored: it is not JSON.
  const field = signature?.form === undefined ? [] : [{ text: signature.form, steps: [signature.form] }];
  return [...paths.map(toPattern), ...field];
}

function toPattern(path: string): JsonPattern {
  // The whole body is a token.
  if (path === '$') return { text: path, steps: [] };
  const pattern = parseJsonPattern(path);
  if ('problem' in pattern) throw new Error(pattern.problem);
  return pattern;
}

/** JSON text without the values that patterns select. All other bytes stay as they are: no number loses digits. */
interface Redacted {
  readonly text: Buffer;
  /** How many values were replaced. */
  readonly count: number;
}

const REPLACEMENT = Buffer.from('"[redacted]"');
const QUOTE = 0x22;

/**
 * Replaces every value that a pattern selects. A string in place of the object or array that a pattern expects is replaced as a whole,
 * because it may contain the value (JSON in JSON). `text`: one JSON text that strict-json.ts accepts. Returns undefined if the result
 * would have more than `maxBytes`: replacements can be longer than what they replace.
 */
export function redactJson(text: Buffer, patterns: readonly JsonPattern[], maxBytes: number): Redacted | undefined {
  const found: JsonSpan[] = [];
  collect(text, toWholeSpan(text), { patterns, depth: 0, found });
  const removed = found.reduce((sum, { from, to }) => sum + to - from, 0);
  const length = text.length - removed + found.length * REPLACEMENT.length;
  if (length > maxBytes) return undefined;
  const redacted = Buffer.allocUnsafeSlow(length);
  let copied = 0;
  let at = 0;
  for (const { from, to } of found) {
    at += text.copy(redacted, at, copied, from);
    at += REPLACEMENT.copy(redacted, at);
    copied = to;
  }
  text.copy(redacted, at, copied);
  return { text: redacted, count: found.length };
}

interface RedactionSearch {
  /** Those that select the value at hand, or a part of it. */
  readonly patterns: readonly JsonPattern[];
  /** How many steps of them led here. */
  readonly depth: number;
  readonly found: JsonSpan[];
}

/** No deeper than the longest pattern. */
function collect(text: Buffer, span: JsonSpan, search: RedactionSearch): void {
  const { patterns, depth, found } = search;
  if (patterns.some(({ steps }) => steps.length === depth) || text[span.from] === QUOTE) {
    found.push(span);
    return;
  }
  for (const { name, value } of listMembers(text, span)) descend(text, value, name, search);
  let index = 0;
  for (const element of listElements(text, span)) descend(text, element, index++, search);
}

function descend(text: Buffer, span: JsonSpan, key: string | number, { patterns, depth, found }: RedactionSearch): void {
  const selecting = patterns.filter(({ steps }) => isSelecting(steps[depth], key));
  if (selecting.length > 0) collect(text, span, { patterns: selecting, depth: depth + 1, found });
}

/** `[0]` and `.0` are the same: some senders write a list with gaps as an object whose members are its indexes. */
function isSelecting(step: JsonPatternStep | undefined, key: string | number): boolean {
  return step === null || step === key || (typeof step !== typeof key && String(step) === String(key));
}
