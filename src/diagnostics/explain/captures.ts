/** Keeps the most recent rejected deliveries of the routes with `capture: failures`, in memory only, for `sidegate explain`. */

import { type Clock, type EpochMilliseconds, type Milliseconds, toInstant } from '../../core/clock.ts';
import type { HeaderFields, RequestTarget } from '../../core/head.ts';
import { rememberClientNetworks } from '../../core/ip-address.ts';
import type { Refusal } from '../../core/refusal.ts';
import type { ParsedHead } from '../../core/request.ts';
import { containsSecret } from '../../core/secret.ts';
import { TokenBucket } from '../../core/throttle.ts';
import { PRESETS } from '../../verify/presets/catalogue.ts';
import { coversQuery, listFieldHeaders, readsQuery } from '../../verify/schemes/coverage.ts';
import { isToken, type SchemeDescription, type SignatureDescription } from '../../verify/schemes/description.ts';
import type { CaptureOutcome } from './explain-metrics.ts';
import { EXPLAINED_REASONS } from './explainer.ts';
import { CONVENTIONAL_HEADERS } from './head-forms.ts';

/** In the whole process. */
export const MAX_CAPTURES = 20;
/** Allocated for all captures together. */
export const MAX_CAPTURED_BYTES = 1_048_576;
/** Larger bodies are truncated. */
export const MAX_CAPTURED_BODY_BYTES = 65_536;
/** Per client network. */
export const MAX_CAPTURES_PER_CLIENT = 5;
const MAX_BYTES_PER_CLIENT = MAX_CAPTURED_BYTES / 4;
/** Bodies may contain personal data, which must not stay longer than operators need it. */
const MAX_AGE_MS: Milliseconds = 86_400_000;
/** Memory that an entry needs besides its archive. */
const ENTRY_OVERHEAD_BYTES = 1_024;
/** Captures per second of one client network. */
const CLIENT_RATE = 0.2;
/** Captures per second of all clients: each one copies and encodes a body. */
const RATE = 1;
/** Clients whose rate is limited separately. */
const MAX_CLIENTS = 256;

/** One capture, as the list shows it. */
interface CaptureSummary {
  readonly requestId: string;
  readonly route: string;
  readonly at: string;
  readonly method: string;
  readonly reason: string;
  readonly body: CapturedBody;
  /** Size of the archive. */
  readonly bytes: number;
}

/** A rejected delivery, and what limits how long it is kept. */
export interface Capture {
  readonly client: string;
  readonly receivedAt: EpochMilliseconds;
  readonly route: string;
  readonly requestId: string;
  readonly method: string;
  readonly reason: string;
  readonly bodyState: CapturedBody;
  readonly har: Buffer;
  /** Allocated memory. */
  readonly bytes: number;
}

/** The captures of a process. */
export class Captures {
  readonly #clock: Clock;
  readonly #onOutcome: (outcome: CaptureOutcome) => void;
  readonly #rate: TokenBucket;
  readonly #toNetwork = rememberClientNetworks();
  /** In the order of last use. */
  readonly #clientRates = new Map<string, TokenBucket>();
  #routes: ReadonlyMap<string, CaptureRedaction> = new Map();
  #secrets: () => readonly Buffer[] = () => [];
  /** The oldest first. */
  #captures: Capture[] = [];

  constructor(clock: Clock, onOutcome: (outcome: CaptureOutcome) => void) {
    this.#clock = clock;
    this.#onOutcome = onOutcome;
    this.#rate = new TokenBucket(RATE, MAX_CAPTURES, clock);
  }

  /** Replaces the routes that capture, and the secrets that no capture may contain. Deletes the captures of all other routes. */
  take(routes: ReadonlyMap<string, SchemeDescription>, secrets: () => readonly Buffer[]): void {
    this.#routes = new Map([...routes].map(([name, description]) => [name, new CaptureRedaction(description)]));
    this.#secrets = secrets;
    this.#captures = this.#captures.filter(({ route }) => this.#routes.has(route));
  }

