/** Sends spans to a collector in batches: it never delays a request, bounds its memory, and counts lost spans. */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { requestOnce, type SingleResponse } from '../../http/client/request-once.ts';
import { DialFailure } from '../../http/dial/dial.ts';
import type { Span, SpanAttributes, SpanOutcome, SpanReference } from './tracer.ts';

/** The batch size of the OpenTelemetry SDKs. */
const BATCH_SIZE = 512;
/** Delays between attempts to send a batch; after the last one it is dropped. */
const RETRY_DELAYS_MS: readonly Milliseconds[] = [1_000, 2_000, 4_000, 8_000];
const MAX_RETRY_DELAY_MS = 30_000;
/** Spans of rejected requests may fill only this share of the queue, so that a flood of them cannot displace the others. */
const REJECTED_SHARE = 0.5;

/** The queue of spans and its consumer. */
export class SpanExporter {
  readonly #options;
  readonly #events;
  readonly #post: PostSpans;
  readonly #clock: Clock;
  #queue: Span[] = [];
  #sending: Promise<void> | undefined;
  #cancelTimer: CancelTimer | undefined;
  #cancelWait: (() => void) | undefined;
  #isFailing = false;
  #isClosing = false;

  constructor(
    options: {
      readonly source: SpanSource;
      /** The longest time that a span waits for a batch. */
      readonly interval: Milliseconds;
      readonly maxQueued: number;
    },
    post: PostSpans,
    clock: Clock,
    events: {
      onSpans(outcome: SpanOutcome, count: number): void;
      /** Called when exports start to fail. */
      onFailure(message: string): void;
      /** Called when exports succeed again. */
      onRecovery(): void;
    },
  ) {
    this.#options = options;
    this.#post = post;
    this.#clock = clock;
    this.#events = events;
  }

