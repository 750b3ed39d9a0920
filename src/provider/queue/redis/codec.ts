/** Converts between the contract's types and what the queue's script reads and writes; base-script.ts describes the formats. */
import type { EpochMilliseconds } from '../../../core/clock.ts';
import type { Target } from '../../endpoints/target.ts';
import type {
  AttemptRecord,
  Delivery,
  DeliveryRecord,
  DeliveryState,
  LaneState,
  NewEvent,
  SettledDelivery,
  StoredEvent,
} from '../delivery-queue.ts';
import { toOwnBytes } from '../own-bytes.ts';
import type { Argument, Reply } from './operations.ts';

/** Redis memory for an event, and for each of its deliveries, besides body and metadata (test/e2e/queue-redis.test.ts measures it). */
const BYTES_PER_EVENT = 600;
const BYTES_PER_DELIVERY = 350;

const STATES: Readonly<Record<string, DeliveryState>> = { w: 'waiting', d: 'delivered', x: 'dead', s: 'skipped' };
const LETTERS: Readonly<Record<DeliveryState, string>> = { waiting: 'w', delivered: 'd', dead: 'x', skipped: 's' };
const SETTLEMENTS = { delivered: 'd', dead: 'x', skipped: 's', retry: 'r', postponed: 'p' } as const;
const MEMBER_PREFIX_LENGTH = 10;

/** The reply as a list. */
export function toList(reply: Reply | undefined): readonly Reply[] {
  return Array.isArray(reply) ? reply : [];
}

/** The reply as text; numbers of Lua that are not whole come as text, too. */
export function toText(reply: Reply | undefined): string {
  return Buffer.isBuffer(reply) ? reply.toString() : String(reply ?? '');
}

/** Undefined for an empty text. */
export function toTime(reply: Reply | undefined): EpochMilliseconds | undefined {
  const text = toText(reply);
  return text === '' ? undefined : Number(text);
}

/** The state of a lane; undefined for an empty text. */
export function decodeLaneState(json: string): LaneState | undefined {
  return json === '' ? undefined : (JSON.parse(json) as LaneState);
}

/** The letters of `states` in the script; undefined: all. */
export function toLetters(states: readonly DeliveryState[] | undefined): string {
  return (states ?? (Object.keys(LETTERS) as DeliveryState[])).map((state) => LETTERS[state]).join('');
}

/** How much an event counts towards the bound in bytes. `parts`: the number of shards that store it. */
export function sizeOf({ body, metadata, targets }: NewEvent, parts: number): number {
  return parts * toSize(body.length + metadata.length, 0) + BYTES_PER_DELIVERY * targets.length;
}

function toSize(content: number, targets: number): number {
  return content + BYTES_PER_EVENT + BYTES_PER_DELIVERY * targets;
}

/** The arguments of `append` for one event with some of its targets. `parts`: the shards with the others, or empty. */
export function encodeEvent(event: NewEvent | StoredEvent, targets: readonly Target[], parts: string): Argument[] {
  const metadata = Buffer.from(event.metadata);
  const blob = Buffer.concat([Buffer.from(`${metadata.length}:`), metadata, event.body]);
  const info = JSON.stringify(event.channel === undefined ? [event.type] : [event.type, event.channel]);
  const encoded = targets.flatMap(({ endpoint, orderKey, isSkipped }) => [
    endpoint,
    orderKey === undefined ? '' : `=${orderKey}`,
    isSkipped === true ? 1 : 0,
  ]);
  return [event.id, info, event.createdAt, toSize(blob.length, targets.length), blob, parts, targets.length, ...encoded];
}

/** The stored values of a delivery that its settlement needs. */
export interface Taken {
  readonly attempt: number;
  readonly tries: number;
  readonly isReplay: boolean;
  readonly member: string;
  readonly created: string;
  /** As it is stored. */
  readonly text: string;
}

/** The arguments of `settle` for one delivery. */
export function encodeSettlement(taken: Taken, { at, settlement, record }: SettledDelivery): Argument[] {
  const { attempt, tries, isReplay, member, created, text } = taken;
  const kind = SETTLEMENTS[settlement.kind];
  const isFinal = settlement.kind !== 'retry' && settlement.kind !== 'postponed';
  const due = isFinal ? '' : settlement.due;
  const made = kind === 'd' || kind === 'x' || kind === 'r' ? 1 : 0;
  const key = toKey(text);
  const next = [isFinal ? kind : 'w', attempt + made, tries + made, isReplay ? 1 : 0, due, isFinal ? at : '', key].join('|');
  return [member, created, text, next, kind, key, due, record === undefined ? '' : encodeAttempt(record)];
}

