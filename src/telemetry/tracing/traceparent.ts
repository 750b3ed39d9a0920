/** Parses and formats `traceparent` (W3C Trace Context, level 2): the trace of a message, and the span that sent it. */

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