  /** Captures a rejected delivery, if its route asks for it and neither its client nor the process has used up its share. */
  offer(route: string, head: ParsedHead, refusal: Refusal): void {
    const redaction = this.#routes.get(route);
    if (redaction === undefined || !EXPLAINED_REASONS.has(refusal.reason)) return;
    const client = this.#toNetwork(head.client.address);
    // The client's rate first: a client over its rate must not use up the others'.
    const mayCapture = this.#toClientRate(client).take() && this.#rate.take();
    const capture = mayCapture ? toCapture(head, refusal, { route, client, redaction, secrets: this.#secrets() }) : undefined;
    if (capture === undefined || capture.bytes > MAX_BYTES_PER_CLIENT) return this.#onOutcome('dropped');
    this.#keep(capture);
    this.#onOutcome('kept');
  }

  /** Removes all captures, which those of another thread are to keep, and returns them. */
  takeAll(): readonly Capture[] {
    const taken = this.#captures;
    this.#captures = [];
    return taken;
  }

  /** Keeps captures of another thread; not those of routes that no longer capture. */
  adopt(captures: readonly Capture[]): void {
    // A message between threads makes a plain array of a buffer.
    for (const { har, ...capture } of captures)
      if (this.#routes.has(capture.route)) this.#keep({ ...capture, har: Buffer.from(har) });
  }

  #keep(capture: Capture): void {
    this.forgetOld();
    this.#makeRoom(capture);
    this.#captures.push(capture);
  }

  /** The newest first. */
  list(): CaptureSummary[] {
    this.forgetOld();
    return this.#captures.toReversed().map(({ requestId, route, receivedAt, method, reason, bodyState, har }) => {
      return { requestId, route, at: toInstant(receivedAt), method, reason, body: bodyState, bytes: har.length };
    });
  }

  /** The delivery as an HTTP Archive. */
  find(requestId: string): string | undefined {
    this.forgetOld();
    return this.#captures.find((capture) => capture.requestId === requestId)?.har.toString('utf8');
  }

  /** Deletes all captures and returns how many there were. */
  clear(): number {
    const { length } = this.#captures;
    this.#captures = [];
    return length;
  }