  /** Queues a span; never blocks or throws. */
  add(span: Span): void {
    const { maxQueued, interval } = this.#options;
    const capacity = span.attributes['sidegate.decision'] === 'deny' ? maxQueued * REJECTED_SHARE : maxQueued;
    if (this.#isClosing || this.#queue.length >= capacity) return this.#events.onSpans('dropped', 1);
    this.#queue.push(span);
    if (this.#sending !== undefined) return;
    if (this.#queue.length >= BATCH_SIZE) this.#startSending();
    else this.#cancelTimer ??= this.#clock.after(interval, () => this.#startSending());
  }

  /** Sends the remaining spans; those not sent within the timeout are dropped. */
  async close(timeout: Milliseconds): Promise<void> {
    this.#isClosing = true;
    this.#cancelWait?.();
    if (this.#queue.length > 0) this.#startSending();
    let cancel: CancelTimer = () => undefined;
    const timedOut = new Promise<void>((resolve) => {
      cancel = this.#clock.after(timeout, resolve);
    });
    await Promise.race([this.#sending, timedOut]);
    cancel();
    this.#post.close();
    await this.#sending;
    this.#cancelTimer?.();
  }

  #startSending(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined;
      if (this.#queue.length > 0) this.#cancelTimer ??= this.#clock.after(this.#options.interval, () => this.#startSending());
    });
  }

  /** Sends batch after batch; an incomplete batch waits for more spans, except when closing. */
  async #sendAll(): Promise<void> {
    do {
      const batch = this.#queue.splice(0, BATCH_SIZE);
      await this.#send(batch);
    } while (this.#queue.length >= BATCH_SIZE || (this.#isClosing && this.#queue.length > 0));
  }

  async #send(batch: readonly Span[]): Promise<void> {
    const body = toExport(batch, this.#options.source);
    for (let attempt = 0; ; attempt++) {
      const result = await this.#post.send(body);
      if (result.kind === 'accepted') return this.#onAccepted(batch.length, result.rejected, result.message);
      this.#reportFailure(result.message);
      const delay = RETRY_DELAYS_MS[attempt];
      if (!result.mayRetry || delay === undefined || this.#isClosing)
        return this.#events.onSpans(result.mayRetry ? 'failed' : 'rejected', batch.length);
      await this.#wait(Math.min(MAX_RETRY_DELAY_MS, result.retryAfter ?? delay));
    }
  }

  #onAccepted(count: number, rejected: number, message: string | undefined): void {
    const lost = Math.min(count, rejected);
    if (count > lost) this.#events.onSpans('exported', count - lost);
    if (lost > 0) {
      this.#events.onSpans('rejected', lost);
      return this.#reportFailure(`the collector rejected ${lost} spans${message === undefined ? '' : `: ${message}`}`);
    }
    if (this.#isFailing) this.#events.onRecovery();
    this.#isFailing = false;
  }

  #reportFailure(message: string): void {
    if (!this.#isFailing) this.#events.onFailure(message);
    this.#isFailing = true;
  }

  #wait(delay: Milliseconds): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#clock.after(delay, resolve);
      const cancelWait = (): void => {
        cancel();
        resolve();
      };
      this.#cancelWait = cancelWait;
    });
  }
}

/** The source of the spans: the attributes of its resource, and its version. */
interface SpanSource {
  readonly resource: SpanAttributes;
  readonly version: string;
}

const KINDS = { server: 2, client: 3 } as const;
const STATUS_ERROR = 2;
/** Bits 8 and 9 of a span's flags: whether it is known that the parent is remote, and whether it is. */
const HAS_IS_REMOTE = 0x100;
const IS_REMOTE = 0x200;

/** The body of one export: OTLP JSON (opentelemetry-proto, ExportTraceServiceRequest), with IDs in hex and 64-bit integers as strings. */
export function toExport(spans: readonly Span[], { resource, version }: SpanSource): string {
  return JSON.stringify({
    resourceSpans: [
      {
        resource: { attributes: toAttributes(resource) },
        scopeSpans: [{ scope: { name: 'sidegate', version }, spans: spans.map(toSpan) }],
      },
    ],
  });
}

function toSpan(span: Span): object {
  const { parentId, kind, name, startedAt, endedAt, attributes, isError, link } = span;
  return {
    ...toReference(span, span.isParentRemote),
    ...(parentId === undefined ? undefined : { parentSpanId: parentId }),
    name,
    kind: KINDS[kind],
    startTimeUnixNano: toNanoseconds(startedAt),
    endTimeUnixNano: toNanoseconds(endedAt),
    attributes: toAttributes(attributes),
    ...(link === undefined ? undefined : { links: [toReference(link, true)] }),
    status: isError ? { code: STATUS_ERROR } : {},
  };
}

function toReference({ traceId, spanId, flags, tracestate }: SpanReference, isRemote: boolean): object {
  return {
    traceId,
    spanId,
    ...(tracestate === undefined ? undefined : { traceState: tracestate }),
    flags: flags | HAS_IS_REMOTE | (isRemote ? IS_REMOTE : 0),
  };
}

function toAttributes(attributes: SpanAttributes): object[] {
  return Object.entries(attributes).map(([key, value]) => ({
    key,
    value: typeof value === 'string' ? { stringValue: value } : { intValue: String(value) },
  }));
}

/** With microsecond precision, the finest that a number represents exactly. */
function toNanoseconds(at: number): string {
  return `${Math.round(at * 1_000)}000`;
}

// One export (OTLP/HTTP): with a timeout and a limit on the response size, without following redirects.

/** The outcome of one export. */
type PostResult =
  /** `rejected`: how many spans the collector rejected. */
  | { readonly kind: 'accepted'; readonly rejected: number; readonly message: string | undefined }
  /** `why` contains the host but no header, which may be secret. */
  | {
      readonly kind: 'failed';
      readonly message: string;
      readonly mayRetry: boolean;
      readonly retryAfter?: Milliseconds | undefined;
    };

/** Posts exports to a collector. */
interface PostSpans {
  /** Never rejects. */
  send(body: string): Promise<PostResult>;
  /** Aborts the current exports; they fail. */
  close(): void;
}

const MAX_RESPONSE_BYTES = 64 * 1024;
const MAX_MESSAGE_LENGTH = 200;
const OK = 200;
const MULTIPLE_CHOICES = 300;
/** The statuses that OTLP lists as retryable. */
const RETRYABLE = new Set([429, 502, 503, 504]);
const FRAMING = ['content-length', 'transfer-encoding', 'connection'];
const STOPPING = { kind: 'failed', message: 'the process is stopping', mayRetry: true } as const;
const NOT_PRINTABLE = /[^\x20-\x7e]/g;

/** Creates the client; it connects for each export. */
export function createPost(
  {
    url,
    readHeaders,
    timeout,
    ca,
    userAgent,
  }: {
    readonly url: URL;
    /** Called for each export, because secrets rotate; rejects if a secret cannot be read. */
    readonly readHeaders: () => Promise<readonly (readonly [name: string, value: string])[]>;
    readonly timeout: Milliseconds;
    readonly ca: Buffer | undefined;
    readonly userAgent: string;
  },
  clock: Clock,
): PostSpans {
  const closing = new AbortController();
  const { signal } = closing;
  return {
    async send(body) {
      try {
        const headers = toHeaders(url, userAgent, await readHeaders());
        if (signal.aborted) return STOPPING;
        const content = { body: Buffer.from(body), timeout, maxBytes: MAX_RESPONSE_BYTES };
        return toResult(await requestOnce({ url, method: 'POST', headers, ...content, ca, signal }, clock), url.host);
      } catch (thrown) {
        if (signal.aborted) return STOPPING;
        const message = thrown instanceof DialFailure ? `${url.host}: ${thrown.message}` : toErrorText(thrown);
        return { kind: 'failed', message, mayRetry: true };
      }
    },
    close: () => closing.abort(),
  };
}

/** The fields of the config replace those of sidegate, except for the framing. */
function toHeaders(url: URL, userAgent: string, configured: readonly (readonly [string, string])[]): string[] {
  const common = [
    ['Host', url.host],
    ['Content-Type', 'application/json'],
    ['User-Agent', userAgent],
  ] as const;
  const fields = new Map([...common, ...configured].map((field) => [field[0].toLowerCase(), field]));
  for (const name of FRAMING) fields.delete(name);
  return [...fields.values()].flat();
}

function toResult({ status, headers, body, isComplete }: SingleResponse, host: string): PostResult {
  if (!isComplete)
    return { kind: 'failed', message: `${host}: the response has more than ${MAX_RESPONSE_BYTES} bytes`, mayRetry: true };
  if (status >= OK && status < MULTIPLE_CHOICES) return { kind: 'accepted', ...readPartialSuccess(body.toString()) };
  const seconds = /^\d{1,6}$/.exec(headers.get('retry-after') ?? '')?.[0];
  const retryAfter = seconds === undefined ? undefined : Number(seconds) * 1_000;
  return { kind: 'failed', message: `${host}: responded ${status}`, mayRetry: RETRYABLE.has(status), retryAfter };
}

/** ExportTraceServiceResponse; any other body means that all spans were accepted. */
function readPartialSuccess(text: string): { rejected: number; message: string | undefined } {
  const none = { rejected: 0, message: undefined };
  try {
    const { partialSuccess } = JSON.parse(text) as {
      partialSuccess?: { rejectedSpans?: unknown; errorMessage?: unknown } | null;
    };
    const rejected = Number(partialSuccess?.rejectedSpans ?? 0);
    if (!Number.isSafeInteger(rejected) || rejected < 1) return none;
    const { errorMessage } = partialSuccess ?? {};
    const message =
      typeof errorMessage === 'string' ? errorMessage.replace(NOT_PRINTABLE, ' ').slice(0, MAX_MESSAGE_LENGTH) : undefined;
    return { rejected, message };
  } catch {
    return none;
  }
}
