/** `sidegate send`: signs a delivery, POSTs it, and prints the response. */
import { request as openHttp } from 'node:http';
import { request as openHttps } from 'node:https';
import { toErrorText, usageError } from '../core/errors.ts';
import { onEvent } from '../core/safe-events.ts';
import { toPrintableLines } from '../core/text.ts';
import { toTimeout } from './input.ts';
import { EXIT, type Io } from './io.ts';
import { type DeliveryOptions, readSignedDelivery, type SignedDelivery } from './sign.ts';

/** The response to a delivery. */
interface SendResult {
  readonly status: number;
  readonly headers: readonly (readonly [string, string])[];
  /** Its beginning. */
  readonly body: string;
}

const SHOWN_HEADERS = new Set(['content-type', 'retry-after', 'www-authenticate', 'allow']);
const MAX_PRINTED_LENGTH = 4096;
/** No character has more bytes. */
const MAX_READ_BYTES = 4 * MAX_PRINTED_LENGTH;

/** Sends it once. */
export async function sendDelivery(
  urlText: string,
  file: string | undefined,
  options: DeliveryOptions & {
    readonly timeout: string;
  },
  io: Io,
): Promise<number> {
  const url = URL.canParse(urlText) ? new URL(urlText) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol))
    throw usageError(`${urlText} is not an http or https URL`);
  const timeoutMs = toTimeout(options.timeout);
  const delivery = await readSignedDelivery(file, options, io, url);
  try {
    if (delivery.query !== undefined) url.search = delivery.query;
    const result = await postDelivery(url, delivery, timeoutMs);
    io.stdout(`${result.status}\n`);
    for (const [name, value] of result.headers) if (SHOWN_HEADERS.has(name)) io.stdout(toPrintableLines(`${name}: ${value}\n`));
    if (result.body !== '') io.stdout(toPrintableLines(`\n${result.body.slice(0, MAX_PRINTED_LENGTH).trimEnd()}\n`));
    return result.status >= 200 && result.status < 300 ? EXIT.ok : EXIT.failed;
  } catch (thrown) {
    io.stderr(`sidegate: no response from ${url.host}: ${(thrown as NodeJS.ErrnoException).code ?? toErrorText(thrown)}\n`);
    return EXIT.failed;
  }
}

/** POSTs it once; rejects with the connection's error. */
export function postDelivery(url: URL, { body, headers }: SignedDelivery, timeoutMs: number): Promise<SendResult> {
  const open = url.protocol === 'https:' ? openHttps : openHttp;
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(timeoutMs);
    const fields = { ...Object.fromEntries(headers), 'Content-Length': body.length };
    const outgoing = open(url, { method: 'POST', headers: fields, signal });
    onEvent(outgoing, 'response', (incoming) => {
      const chunks: Buffer[] = [];
      let length = 0;
      const finish = (): void => {
        const found = Object.entries(incoming.headers).map(([name, value]) => [name, String(value)] as const);
        resolve({ status: incoming.statusCode ?? 0, headers: found, body: Buffer.concat(chunks).toString() });
      };
      onEvent(incoming, 'data', (chunk: Buffer) => {
        chunks.push(chunk);
        length += chunk.length;
        if (length < MAX_READ_BYTES) return;
        finish();
        outgoing.destroy();
      });
      onEvent(incoming, 'error', reject);
      onEvent(incoming, 'end', finish);
    });
    onEvent(outgoing, 'error', reject);
    outgoing.end(body);
  });
}
