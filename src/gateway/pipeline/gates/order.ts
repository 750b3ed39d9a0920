/** Rejects events that are older than a handled one of the same resource, and forwards a resource's events one at a time. */
import { crc32 } from 'node:zlib';
import type { Clock, Milliseconds } from '../../../core/clock.ts';
import type { Claim } from '../../../core/event.ts';
import type { JsonPath } from '../../../core/json-path.ts';
import { findScalar, toJsonText } from '../../../core/json-scan.ts';
import { acknowledge } from '../../../core/refusal.ts';
import type { ParsedHead } from '../../../core/request.ts';
import type { EnterRequest, NewestVersions } from '../../../state/newest-versions.ts';
import {
  acquireClaim,
  Busy,
  type ClaimAttempt,
  type ClaimParts,
  type ClaimPolicy,
  type ClaimReply,
  type ClaimWaiters,
  type Grant,
  NOTHING_CLAIMED,
  type ResourceSettlement,
  SettledClaim,
  type Settlements,
} from '../claims.ts';
import { toResourceKey } from './dedup.ts';
import type { ClaimGate } from './gate.ts';

/** A route's policy for events that arrive out of order. */
export interface OrderOptions {
  /** The route's name: resources of different routes never collide. */
  readonly route: string;
  /** Where the content names its resource. */
  readonly key: JsonPath;
  /** Where the content has its version: a number, digits, or an RFC 3339 time. */
  readonly version: JsonPath;
  /** How long the newest version of a resource is remembered. */
  readonly retention: Milliseconds;
  readonly lease: Milliseconds;
  readonly maxWait: Milliseconds;
  readonly onStale: 'acknowledge' | 'forward';
  readonly onStoreError: 'refuse' | 'forward';
}

/** An event that is counted. */
export type OrderEvent = 'entered' | 'stale' | 'busy' | 'unordered' | 'held' | 'bypassed' | 'unavailable';

/** The dependencies that the order gates of all routes share. */
interface OrderParts {
  readonly versions: NewestVersions;
  readonly settlements: Settlements;
  readonly clock: Clock;
  readonly waiters: ClaimWaiters;
  readonly onEvent: (event: OrderEvent) => void;
}

const STALE: Grant = { claim: undefined, isStale: true, isUnchecked: false };

const NUMBER = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?0*\d{1,5}))?$/;
const DIGITS = /^\d+$/;
/** RFC 3339 §5.6; `T` and `Z` may be lower case, and a space may replace the `T`. */
const TIME = /^(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.(\d+))?(?:[Zz]|([+-])(\d{2}):(\d{2}))$/;
/** Of a name or a version, before and after the point. */
const MAX_DIGITS = 4_096;
/** Versions are kept in the store, which counts resources, so all take about the same memory. */
const MAX_SORTABLE_CHARS = 64;
const LENGTH_DIGITS = 4;
const SECOND_DIGITS = 12;
const SECONDS_A_DAY = 86_400;
const DAY_MS = SECONDS_A_DAY * 1_000;
const CALENDAR_CYCLE_YEARS = 400;
const FIRST_DAY = Date.UTC(CALENDAR_CYCLE_YEARS, 0, 1);
/** A day is added, so that midnight of the year 0 east of Greenwich is not a negative time. */
const MARGIN_S = SECONDS_A_DAY;

/** Kinds are never compared with each other: a sender that changes the kind starts a new sequence. */
const NUMBER_KIND = '1';
const TIME_KIND = '2';

/** A number without exponent and insignificant zeros: the digits before and after the point. */
interface PlainNumber {
  readonly isNegative: boolean;
  readonly whole: string;
  readonly fraction: string;
}

interface Day {
  readonly year: number;
  readonly month: number;
  readonly day: number;
}

interface TimeOfDay {
  readonly hour: number;
  readonly minute: number;
  readonly second: number;
}

/** Runs after dedup: otherwise a retry of the newest event would be forwarded again. */
export function createOrderGate(options: OrderOptions, parts: OrderParts): ClaimGate {
  const { onEvent } = parts;
  const policy: ClaimPolicy = {
    ...options,
    inProgress: 'wait',
    busyReason: 'resource_busy',
    unavailableReason: 'order_unavailable',
  };
  const shared: ClaimParts = { ...parts, onBusy: () => onEvent('busy') };
  // A version from another place says nothing about this one: with another path in the config, a new sequence starts.
  const paths = crc32(JSON.stringify([options.key.text, options.version.text]));
  return {
    claim(event, head) {
      const request = toRequest(options, paths, event.body, head.requestId);
      if (request !== undefined) return acquireClaim(new OrderAttempt(request, head, options, parts), policy, shared);
      onEvent('unordered');
      return NOTHING_CLAIMED;
    },
  };
}

