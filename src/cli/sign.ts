/** `sidegate sign`: prints the headers of a signed delivery: as lines, as JSON, or as a curl command. */

import { randomBytes } from 'node:crypto';
import { systemClock } from '../core/clock.ts';
import { usageError } from '../core/errors.ts';
import { pickMediaType } from '../core/head.ts';
import { toQuery } from '../verify/schemes/url.ts';
import { readBody, toSeconds } from './input.ts';
import { EXIT, type Io } from './io.ts';
import { readSender, readSigningSecret, type SenderOptions, toSignedUrl } from './sender.ts';

/** Options that describe a delivery. */
export interface DeliveryOptions extends SenderOptions {
  /** The public URL, for schemes that sign it. */
  readonly publicUrl?: string;
  readonly id?: string;
  readonly timestamp?: string;
}

/** A signed delivery. */
export interface SignedDelivery {
  readonly body: Buffer;
  readonly headers: readonly (readonly [string, string])[];
  /** The query of the URL, which may contain the signature. */
  readonly query?: string | undefined;
  /** Signing wrote the signature, or the time, into the body. */
  readonly isBodyChanged?: boolean;
}

/** Reads the body and the secret, and signs; `sentTo` is the URL that the delivery is sent to, if it is sent. */
export async function readSignedDelivery(
  file: string | undefined,
  options: DeliveryOptions,
  io: Io,
  sentTo?: URL,
): Promise<SignedDelivery> {
  const sender = await readSender(options);
  const id = options.id ?? `msg_${randomBytes(12).toString('base64url')}`;
  if (!/^[\x21-\x7e]{1,256}$/.test(id)) throw usageError('--id must have 1 to 256 printable ASCII characters without spaces');
  const timestamp = options.timestamp === undefined ? systemClock.now() : toSeconds(options.timestamp, '--timestamp') * 1000;
  const { secret, encoding } = await readSigningSecret(sender, options);
  const body = await readBody(file, io);
  const url = toSignedUrl(sender, options.publicUrl, sentTo);
  const request = { id, timestamp, body, method: 'POST', url: url === '' ? (sentTo?.href ?? '') : url };
  const signed = sender.scheme.signRequest(request, secret, encoding);
  const contentType = pickMediaType(sender.contentTypes, body);
  const hasType = contentType === undefined || signed.headers.some(([name]) => name === 'Content-Type');
  const headers = [...(hasType ? [] : [['Content-Type', contentType] as const]), ...signed.headers];
  const query = signed.url === request.url ? undefined : toQuery(signed.url);
  return { body: signed.body, headers, query, isBodyChanged: !signed.body.equals(body) };
}

/** Prints the headers. */
export async function signDelivery(
  file: string | undefined,
  options: DeliveryOptions & {
    readonly format: string;
    readonly url?: string;
  },
  io: Io,
): Promise<number> {
  if (options.format === 'curl' && file === undefined) throw usageError('--format curl requires a file with the body');
  const { headers, query, body, isBodyChanged = false } = await readSignedDelivery(file, options, io);
  const isText = options.format !== 'json' && options.format !== 'curl';
  if (isBodyChanged && !isText)
    throw usageError(
      `the signature is in the body, which --format ${options.format} does not contain: omit it, or use sidegate send`,
    );
  if (options.format === 'json') io.stdout(`${JSON.stringify(Object.fromEntries(headers), undefined, 2)}\n`);
  else if (options.format === 'curl') io.stdout(toCurlLine(headers, file ?? '', options.url ?? 'http://127.0.0.1:8080/'));
  else for (const [name, value] of headers) io.stdout(`${name}: ${value}\n`);
  if (query !== undefined) io.stderr(`the signature is in the query: ${query}\n`);
  if (isBodyChanged) io.stdout(`\n${body.toString()}\n`);
  return EXIT.ok;
}

/** Uses `--data-binary`, because `-d` removes line endings, which invalidates the signature. */
function toCurlLine(headers: SignedDelivery['headers'], file: string, url: string): string {
  const fields = headers.map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`);
  return `curl -i ${fields.join(' ')} --data-binary ${quote(`@${file}`)} ${quote(url)}\n`;
}

function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
