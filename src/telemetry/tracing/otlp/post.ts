/** Posts one export to a collector by http or https (OTLP/HTTP): bounded in time and in what is read of the answer, without redirects. */
import { type IncomingMessage, request as openHttp } from 'node:http';
import { request as openHttps } from 'node:https';
import type { Clock, Milliseconds } from '../../../core/clock.ts';
import { toErrorText } from '../../../core/errors.ts';
import { GrowingBuffer } from '../../../core/growing-buffer.ts';
import { onEvent } from '../../../core/safe-events.ts';

/** How one export ended. */
export type PostResult =
  /** `rejected`: spans that the collector did not want, by its own count. */
  | { readonly kind: 'taken'; readonly rejected: number; readonly message: string | undefined }
  /** `why` names the host, never a header. */
  | { readonly kind: 'failed'; readonly why: string; readonly mayRetry: boolean; readonly retryAfter?: Milliseconds | undefined };

/** Posts; never rejects. */
export interface PostSpans {
  send(body: string): Promise<PostResult>;
  /** Ends what is under way, as failed. */
  close(): void;
}

/** Where to, and how. */
export interface PostOptions {
  readonly url: URL;
  /** Read anew for each export, as secrets rotate; throws where one cannot be read. */
  readonly readHeaders: () => Promise<readonly (readonly [name: string, value: string])[]>;
  readonly timeout: Milliseconds;
  readonly ca: Buffer | undefined;
  readonly userAgent: string;
}

const MOST_ANSWER_BYTES = 64 * 1024;
const LONGEST_MESSAGE = 200;
const OK = 200;
const MULTIPLE_CHOICES = 300;
/** OTLP's own list. */
const RETRYABLE = new Set([429, 502, 503, 504]);
const NOT_PRINTABLE = /[^\x20-\x7e]/g;

/** Builds it; nothing is connected yet. */
export function createPost(options: PostOptions, clock: Clock): PostSpans {
  const isTls = options.url.protocol === 'https:';
  const aborts = new Set<(why: string) => void>();
  let isClosed = false;

  const post = (body: string, headers: readonly (readonly [string, string])[]): Promise<PostResult> =>
    new Promise((resolve) => {
      const { url, timeout, userAgent } = options;
      const outgoing = (isTls ? openHttps : openHttp)(url, {
        method: 'POST',
        // A connection that is kept may be closed from the other side just as it is used; one each few seconds costs nothing.
        agent: false,
        ca: options.ca,
        headers: {
          'Content-Type': 'application/json',
          'Content-Length': Buffer.byteLength(body),
          'User-Agent': userAgent,
          ...Object.fromEntries(headers),
        },
      });
      const finish = (result: PostResult): void => {
        cancel();
        aborts.delete(abort);
        resolve(result);
      };
      const abort = (why: string): void => {
        outgoing.destroy();
        finish({ kind: 'failed', why: `${url.host}: ${why}`, mayRetry: true });
      };
      const cancel = clock.after(timeout, () => abort(`no answer within ${timeout / 1_000} s`));
      aborts.add(abort);
      onEvent(outgoing, 'error', (error: NodeJS.ErrnoException) => abort(error.code ?? error.message));
      onEvent(outgoing, 'response', (incoming) =>
        readAnswer(incoming, (text) => finish(toResult(incoming, text, url.host)), abort),
      );
      outgoing.end(body);
    });

  return {
    async send(body) {
      try {
        const headers = await options.readHeaders();
        if (isClosed) return { kind: 'failed', why: 'the gate stops', mayRetry: true };
        return await post(body, headers);
      } catch (thrown) {
        return { kind: 'failed', why: toErrorText(thrown), mayRetry: true };
      }
    },
    close() {
      isClosed = true;
      for (const abort of aborts) abort('the gate stops');
    },
  };
}

function readAnswer(incoming: IncomingMessage, onEnd: (text: string) => void, abort: (why: string) => void): void {
  const bytes = new GrowingBuffer();
  onEvent(incoming, 'data', (chunk: Buffer) => {
    if (bytes.length + chunk.length > MOST_ANSWER_BYTES) abort(`answers with more than ${MOST_ANSWER_BYTES} bytes`);
    else bytes.append(chunk, MOST_ANSWER_BYTES);
  });
  onEvent(incoming, 'error', () => abort('the answer broke off'));
  onEvent(incoming, 'end', () => onEnd(bytes.view().toString()));
}

function toResult({ statusCode = 0, headers }: IncomingMessage, text: string, host: string): PostResult {
  if (statusCode >= OK && statusCode < MULTIPLE_CHOICES) return { kind: 'taken', ...readPartialSuccess(text) };
  const mayRetry = RETRYABLE.has(statusCode);
  const seconds = /^\d{1,6}$/.exec(headers['retry-after'] ?? '')?.[0];
  const retryAfter = seconds === undefined ? undefined : Number(seconds) * 1_000;
  return { kind: 'failed', why: `${host}: answered ${statusCode}`, mayRetry, retryAfter };
}

/** ExportTraceServiceResponse; a collector that answers with anything else took all. */
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
      typeof errorMessage === 'string' ? errorMessage.replace(NOT_PRINTABLE, ' ').slice(0, LONGEST_MESSAGE) : undefined;
    return { rejected, message };
  } catch {
    return none;
  }
}
