/** Reads and writes `traceparent` (W3C Trace Context, level 2): the trace that a message is part of, and the span that sent it. */

/** What a valid `traceparent` says. */
export interface TraceParent {
  /** 32 lower-case hex digits, not all 0. */
  readonly traceId: string;
  /** 16 lower-case hex digits, not all 0. */
  readonly parentId: string;
  /** The flags that are known here: SAMPLED, RANDOM. */
  readonly flags: number;
}

/** The caller may have recorded the trace (§3.2.2.5.1). */
export const SAMPLED = 0x01;
/** The last 7 bytes of the trace id are random (§3.2.2.5.2). */
export const RANDOM = 0x02;

const FORM = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
/** A version that will never be (§3.2.2.1). */
const NO_VERSION = 'ff';
const NO_TRACE = '0'.repeat(32);
const NO_SPAN = '0'.repeat(16);

/** Undefined where it is invalid, and then nothing of its tracestate counts either. A field that comes twice is invalid: whose would it be? */
export function parseTraceparent(values: readonly string[]): TraceParent | undefined {
  const [value] = values;
  if (value === undefined || values.length > 1) return undefined;
  const [, version, traceId = '', parentId = '', flags = '', more] = FORM.exec(value) ?? [];
  if (version === undefined || version === NO_VERSION || traceId === NO_TRACE || parentId === NO_SPAN) return undefined;
  // §3.2.4: what a later version adds stands behind a dash; version 00 ends with its flags.
  if (version === '00' && more !== undefined) return undefined;
  // §3.2.4 and §3.2.2.5: a flag that is not known here is not passed on under our own version.
  return { traceId, parentId, flags: Number.parseInt(flags, 16) & (SAMPLED | RANDOM) };
}

/** Always version 00, the one that is spoken here. */
export function formatTraceparent({ traceId, parentId, flags }: TraceParent): string {
  return `00-${traceId}-${parentId}-0${flags}`;
}
