/** Posts one export to a collector (OTLP/HTTP): with a timeout and a limit on the response size, without following redirects. */
import { type IncomingMessage, request as openHttp } from 'node:http';
import { request as openHttps } from 'node:https';
import type { Clock, Milliseconds } from '../../../core/clock.ts';
import { toErrorText } from '../../../core/errors.ts';
import { GrowingBuffer } from '../../../core/growing-buffer.ts';
import { lookUpForConnect } from '../../../core/name-lookup.ts';
import { onEvent } from '../../../core/safe-events.ts';

/** The outcome of one export. */
export type PostResult =
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

/** Options of the connection to the collector. */
export interface PostOptions {
  readonly url: URL;
  /** Called for each export, because secrets rotate; rejects if a secret cannot be read. */
  readonly readHeaders: () => Promise<readonly (readonly [name: string, value: string])[]>;
  readonly timeout: Milliseconds;
  readonly ca: Buffer | undefined;
  readonly userAgent: string;
}

const MAX_RESPONSE_BYTES = 64 * 1024;
const MAX_MESSAGE_LENGTH = 200;
const OK = 200;
const MULTIPLE_CHOICES = 300;
/** The statuses that OTLP lists as retryable. */
const RETRYABLE = new Set([429, 502, 503, 504]);
const NOT_PRINTABLE = /[^\x20-\x7e]/g;

/** Creates the client; it connects for each export. */
export function createPost(options: PostOptions, clock: Clock): PostSpans {
  const isTls = options.url.protocol === 'https:';
  const aborts = new Set<(message: string) => void>();
  let isClosed = false;

  const post = (body: string, headers: readonly (readonly [string, string])[]): Promise<PostResult> =>
    new Promise((resolve) => {
      const { url, timeout, userAgent } = options;
      const outgoing = (isTls ? openHttps : openHttp)(url, {
        method: 'POST',
        lookup: lookUpForConnect,
        // The collector could close an idle connection at the moment of its reuse; a new one every few seconds costs little.
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
      const abort = (message: string): void => {
        outgoing.destroy();
        finish({ kind: 'failed', message: `${url.host}: ${message}`, mayRetry: true });
      };
      const cancel = clock.after(timeout, () => abort(`no response within ${timeout / 1_000} s`));
      aborts.add(abort);
      onEvent(outgoing, 'error', (error: NodeJS.ErrnoException) => abort(error.code ?? error.message));
      onEvent(outgoing, 'response', (incoming) =>
        readResponse(incoming, (text) => finish(toResult(incoming, text, url.host)), abort),
      );
      outgoing.end(body);
    });

  return {
    async send(body) {
      try {
        const headers = await options.readHeaders();
        if (isClosed) return { kind: 'failed', message: 'the process is stopping', mayRetry: true };
        return await post(body, headers);
      } catch (thrown) {
        return { kind: 'failed', message: toErrorText(thrown), mayRetry: true };
      }
    },
    close() {
      isClosed = true;
      for (const abort of aborts) abort('the process is stopping');
    },
  };
}

function readResponse(incoming: IncomingMessage, onEnd: (text: string) => void, abort: (message: string) => void): void {
  const bytes = new GrowingBuffer();
  onEvent(incoming, 'data', (chunk: Buffer) => {
    if (bytes.length + chunk.length > MAX_RESPONSE_BYTES) abort(`the response has more than ${MAX_RESPONSE_BYTES} bytes`);
    else bytes.append(chunk, MAX_RESPONSE_BYTES);
  });
  onEvent(incoming, 'error', () => abort('the response was cut off'));
  onEvent(incoming, 'end', () => onEnd(bytes.view().toString()));
}

function toResult({ statusCode = 0, headers }: IncomingMessage, text: string, host: string): PostResult {
  if (statusCode >= OK && statusCode < MULTIPLE_CHOICES) return { kind: 'accepted', ...readPartialSuccess(text) };
  const mayRetry = RETRYABLE.has(statusCode);
  const seconds = /^\d{1,6}$/.exec(headers['retry-after'] ?? '')?.[0];
  const retryAfter = seconds === undefined ? undefined : Number(seconds) * 1_000;
  return { kind: 'failed', message: `${host}: responded ${statusCode}`, mayRetry, retryAfter };
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
