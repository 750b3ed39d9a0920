/** Reads a request of an HTTP Archive (HAR 1.2), as browsers, proxies and API clients save it. */

import * as z from 'zod';
import { usageError } from '../../core/errors.ts';
import { type Captured, splitUrl } from './captured.ts';

const field = z.object({ name: z.string(), value: z.string() });
const Har = z.object({
  log: z.object({
    entries: z.array(
      z.object({
        startedDateTime: z.string().optional(),
        request: z.object({
          method: z.string(),
          url: z.string(),
          headers: z.array(field),
          postData: z
            .object({
              text: z.string().optional(),
              encoding: z.string().optional(),
              params: z.array(z.object({ name: z.string(), value: z.string().default('') })).optional(),
            })
            .optional(),
        }),
      }),
    ),
  }),
});
type Entry = z.output<typeof Har>['log']['entries'][number];

/** The entry of this number, or the only one. */
export function readHar(bytes: Buffer, number: string | undefined): Captured {
  const { request, startedDateTime = '' } = toEntry(parse(bytes).log.entries, number);
  const at = Date.parse(startedDateTime);
  const { body, notes } = toBody(request.postData);
  // HTTP/2 has its request line as fields (RFC 9113 §8.3.1).
  const named = request.headers.filter(({ name }) => !name.startsWith(':'));
  const headers = named.flatMap(({ name, value }) => [name, Buffer.from(value.trim()).toString('latin1')]);
  const { method, url } = request;
  return { method, ...splitUrl(url), headers, body, notes, ...(Number.isNaN(at) ? undefined : { at }) };
}

function parse(bytes: Buffer): z.output<typeof Har> {
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8').replace(/^\uFEFF/, ''));
  } catch {
    throw usageError('the HAR file is no JSON');
  }
  const parsed = Har.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw usageError(`the JSON is no HTTP Archive: ${issue?.path.join('.')}: ${issue?.message}`);
}

function toEntry(entries: readonly Entry[], number: string | undefined): Entry {
  if (number === undefined && entries.length === 1) return entries[0] as Entry;
  const chosen = /^[0-9]{1,6}$/.test(number ?? '') ? entries[Number(number) - 1] : undefined;
  if (chosen !== undefined) return chosen;
  const list = entries.slice(0, 30).map(({ request: { method, url } }, i) => `\n  ${i + 1}: ${method} ${url.slice(0, 120)}`);
  throw usageError(`the HAR file holds ${entries.length} requests; choose one with --entry NUMBER:${list.join('')}`);
}

function toBody(content: Entry['request']['postData']): Pick<Captured, 'body' | 'notes'> {
  const { text, encoding, params } = content ?? {};
  if (text !== undefined) {
    if (encoding === 'base64') return { body: Buffer.from(text, 'base64'), notes: [] };
    const notes = text.includes('\ufffd') ? ['the HAR file holds U+FFFD: bytes of the content that were no UTF-8 are lost'] : [];
    return { body: Buffer.from(text), notes };
  }
  if (params === undefined) return { body: Buffer.alloc(0), notes: [] };
  const form = new URLSearchParams(params.map(({ name, value }): [string, string] => [name, value]));
  return { body: Buffer.from(form.toString()), notes: ['the HAR file has the form in parts: how it was escaped is a guess'] };
}