/** The order key, which starts with `=`; otherwise empty. */
function toKey(text: string): string {
  const at = text.indexOf('|=');
  return at < 0 ? '' : text.slice(at + 1);
}

function encodeAttempt({ at, duration, outcome, status, detail }: AttemptRecord): string {
  const values = [at, duration, outcome, status ?? null, detail ?? null];
  while (values.at(-1) === null) values.pop();
  return JSON.stringify(values);
}

function decodeAttempt(line: string): AttemptRecord {
  const [at, duration, outcome, status, detail] = JSON.parse(line) as [number, number, string, number | null, string];
  return {
    at,
    duration,
    outcome,
    ...(typeof status === 'number' ? { status } : undefined),
    ...(detail === undefined ? undefined : { detail }),
  };
}

/** The newest attempt first. */
export function decodeAttempts(reply: Reply | undefined): AttemptRecord[] {
  return toText(reply)
    .split('\n')
    .filter((line) => line !== '')
    .map(decodeAttempt);
}

/** The creation time in `m` of an event. */
function toCreated(meta: string): string {
  return meta.slice(meta.lastIndexOf('|') + 1);
}

/** `m` and `i` of an event. */
function decodeInfo(meta: string, i: Reply | undefined) {
  const [type = '', channel] = JSON.parse(toText(i)) as readonly string[];
  return { type, createdAt: Number(toCreated(meta)), ...(channel === undefined ? undefined : { channel }) };
}

function decodeBlob(reply: Reply | undefined): { body: Buffer; metadata: string } {
  const blob = Buffer.isBuffer(reply) ? reply : Buffer.from('0:');
  const start = blob.indexOf(':') + 1;
  const end = start + Number(blob.subarray(0, start - 1).toString());
  return { metadata: blob.subarray(start, end).toString(), body: toOwnBytes(blob.subarray(end)) };
}

/** The reply of `event`. */
export function decodeEvent(id: string, reply: Reply): StoredEvent | undefined {
  const [i, m, blob] = toList(reply);
  return m === undefined ? undefined : { id, ...decodeInfo(toText(m), i), ...decodeBlob(blob) };
}

function decodeState(text: string) {
  const [state = '', attempt, tries, replay, due = '', settled = ''] = text.split('|', 6);
  return {
    state: STATES[state] ?? 'waiting',
    attempt: Number(attempt),
    tries: Number(tries),
    isReplay: replay === '1',
    due,
    settled,
  };
}

/** A delivery that was taken. */
export interface TakenDelivery {
  readonly delivery: Delivery;
  readonly taken: Taken;
}

/** The deliveries that `take` returned. */
export function decodeDeliveries(endpoint: string, reply: Reply | undefined): TakenDelivery[] {
  const values = toList(reply);
  const deliveries: TakenDelivery[] = [];
  for (let at = 0; at < values.length; at += 5) {
    const member = toText(values[at]);
    const meta = toText(values[at + 2]);
    const text = toText(values[at + 3]);
    const { attempt, tries, isReplay, due } = decodeState(text);
    const event = member.slice(MEMBER_PREFIX_LENGTH);
    const info = decodeInfo(meta, values[at + 1]);
    deliveries.push({
      delivery: { event, endpoint, ...info, attempt, tries, isReplay, due: Number(due), ...decodeBlob(values[at + 4]) },
      taken: { attempt, tries, isReplay, member, created: toCreated(meta), text },
    });
  }
  return deliveries;
}

/** Where a delivery is in a list. */
export interface Position {
  readonly score: string;
  readonly member: string;
  readonly endpoint: string;
}

/** A delivery of a list, with its position. */
export interface Row extends Position {
  readonly record: DeliveryRecord;
}

/** A row of `scan`. */
export function decodeRow(reply: Reply): Row {
  const [score, member, endpoint, text, attempts, i] = toList(reply).map(toText);
  const { state, attempt, due, settled } = decodeState(text ?? '');
  const [lastAttempt] = attempts === undefined || attempts === '' ? [] : [decodeAttempt(attempts)];
  const [type = '', channel] = JSON.parse(i ?? '[]') as readonly string[];
  const record: DeliveryRecord = {
    event: (member ?? '').slice(MEMBER_PREFIX_LENGTH),
    endpoint: endpoint ?? '',
    type,
    ...(channel === undefined ? undefined : { channel }),
    state,
    createdAt: Number(score),
    attempts: attempt,
    ...(state === 'waiting' ? { due: Number(due) } : undefined),
    ...(settled === '' ? undefined : { settledAt: Number(settled) }),
    ...(lastAttempt === undefined ? undefined : { lastAttempt }),
  };
  return { score: score ?? '', member: member ?? '', endpoint: endpoint ?? '', record };
}
