/** A check of an endpoint: its definition, what most checks expect, and its context. */

import { randomBytes } from 'node:crypto';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { pickMediaType } from '../../core/head.ts';
import type { Tolerance } from '../../verify/schemes/description.ts';
import type { EncodedKey } from '../../verify/schemes/sign.ts';
import type { Fields, ProbeReply, ProbeResponse, SendRequest } from './client.ts';
import { getField, type ProbedScheme } from './probed-scheme.ts';
import type { ProbeSample } from './sample.ts';

/** `critical`: forged events are accepted. `major`: events are lost, or handled twice. `minor`: a weakness that is harder to exploit. */
export const SEVERITIES = ['critical', 'major', 'minor'] as const;

/** How bad a failure is. */
export type CheckSeverity = (typeof SEVERITIES)[number];

/** `see`: the responses are correct, but only the app knows the rest, so a person must see for themselves. */
export type Outcome = 'passed' | 'failed' | 'see' | 'not_applicable' | 'skipped';

/** The result of a check. */
export interface CheckFinding {
  readonly outcome: Outcome;
  /** The replies, or why nothing was sent. */
  readonly actual: string;
  /** What to do next, if known. */
  readonly advice?: string;
  /** Decides after everything was sent, because an app may handle events after it responded. */
  readonly later?: () => Promise<CheckFinding>;
}

/** The sections of the report and their headings. */
export const GROUPS = {
  valid: 'Valid deliveries are accepted',
  forged: 'Forged deliveries are rejected',
  time: 'Timestamps',
  once: 'Each event is handled once',
  responses: 'Responses',
} as const;

/** A section of the report. */
export type Group = keyof typeof GROUPS;

/** One check. The report and the documentation show its texts. */
export interface Check {
  readonly id: string;
  readonly group: Group;
  readonly severity: CheckSeverity;
  readonly sent: string;
  readonly expected: string;
  /** The practical impact of a failure. */
  readonly impact: string;
  /** It evaluates the replies to the other checks, so it runs after them. */
  readonly isLast?: true;
  run(context: CheckContext): Promise<CheckFinding>;
}

/** The check does not apply to the scheme or the sample. */
export function notApplicable(why: string): CheckFinding {
  return { outcome: 'not_applicable', actual: why };
}

// Sends deliveries, and compares the responses with what is expected.

/** A delivery and its reply. */
export interface Sent {
  readonly delivery: ProbeDelivery;
  readonly reply: ProbeReply;
}

/** Sends deliveries one after the other. */
export async function sendAll(
  context: CheckContext,
  deliveries: readonly ProbeDelivery[],
  expects: ExpectedDecision,
): Promise<Sent[]> {
  const sent: Sent[] = [];
  for (const delivery of deliveries) sent.push({ delivery, reply: await context.send(delivery, expects) });
  return sent;
}

/** Passes if all replies are 2xx. */
export async function expectAccepted(context: CheckContext, ...deliveries: readonly ProbeDelivery[]): Promise<CheckFinding> {
  const sent = await sendAll(context, deliveries, 'accept');
  return {
    outcome: sent.every(({ reply }) => isAccepted(reply)) ? 'passed' : 'failed',
    actual: describeReplies(sent),
    ...advise(sent),
  };
}

/** Passes if there are responses to all, and none is 2xx. */
export async function expectRejected(context: CheckContext, ...deliveries: readonly ProbeDelivery[]): Promise<CheckFinding> {
  const sent = await sendAll(context, deliveries, 'reject');
  const isRejected = sent.every(({ reply }) => 'status' in reply && !isAccepted(reply) && reply.status !== 429);
  return { outcome: isRejected ? 'passed' : 'failed', actual: describeReplies(sent), ...advise(sent) };
}

/** Whether the status is 2xx. */
export function isAccepted(reply: ProbeReply): boolean {
  return 'status' in reply && reply.status >= 200 && reply.status < 300;
}

/** The status, or why there is none. */
function describeReply(reply: ProbeReply): string {
  return 'status' in reply ? String(reply.status) : reply.failure;
}

/** The replies in one line, without repetitions. */
export function describeReplies(sent: readonly Sent[]): string {
  const texts = new Set(sent.map(({ reply }) => describeReply(reply)));
  const [first = 'nothing'] = texts;
  if (texts.size <= 1) return sent.length === 1 ? first : `${first} to ${sent.length === 2 ? 'both' : `all ${sent.length}`}`;
  return sent.map(({ delivery, reply }) => `${describeReply(reply)} to ${delivery.label}`).join('; ');
}

/** A rate limit hides the actual decision. */
function advise(sent: readonly Sent[]): { advice?: string } {
  const isLimited = sent.some(({ reply }) => 'status' in reply && reply.status === 429);
  return isLimited
    ? { advice: 'the endpoint rate-limits requests (429): raise the limit for the probe, or use --parallel 1' }
    : {};
}

/** A signature with another key, as an entry of the signature header. */
export function toForeignEntry({ scheme }: CheckContext, delivery: ProbeDelivery): string {
  const { prefix, encoded } = scheme.split(getField(scheme.sign(delivery, scheme.foreignKey), scheme.signatureName));
  return `${prefix}${encoded}`;
}