class OrderAttempt implements ClaimAttempt {
  readonly #request: EnterRequest;
  readonly #head: ParsedHead;
  readonly #options: OrderOptions;
  readonly #parts: OrderParts;

  constructor(request: EnterRequest, head: ParsedHead, options: OrderOptions, parts: OrderParts) {
    this.#request = request;
    this.#head = head;
    this.#options = options;
    this.#parts = parts;
  }

  get client(): string {
    return this.#head.client.address;
  }

  get key(): string {
    return this.#request.key;
  }

  async ask(): Promise<ClaimReply> {
    const { versions, onEvent } = this.#parts;
    const result = await versions.enter(this.#request);
    if (result.state === 'busy') return new Busy(result.remainingMs);
    onEvent(result.state);
    if (result.state === 'entered') return { claim: this.#toClaim(), isStale: false, isUnchecked: false };
    // It does not claim the resource; the app gets it marked as stale.
    return this.#options.onStale === 'forward' ? STALE : acknowledge(result);
  }

  release(): void {
    this.#settle('release');
  }

  /** An older event that arrives when the store is back is stale then. */
  toUncheckedClaim(): Claim {
    return this.#toClaim();
  }

  #toClaim(): Claim {
    return new SettledClaim((how) => {
      if (how === 'hold') this.#parts.onEvent('held');
      else this.#settle(how);
    });
  }

  #settle(kind: ResourceSettlement['kind']): void {
    const { clock, versions, settlements } = this.#parts;
    const { retention, lease } = this.#options;
    const { key, version, token } = this.#request;
    const isHandled = kind === 'confirm';
    settlements.settle({
      of: 'resource',
      kind,
      key,
      versions,
      leave: { key, token, ...(isHandled ? { handled: { version, retentionMs: retention } } : undefined) },
      mootAt: clock.monotonic() + (isHandled ? retention : lease),
    });
  }
}

/** Undefined if the content has no resource or no version. */
function toRequest(options: OrderOptions, paths: number, body: Buffer, token: string): EnterRequest | undefined {
  const [named, numbered] = readValues(body, [options.key, options.version]);
  const resource = toName(named);
  const version = toSortable(numbered);
  if (resource === undefined || version === undefined) return undefined;
  // Versions of two kinds cannot be compared, so each kind is claimed separately.
  const key = toResourceKey(options.route, `${version.slice(0, 1)}${paths}`, resource);
  return { key, version, token, leaseMs: options.lease };
}

/**
 * Converts a JSON number, a string of digits, or an RFC 3339 time with any fraction to digits that sort byte by byte within their
 * kind, which is the first digit. Undefined for anything else, whose order is unknown (is 1.10 before 1.9?), and for more than 50 digits.
 */
export function toSortable(value: unknown): string | undefined {
  const sortable = toDigits(value);
  return sortable === undefined || sortable.length > MAX_SORTABLE_CHARS ? undefined : sortable;
}

function toDigits(value: unknown): string | undefined {
  if (value instanceof NumberText) return toSortableNumber(value.text);
  if (typeof value === 'number' || typeof value === 'bigint') return toSortableNumber(String(value));
  if (typeof value !== 'string') return undefined;
  return DIGITS.test(value) ? toSortableNumber(value) : toSortableTime(value);
}

/** A string, or a number in canonical form, as the name of a resource; undefined for anything else. */
export function toName(value: unknown): string | undefined {
  if (typeof value === 'string') return value === '' ? undefined : value;
  if (typeof value !== 'number' && !(value instanceof NumberText)) return undefined;
  const number = parseNumber(typeof value === 'number' ? String(value) : value.text);
  if (number === undefined) return undefined;
  const { isNegative, whole, fraction } = number;
  return `${isNegative ? '-' : ''}${whole === '' ? '0' : whole}${fraction === '' ? '' : `.${fraction}`}`;
}

