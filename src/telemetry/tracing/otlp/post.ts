/** Posts one export to a collector (OTLP/HTTP): with a timeout and a limit on the response size, without following redirects. */
import type { Clock, Milliseconds } from '../../../core/clock.ts';
import { toErrorText } from '../../../core/errors.ts';
import { requestOnce, type SingleResponse } from '../../../http/client/request-once.ts';
import { DialFailure } from '../../../http/dial/dial.ts';

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
export interface PostSpans {
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
