/** The trace that a request belongs to (W3C Trace Context). */

/** A span that another party recorded, as a message names it. */
export interface SpanReference {
  /** 32 lower-case hex digits. */
  readonly traceId: string;
  /** 16 lower-case hex digits. */
  readonly spanId: string;
  readonly flags: number;
  readonly tracestate: string | undefined;
}

/** The trace that a request is part of; ids as in SpanReference. */
export interface RequestTrace {
  readonly traceId: string;
  /** What log lines name: sidegate's own span, or, where nobody records it, the parent of the app's span. */
  readonly spanId: string;
  /** What the app gets as its parent. */
  readonly appParentId: string;
  readonly flags: number;
  /** sidegate's spans are kept and exported. */
  readonly isRecorded: boolean;
  /** The caller's span, where its trace is continued. */
  readonly parentId: string | undefined;
  readonly tracestate: string | undefined;
  /** The caller's span, where it is only named. */
  readonly link: SpanReference | undefined;
}
