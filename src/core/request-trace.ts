/** The trace that a request belongs to (W3C Trace Context). */

/** A span that another party recorded, as it is referenced in a message. */
export interface SpanReference {
  /** 32 lower-case hex digits. */
  readonly traceId: string;
  /** 16 lower-case hex digits. */
  readonly spanId: string;
  readonly flags: number;
  readonly tracestate: string | undefined;
}

/** The trace that a request is part of; IDs as in SpanReference. */
export interface RequestTrace {
  readonly traceId: string;
  /** The span ID in log lines: sidegate's own span or, if none is recorded, the parent of the app's span. */
  readonly spanId: string;
  /** The parent span ID that the app gets. */
  readonly appParentId: string;
  readonly flags: number;
  /** Whether spans of sidegate are recorded and exported. */
  readonly isRecorded: boolean;
  /** The caller's span, if its trace is continued. */
  readonly parentId: string | undefined;
  readonly tracestate: string | undefined;
  /** The caller's span, if it is only linked. */
  readonly link: SpanReference | undefined;
}