  /** Deletes the captures that are too old; called every second, because nobody may ask for them. */
  forgetOld(): void {
    const oldest = this.#clock.now() - MAX_AGE_MS;
    if (this.#captures.some(({ receivedAt }) => receivedAt < oldest))
      this.#captures = this.#captures.filter(({ receivedAt }) => receivedAt >= oldest);
  }

  /** Memory of all captures in bytes. */
  get allocated(): number {
    return toBytes(this.#captures);
  }

  #toClientRate(client: string): TokenBucket {
    const rate = this.#clientRates.get(client) ?? new TokenBucket(CLIENT_RATE, MAX_CAPTURES_PER_CLIENT, this.#clock);
    this.#clientRates.delete(client);
    this.#clientRates.set(client, rate);
    const [oldest] = this.#clientRates.keys();
    if (this.#clientRates.size > MAX_CLIENTS && oldest !== undefined) this.#clientRates.delete(oldest);
    return rate;
  }

  /** A client that has captures replaces its own, so that it cannot push out those of other clients. */
  #makeRoom({ client, bytes }: Capture): void {
    for (;;) {
      const own = this.#captures.filter((each) => each.client === client);
      const isOverShare = own.length >= MAX_CAPTURES_PER_CLIENT || toBytes(own) + bytes > MAX_BYTES_PER_CLIENT;
      const isFull = this.#captures.length >= MAX_CAPTURES || this.allocated + bytes > MAX_CAPTURED_BYTES;
      if (!isOverShare && !isFull) return;
      const victim = own[0] ?? this.#findVictim();
      this.#captures = this.#captures.filter((each) => each !== victim);
    }
  }

  /** The oldest capture of the client that has the most. */
  #findVictim(): Capture | undefined {
    const counts = new Map<string, number>();
    for (const { client } of this.#captures) counts.set(client, (counts.get(client) ?? 0) + 1);
    const most = Math.max(...counts.values());
    return this.#captures.find(({ client }) => counts.get(client) === most);
  }
}

function toBytes(captures: readonly Capture[]): number {
  return captures.reduce((sum, { bytes }) => sum + bytes, 0);
}

function toCapture(
  head: ParsedHead,
  { reason, detail }: Refusal,
  {
    route,
    client,
    redaction,
    secrets,
  }: {
    readonly route: string;
    readonly client: string;
    readonly redaction: CaptureRedaction;
    readonly secrets: readonly Buffer[];
  },
): Capture {
  const { requestId, method, receivedAt, headers } = head;
  const fields = redaction.toFields(headers, secrets);
  const { target, isWhole: isTargetWhole } = redaction.toTarget(head.target, secrets);
  const host = fields.find(([name]) => name.toLowerCase() === 'host')?.[1] ?? REDACTED;
  const { body, bodyState, bodySize } = toBody(head, secrets);
  const delivery = { requestId, route, reason, detail, receivedAt, method, target, fields, body, bodyState, bodySize };
  const har = formatHar({ ...delivery, isTargetWhole, host: host === REDACTED ? 'redacted.invalid' : host });
  return { client, receivedAt, route, requestId, method, reason, bodyState, har, bytes: har.length + ENTRY_OVERHEAD_BYTES };
}

/** Only a body that a gate has read: the capture reads nothing more from an unauthenticated client. */
function toBody(
  { body: { content, declaredLength = -1 } }: ParsedHead,
  secrets: readonly Buffer[],
): { body: Buffer; bodyState: CapturedBody; bodySize: number } {
  const none = Buffer.alloc(0);
  if (!Buffer.isBuffer(content))
    return { body: none, bodyState: declaredLength === 0 ? 'complete' : 'not_read', bodySize: declaredLength };
  const bodySize = content.length;
  const body = content.subarray(0, MAX_CAPTURED_BODY_BYTES);
  if (containsSecret(content, secrets, body.length)) return { body: none, bodyState: 'withheld', bodySize };
  return { body, bodyState: body.length < bodySize ? 'truncated' : 'complete', bodySize };
}

// Writes a captured delivery as an HTTP Archive (HAR 1.2), which `sidegate explain` and other tools read.

/** How much of the body is captured; `withheld`: nothing, because it contains a configured secret. */
type CapturedBody = 'complete' | 'truncated' | 'not_read' | 'withheld';

/** A rejected delivery, after redaction. */
interface CapturedDelivery {
  readonly requestId: string;
  readonly route: string;
  readonly reason: string;
  readonly detail: string | undefined;
  readonly receivedAt: EpochMilliseconds;
  readonly method: string;
  readonly host: string;
  readonly target: string;
  readonly fields: readonly (readonly [name: string, value: string])[];
  readonly body: Buffer;
  readonly bodyState: CapturedBody;
  /** In bytes, as received. */
  readonly bodySize: number;
  /** The target was not redacted. */
  readonly isTargetWhole: boolean;
}

const BODY_NOTES: Readonly<Record<CapturedBody, string | undefined>> = {
  complete: undefined,
  truncated: 'the body was truncated, because it is too large for a capture: the signature cannot be checked',
  not_read: 'the delivery was rejected because of its headers, and its body was not read: the signature cannot be checked',
  withheld: 'the body was not captured, because it contains a configured secret: the signature cannot be checked',
};

/**
 * Formats the archive into a buffer of exactly its size, so that the capture keeps no memory of the request. HAR 1.2 reserves names
 * with an underscore for applications: `_sidegate` contains everything that HAR has no field for.
 */
function formatHar(delivery: CapturedDelivery): Buffer {
  const { method, host, target, fields, body, bodySize, bodyState, receivedAt, isTargetWhole } = delivery;
  const { requestId, route, reason, detail } = delivery;
  const notes = [
    BODY_NOTES[bodyState],
    isTargetWhole
      ? undefined
      : 'the query, or the whole target, was redacted: if the sender signs the URL, the signature cannot match',
  ];
  const headers = fields.map(([name, value]) => ({ name, value: Buffer.from(value, 'latin1').toString('utf8') }));
  const mimeType = headers.find(({ name }) => name.toLowerCase() === 'content-type')?.value ?? '';
  const request = {
    method,
    url: `https://${host}${target}`,
    httpVersion: 'HTTP/1.1',
    cookies: [],
    headers,
    queryString: [],
    ...(body.length === 0 ? undefined : { postData: { mimeType, text: body.toString('base64'), encoding: 'base64' } }),
    headersSize: -1,
    bodySize,
  };
  const own = { requestId, route, reason, detail, body: bodyState, notes: notes.filter((note) => note !== undefined) };
  const entry = { startedDateTime: toInstant(receivedAt), time: 0, request, ...NO_RESPONSE, _sidegate: own };
  const text = JSON.stringify({ log: { version: '1.2', creator: { name: 'sidegate', version: '1' }, entries: [entry] } });
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(text));
  bytes.write(text);
  return bytes;
}

/** HAR requires these fields. */
const NO_RESPONSE = {
  response: {
    status: 0,
    statusText: '',
    httpVersion: 'HTTP/1.1',
    cookies: [],
    headers: [],
    content: { size: 0, mimeType: '' },
    redirectURL: '',
    headersSize: -1,
    bodySize: -1,
  },
  cache: {},
  timings: { send: 0, wait: 0, receive: 0 },
};

// Decides which parts of a rejected delivery may be captured: those that the analysis needs, without configured secrets.

/** Replaces a value that is not captured. */
const REDACTED = '[redacted]';

