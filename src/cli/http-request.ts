/** One HTTP request of a command to a running sidegate, with TLS or without. */
import { type IncomingMessage, request as openHttp } from 'node:http';
import { request as openHttps } from 'node:https';
import { MAX_PEM_BYTES, requireCas } from '../config/sources/bounded-read.ts';
import type { Milliseconds } from '../core/clock.ts';
import { usageError } from '../core/errors.ts';
import { onEvent } from '../core/safe-events.ts';
import { readNamed } from './input.ts';

/** A request. */
interface HttpRequest {
  readonly method: string;
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  /** JSON. */
  readonly body?: string | undefined;
  /** The request fails after so long without any byte. */
  readonly timeout: Milliseconds;
  /** Certificates of trusted CAs, PEM; undefined: those of the system. */
  readonly ca?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

const FORBIDDEN_PART = /[?#]/;

/** Sends it; resolves with the head of the response, rejects with the system's error. Redirects are not followed. */
export function openRequest({ method, url, headers, body, timeout, ca, signal }: HttpRequest): Promise<IncomingMessage> {
  const open = url.protocol === 'https:' ? openHttps : openHttp;
  const content =
    body === undefined ? undefined : { 'Content-Type': 'application/json', 'Content-Length': String(Buffer.byteLength(body)) };
  return new Promise((resolve, reject) => {
    const outgoing = open(url, {
      method,
      headers: { ...headers, ...content },
      timeout,
      ...(ca === undefined ? undefined : { ca }),
      ...(signal === undefined ? undefined : { signal }),
    });
    onEvent(outgoing, 'timeout', () => outgoing.destroy(new Error(`no response for ${timeout / 1_000} s`)));
    onEvent(outgoing, 'response', resolve);
    onEvent(outgoing, 'error', reject);
    outgoing.end(body);
  });
}

/** Reads the body; undefined if it has more than `maxBytes`. */
export async function readText(incoming: IncomingMessage, maxBytes: number): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of incoming as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > maxBytes) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** Parses the URL of an option. */
export function parseHttpUrl(text: string, option: string, example: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isUsable = url !== undefined && ['http:', 'https:'].includes(url.protocol) && !FORBIDDEN_PART.test(text);
  // Not repeated in the message: it may contain a password, also without a scheme (user:password@host).
  if ((url?.username ?? '') !== '' || (url?.password ?? '') !== '' || (!isUsable && text.includes('@')))
    throw usageError(
      `${option} contains a user or a password, which every user of this machine could read: use the options for credentials`,
    );
  if (!isUsable) throw usageError(`${option} ${text} is not an http or https URL; example: ${example}`);
  return url;
}

/** Reads the file of `--ca`. */
export async function readCa(file: string): Promise<string> {
  const bundle = await readNamed(file, MAX_PEM_BYTES, '--ca');
  const cas = requireCas(file, bundle);
  if ('problem' in cas) throw usageError(`--ca ${cas.problem}; ${cas.hint}`);
  return cas.toString('utf8');
}