function toSortableNumber(text: string): string | undefined {
  const number = parseNumber(text);
  if (number === undefined) return undefined;
  const { isNegative, whole, fraction } = number;
  const length = String(whole.length).padStart(LENGTH_DIGITS, '0');
  // The longer whole part is the larger number; a longer fraction is larger than its prefix.
  if (!isNegative) return `${NUMBER_KIND}1${length}${whole}${fraction}`;
  // Reversed: each digit by its complement, and a longer fraction is smaller than its prefix, which ends with 9.
  const digitsAfterPoint = [...complement(fraction)].map((digit) => `0${digit}`).join('');
  return `${NUMBER_KIND}0${complement(length)}${complement(whole)}${digitsAfterPoint}9`;
}

function parseNumber(text: string): PlainNumber | undefined {
  const match = NUMBER.exec(text);
  if (match === null) return undefined;
  const [, sign, before = '', after = '', exponent = '0'] = match;
  const digits = before + after;
  const point = before.length + Number(exponent);
  if (digits.length > MAX_DIGITS || Math.abs(point) > MAX_DIGITS) return undefined;
  const padded = point < 0 ? '0'.repeat(-point) + digits : digits.padEnd(point, '0');
  const split = Math.max(point, 0);
  const whole = padded.slice(0, split).replace(/^0+/, '');
  const fraction = withoutTrailingZeros(padded.slice(split));
  return { isNegative: sign === '-' && whole + fraction !== '', whole, fraction };
}

function toSortableTime(text: string): string | undefined {
  const match = TIME.exec(text);
  if (match === null) return undefined;
  const [, year, month, day, hour, minute, second, fraction = '', sign, offsetHour = '0', offsetMinute = '0'] = match;
  const date = { year: Number(year), month: Number(month), day: Number(day) };
  const time = { hour: Number(hour), minute: Number(minute), second: Number(second) };
  const offset = { hour: Number(offsetHour), minute: Number(offsetMinute), second: 0 };
  if (!isDate(date) || !isTime(time) || !isTime(offset) || fraction.length > MAX_DIGITS) return undefined;
  const east = sign === '-' ? -toSeconds(offset) : toSeconds(offset);
  const seconds = MARGIN_S + toDays(date) * SECONDS_A_DAY + toSeconds(time) - east;
  return `${TIME_KIND}${String(seconds).padStart(SECOND_DIGITS, '0')}${withoutTrailingZeros(fraction)}`;
}

function isDate({ year, month, day }: Day): boolean {
  if (month < 1 || month > 12 || day < 1) return false;
  return day <= toDays({ year, month: month + 1, day: 1 }) - toDays({ year, month, day: 1 });
}

/** 60 is a leap second (RFC 3339 §5.7). */
function isTime({ hour, minute, second }: TimeOfDay): boolean {
  return hour <= 23 && minute <= 59 && second <= 60;
}

function toSeconds({ hour, minute, second }: TimeOfDay): number {
  return hour * 3_600 + minute * 60 + second;
}

/** Days since the first day of the year 0; month 13 is the next year's first. */
function toDays({ year, month, day }: Day): number {
  // `Date.UTC` reads the years 0 to 99 as 1900 to 1999. The calendar is the same every 400 years.
  return (Date.UTC(year + CALENDAR_CYCLE_YEARS, month - 1, day) - FIRST_DAY) / DAY_MS;
}

function complement(digits: string): string {
  return [...digits].map((digit) => String(9 - Number(digit))).join('');
}

function withoutTrailingZeros(digits: string): string {
  let end = digits.length;
  while (digits[end - 1] === '0') end--;
  return digits.slice(0, end);
}

/** A JSON number as written: beyond 2^53, or with many decimals, different numbers become equal as doubles. */
export class NumberText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

const IS_NUMBER = /^-?\d/;
/** Numbers of up to 15 digits, and exponents of up to two, survive conversion to a double and back (IEEE 754 binary64). */
const MAY_NOT_FIT = /\d[\d.]{15}|\d[eE][+-]?\d{3}/;

/** The scalars at the paths, numbers as number or NumberText; all undefined if the content is not JSON. */
export function readValues(body: Buffer, paths: readonly JsonPath[]): readonly unknown[] {
  const text = toJsonText(body);
  return paths.map(({ steps }) => (text === undefined ? undefined : readExact(text, steps)));
}

function readExact(text: Buffer, steps: JsonPath['steps']): unknown {
  const written = findScalar(text, steps);
  if (written === undefined) return undefined;
  return IS_NUMBER.test(written) && MAY_NOT_FIT.test(written) ? new NumberText(written) : JSON.parse(written);
}