/** A shorter secret is not searched for: it would occur by chance. */
const MIN_SECRET_BYTES = 8;
const SECRET_PREFIX = 'whsec_';
/** Fields whose values the analysis needs, in addition to those of the schemes. */
const NEEDED_HEADERS: readonly string[] = [
  'host',
  'content-type',
  'content-length',
  'content-encoding',
  'transfer-encoding',
  'via',
  'x-forwarded-host',
  'x-forwarded-port',
  'x-forwarded-proto',
];
/** Fields that contain credentials, even if a scheme reads its signature from them. */
const CREDENTIAL_HEADERS: ReadonlySet<string> = new Set([
  'authorization',
  'proxy-authorization',
  'cookie',
  'set-cookie',
  ...PRESETS.flatMap(({ signature }) => (signature !== undefined && isToken(signature) ? [signature.header.toLowerCase()] : [])),
]);
const PRESET_HEADERS: ReadonlySet<string> = new Set([
  ...NEEDED_HEADERS,
  ...CONVENTIONAL_HEADERS,
  ...PRESETS.flatMap(toHeaderNames),
]);
const SENSITIVE_PARAMETER = /token|secret|key|pass|pwd|auth|cred|session|jwt|cookie|code|bearer/i;

/** Redacts the deliveries of one route. */
class CaptureRedaction {
  readonly #signature: SignatureDescription | undefined;
  readonly #kept: ReadonlySet<string>;
  readonly #signsUrl: boolean;
  readonly #digestParameter: string | undefined;

  constructor(description: SchemeDescription) {
    this.#signature = description.signature;
    this.#kept = new Set([...PRESET_HEADERS, ...toHeaderNames(description)]);
    this.#signsUrl = coversQuery(description) || readsQuery(description);
    this.#digestParameter = description.contentDigestParameter;
  }

  /** Returns every field line; its value only if the analysis needs it. */
  toFields(headers: HeaderFields, secrets: readonly Buffer[]): (readonly [name: string, value: string])[] {
    const redact = (text: string): string => (containsSecret(Buffer.from(text, 'latin1'), secrets) ? REDACTED : text);
    return headers.names.map((name, i) => {
      const value = headers.raw[i * 2 + 1] as string;
      return [redact(headers.raw[i * 2] as string), this.#isKept(name, value) ? redact(value) : REDACTED];
    });
  }

  /** Returns the target. A query is kept only if the sender signs the URL, and then without values that look like credentials. */
  toTarget(
    { raw, path, query }: RequestTarget,
    secrets: readonly Buffer[],
  ): { readonly target: string; readonly isWhole: boolean } {
    const kept = query === undefined ? path : `${path}?${this.#toQuery(query)}`;
    const target = containsSecret(Buffer.from(kept, 'latin1'), secrets) ? '/redacted' : kept;
    return { target, isWhole: target === raw };
  }

  #toQuery(query: string): string {
    if (!this.#signsUrl) return query === '' ? '' : 'redacted';
    return query
      .split('&')
      .map((parameter) => this.#toParameter(parameter))
      .join('&');
  }

  #toParameter(parameter: string): string {
    const end = parameter.indexOf('=');
    // A parameter without a name may be a credential as a whole.
    if (end < 1) return parameter === '' ? '' : 'redacted';
    // Some parsers also separate parameters by semicolons.
    const names = parameter.split(';').map((part) => toDecoded(part.split('=', 1)[0] ?? ''));
    const isSensitive = names.some((name) => name !== this.#digestParameter && SENSITIVE_PARAMETER.test(name));
    return isSensitive ? `${parameter.slice(0, end)}=redacted` : parameter;
  }

  #isKept(name: string, value: string): boolean {
    if (!CREDENTIAL_HEADERS.has(name)) return this.#kept.has(name);
    // Some senders put their signature into Authorization. A value with any other prefix may be a credential.
    const signature = this.#signature;
    if (signature === undefined || isToken(signature) || signature.header.toLowerCase() !== name) return false;
    return signature.forms.some(({ prefix }) => prefix !== '' && value.startsWith(prefix));
  }
}

/** Returns the bytes to search for: the secrets as they are written in their files and variables. */
export function toSecretBytes(texts: Iterable<Buffer>): Buffer[] {
  const found: Buffer[] = [];
  for (const text of texts) {
    const trimmed = text.toString('latin1').trim();
    const bare = trimmed.startsWith(SECRET_PREFIX) ? trimmed.slice(SECRET_PREFIX.length) : trimmed;
    if (bare.length >= MIN_SECRET_BYTES) found.push(Buffer.from(bare, 'latin1'));
  }
  return found;
}

function toDecoded(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return text;
  }
}

function toHeaderNames(description: SchemeDescription): string[] {
  const { signature, timestamp, id, kind = [], twins = {} } = description;
  const sources = [timestamp?.from, id].flatMap((source) => (source !== undefined && 'header' in source ? [source.header] : []));
  const own = signature === undefined || isToken(signature) ? [] : [signature.header, ...listFieldHeaders(description)];
  return [...own, ...sources, ...kind, ...Object.values(twins)].map((name) => name.toLowerCase());
}
