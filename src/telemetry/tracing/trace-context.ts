/** Reads and writes the trace context of a message (W3C Trace Context, level 2): `traceparent`, its trace and the span that sent it, and `tracestate`. */
import { type Characters, trimEnds } from '../../core/text.ts';

/** A valid `traceparent`. */
interface TraceParent {
  /** 32 lower-case hex digits, not all 0. */
  readonly traceId: string;
  /** 16 lower-case hex digits, not all 0. */
  readonly parentId: string;
  /** Only SAMPLED and RANDOM; unknown flags are cleared. */
  readonly flags: number;
}

/** The caller may have recorded the trace (§3.2.2.5.1). */
export const SAMPLED = 0x01;
/** The last 7 bytes of the trace ID are random (§3.2.2.5.2). */
export const RANDOM = 0x02;

const FORM = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
/** An invalid version (§3.2.2.1). */
const INVALID_VERSION = 'ff';
const INVALID_TRACE_ID = '0'.repeat(32);
const INVALID_SPAN_ID = '0'.repeat(16);

/** Returns undefined if it is invalid; the tracestate must then be ignored, too. A repeated field is invalid, because it is ambiguous. */
export function parseTraceparent(values: readonly string[]): TraceParent | undefined {
  const [value] = values;
  if (value === undefined || values.length > 1) return undefined;
  const [, version, traceId = '', parentId = '', flags = '', more] = FORM.exec(value) ?? [];
  if (version === undefined || version === INVALID_VERSION || traceId === INVALID_TRACE_ID || parentId === INVALID_SPAN_ID)
    return undefined;
  // §3.2.4: later versions may append fields after a dash; version 00 ends with its flags.
  if (version === '00' && more !== undefined) return undefined;
  // §3.2.4 and §3.2.2.5: unknown flags are not forwarded under our own version.
  return { traceId, parentId, flags: Number.parseInt(flags, 16) & (SAMPLED | RANDOM) };
}

/** Always version 00. */
export function formatTraceparent({ traceId, parentId, flags }: TraceParent): string {
  return `00-${traceId}-${parentId}-0${flags}`;
}

// `tracestate` (§3.3): vendor-specific data, forwarded unchanged within the limits.

const MAX_MEMBERS = 32;
/** §3.3.1.5: a vendor should forward at least this many. */
const MAX_CHARACTERS = 512;
/** Longer members are dropped first. */
const LONG_MEMBER = 128;
/** §3.3.1.3.1 and §3.3.1.3.2: printable ASCII except `,` and `=`, no trailing space. */
const MEMBER = /^([a-z0-9][a-z0-9_\-*/@]{0,255})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;
const OPTIONAL_WHITESPACE: Characters = new Set('\t ');

/** Combines the field lines into one value; undefined if there is none, or if any part is malformed (§3.3.1.4). */
export function parseTracestate(lines: readonly string[]): string | undefined {
  const keys = new Set<string>();
  const members: string[] = [];
  for (const part of lines.join(',').split(',')) {
    const member = trimEnds(part, OPTIONAL_WHITESPACE);
    if (member === '') continue;
    const key = MEMBER.exec(member)?.[1];
    if (key === undefined || keys.has(key) || members.length === MAX_MEMBERS) return undefined;
    keys.add(key);
    members.push(member);
  }
  const kept = shorten(members);
  return kept.length === 0 ? undefined : kept.join(',');
}

/** §3.3.1.5: drops whole members, long ones first, then from the end. */
function shorten(members: readonly string[]): readonly string[] {
  let kept = members;
  if (toLength(kept) > MAX_CHARACTERS) kept = kept.filter(({ length }) => length <= LONG_MEMBER);
  while (toLength(kept) > MAX_CHARACTERS) kept = kept.slice(0, -1);
  return kept;
}

function toLength(members: readonly string[]): number {
  return members.reduce((sum, { length }) => sum + length, members.length - 1);
}
