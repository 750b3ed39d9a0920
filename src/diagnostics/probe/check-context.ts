/** The context of a check: it creates valid deliveries, sends them or variants of them, and records the responses. */
import { randomBytes } from 'node:crypto';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { pickMediaType } from '../../core/media-type.ts';
import type { Tolerance } from '../../verify/schemes/description.ts';
import type { EncodedKey } from '../../verify/schemes/sign.ts';
import type { Fields, ProbeReply, ProbeResponse, SendRequest } from './client.ts';
import { getField, type ProbedScheme } from './probed-scheme.ts';
import type { ProbeSample } from './sample.ts';

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
export type ExpectedDecision = 'accept' | 'reject';

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

/** Whether the status is 2xx. */
export function isAccepted(reply: ProbeReply): boolean {
  return 'status' in reply && reply.status >= 200 && reply.status < 300;
}
