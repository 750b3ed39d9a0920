/** What checks work with: genuine deliveries to vary, a way to send them, and a record of all that was sent. */
import { randomBytes } from 'node:crypto';
import type { Tolerance } from '../../auth/schemes/description.ts';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { pickMediaType } from '../../core/media-type.ts';
import { type Anatomy, getField, type SigningKey } from './anatomy.ts';
import type { Answer, Fields, Reply, SendRequest } from './client.ts';
import type { Sample } from './sample.ts';

/** One delivery; `body` and `fields` are what is sent, whatever was signed. */
export interface Delivery {
  /** What sets it apart from the check's others. */
  readonly label: string;
  readonly id: string;
  readonly timestamp: EpochMilliseconds;
  readonly fields: Fields;
  readonly body: Buffer;
  readonly isChunked?: boolean;
  readonly contentType?: string;
}

/** How a signed delivery differs from a plain one. */
export interface DeliveryOptions {
  readonly label?: string;
  readonly id?: string;
  /** How far its timestamp lies in the past; negative for the future. */
  readonly age?: Milliseconds;
  readonly timestamp?: EpochMilliseconds;
  readonly body?: (id: string, at: EpochMilliseconds) => Buffer;
  readonly key?: SigningKey;
}

/** `in`: a genuine delivery, to be accepted; `out`: to be refused. */
export type Expectation = 'in' | 'out';

/** What an answer gave away. */
export type Leak = 'signature' | 'secret' | 'trace';

/** One delivery and what came of it. */
export interface Exchange {
  readonly checkId: string;
  readonly expects: Expectation;
  readonly label: string;
  readonly reply: Reply;
  readonly leaks: readonly Leak[];
}

/** How often the app handled an event, by its id. */
export type CountHandled = (id: string) => Promise<number>;

/** Of all checks. */
export interface BenchOptions {
  readonly anatomy: Anatomy;
  readonly sample: Sample;
  readonly key: SigningKey;
  readonly clock: Clock;
  readonly tolerance: Tolerance;
  /** Sent with every request; a Content-Type here replaces the scheme's. */
  readonly extraFields: Fields;
  readonly send: SendRequest;
  readonly countHandled: CountHandled | undefined;
}

/** Of one check. */
export interface Bench extends Pick<BenchOptions, 'anatomy' | 'sample' | 'tolerance' | 'countHandled'> {
  now(): EpochMilliseconds;
  readonly contentType: string;
  /** Of all checks, so far. */
  readonly exchanges: readonly Exchange[];
  make(options?: DeliveryOptions): Delivery;
  send(delivery: Delivery, expects: Expectation): Promise<Reply>;
}

/** Of Node.js, Python, Java, Go and Ruby. */
const TRACE =
  /\n\s+at .+:\d+:\d+\)?|Traceback \(most recent call last\)|\bat [\w.$]+\(\w+\.java:\d+\)|goroutine \d+ \[|\.rb:\d+:in /;

/** Makes the benches of all checks, with one record. */
export function createBenches(options: BenchOptions): (checkId: string) => Bench {
  const exchanges: Exchange[] = [];
  const isContentType = ([name]: readonly [string, string]): boolean => name.toLowerCase() === 'content-type';
  const others = options.extraFields.filter((field) => !isContentType(field));
  const { anatomy, sample, clock, tolerance, countHandled } = options;
  const contentType =
    options.extraFields.find(isContentType)?.[1] ??
    pickMediaType(anatomy.description.contentTypes, sample.write('evt_sample', clock.now()));
  return (checkId) => ({
    anatomy,
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

function makeDelivery({ anatomy, sample, clock }: BenchOptions, over: DeliveryOptions): Delivery {
  const { label = 'it', id = `probe_${randomBytes(12).toString('hex')}`, timestamp = clock.now() - (over.age ?? 0) } = over;
  const body = (over.body ?? sample.write)(id, timestamp);
  return { label, id, timestamp, body, fields: anatomy.sign({ id, timestamp, body }, over.key) };
}

/** A refusal that shows the signature which would have been right signs anything for anybody. */
function findLeaks({ text }: Answer, delivery: Delivery, { anatomy, key }: BenchOptions): Leak[] {
  const right = anatomy.split(getField(anatomy.sign(delivery), anatomy.signatureName)).encoded;
  const isSent = delivery.fields.some(([, value]) => value.includes(right));
  const secret = key.secret.expose().toString('latin1');
  const leaks: Leak[] = [];
  if (anatomy.isBodySigned && right !== '' && !isSent && text.includes(right)) leaks.push('signature');
  if (text.includes(secret) || text.includes(secret.replace(/^whs(?:ec|k)_/, ''))) leaks.push('secret');
  if (TRACE.test(text)) leaks.push('trace');
  return leaks;
}

/** 2xx. */
export function isAccepted(reply: Reply): boolean {
  return 'status' in reply && reply.status >= 200 && reply.status < 300;
}