// The context: it creates valid deliveries, sends them or variants of them, and records the responses.

/** One delivery; `body` and `fields` are sent as they are, even if others were signed. */
export interface ProbeDelivery {
  /** Distinguishes it from the check's other deliveries. */
  readonly label: string;
  readonly id: string;
  readonly timestamp: EpochMilliseconds;
  readonly fields: Fields;
  readonly body: Buffer;
  readonly isChunked?: boolean;
  readonly contentType?: string;
}

/** How a delivery differs from the default. */
interface ProbeDeliveryOptions {
  readonly label?: string;
  readonly id?: string;
  /** Age of its timestamp; negative: in the future. */
  readonly age?: Milliseconds;
  readonly timestamp?: EpochMilliseconds;
  readonly body?: (id: string, at: EpochMilliseconds) => Buffer;
  readonly key?: EncodedKey;
}

/** Whether the endpoint must accept or reject a delivery. */
type ExpectedDecision = 'accept' | 'reject';

/** Confidential data that a response contained. */
export type Leak = 'signature' | 'secret' | 'trace';

/** A delivery and its reply. */
export interface ProbeExchange {
  readonly checkId: string;
  readonly expects: ExpectedDecision;
  readonly label: string;
  readonly reply: ProbeReply;
  readonly leaks: readonly Leak[];
}

/** Counts how often the app handled the event with this ID. */
export type CountHandled = (id: string) => Promise<number>;

/** Options that all checks share. */
export interface ContextOptions {
  readonly scheme: ProbedScheme;
  readonly sample: ProbeSample;
  readonly key: EncodedKey;
  readonly clock: Clock;
  readonly tolerance: Tolerance;
  /** Sent with every request; a Content-Type replaces that of the scheme. */
  readonly extraFields: Fields;
  readonly send: SendRequest;
  readonly countHandled: CountHandled | undefined;
}

/** The context of one check. */
export interface CheckContext extends Pick<ContextOptions, 'scheme' | 'sample' | 'tolerance' | 'countHandled'> {
  now(): EpochMilliseconds;
  readonly contentType: string;
  /** Of all checks so far. */
  readonly exchanges: readonly ProbeExchange[];
  make(options?: ProbeDeliveryOptions): ProbeDelivery;
  send(delivery: ProbeDelivery, expects: ExpectedDecision): Promise<ProbeReply>;
}

/** Stack traces of Node.js, Python, Java, Go and Ruby. */
const STACK_TRACE =
  /\n\s+at .+:\d+:\d+\)?|Traceback \(most recent call last\)|\bat [\w.$]+\(\w+\.java:\d+\)|goroutine \d+ \[|\.rb:\d+:in /;

/** Returns a function that creates the context of a check; all contexts share one record. */
export function createContexts(options: ContextOptions): (checkId: string) => CheckContext {
  const exchanges: ProbeExchange[] = [];
  const isContentType = ([name]: readonly [string, string]): boolean => name.toLowerCase() === 'content-type';
  const others = options.extraFields.filter((field) => !isContentType(field));
  const { scheme, sample, clock, tolerance, countHandled } = options;
  const contentType =
    options.extraFields.find(isContentType)?.[1] ??
    pickMediaType(scheme.description.contentTypes, sample.write('evt_sample', clock.now())) ??
    'application/json';
  return (checkId) => ({
    scheme,
    sample,
    now: () => clock.now(),
    tolerance,
    countHandled,
    contentType,
    exchanges,
    make: (over = {}) => makeDelivery(options, over),
    async send(delivery, expects) {
      const fields: Fields = [['Content-Type', delivery.contentType ?? contentType], ...others, ...delivery.fields];
      const reply = await options.send({ fields, body: delivery.body, isChunked: delivery.isChunked === true });
      const leaks = 'status' in reply ? findLeaks(reply, delivery, options) : [];
      exchanges.push({ checkId, expects, label: delivery.label, reply, leaks });
      return reply;
    },
  });
}

function makeDelivery({ scheme, sample, clock }: ContextOptions, over: ProbeDeliveryOptions): ProbeDelivery {
  const { label = 'delivery', id = `probe_${randomBytes(12).toString('hex')}`, timestamp = clock.now() - (over.age ?? 0) } = over;
  const body = (over.body ?? sample.write)(id, timestamp);
  return { label, id, timestamp, body, fields: scheme.sign({ id, timestamp, body }, over.key) };
}

/** A response that contains the correct signature lets an attacker sign any event. */
function findLeaks({ text }: ProbeResponse, delivery: ProbeDelivery, { scheme, key }: ContextOptions): Leak[] {
  const correct = scheme.split(getField(scheme.sign(delivery), scheme.signatureName)).encoded;
  const isSent = delivery.fields.some(([, value]) => value.includes(correct));
  const secret = key.secret.expose().toString('latin1');
  const leaks: Leak[] = [];
  if (scheme.isBodySigned && correct !== '' && !isSent && text.includes(correct)) leaks.push('signature');
  if (text.includes(secret) || text.includes(secret.replace(/^whs(?:ec|k)_/, ''))) leaks.push('secret');
  if (STACK_TRACE.test(text)) leaks.push('trace');
  return leaks;
}
