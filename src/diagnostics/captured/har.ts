/** Reads a request from an HTTP Archive (HAR 1.2), as saved by browsers, proxies and API clients. */

import * as z from 'zod';
import { usageError } from '../../core/errors.ts';
import { type Captured, splitUrl } from './captured.ts';

const field = z.object({ name: z.string(), value: z.string() });
const Har = z.object({
  log: z.object({
    entries: z.array(
      z.object({
        startedDateTime: z.string().optional(),
        /** In captures of the admin port (diagnostics/explain/capture-har.ts). */
        _sidegate: z.object({ body: z.string(), notes: z.array(z.string()) }).optional(),
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
type HarEntry = z.output<typeof Har>['log']['entries'][number];

/** Reads the entry with this number, or the only one. */
export function readHar(bytes: Buffer, number: string | undefined): Captured {
  const { request, startedDateTime = '', _sidegate: own } = toEntry(parse(bytes).log.entries, number);
  const at = Date.parse(startedDateTime);
  const { body, notes } = toBody(request.postData);
  // HTTP/2 sends the request line as pseudo-header fields (RFC 9113 §8.3.1).
  const named = request.headers.filter(({ name }) => !name.startsWith(':'));
  const headers = named.flatMap(({ name, value }) => [name, Buffer.from(value.trim()).toString('latin1')]);
  const { method, url } = request;
  const captured = { method, ...splitUrl(url), headers, body, notes, ...(Number.isNaN(at) ? undefined : { at }) };
  return own === undefined ? captured : { ...captured, notes: [...notes, ...own.notes], isBodyComplete: own.body === 'complete' };
}

function parse(bytes: Buffer): z.output<typeof Har> {
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8').replace(/^\uFEFF/, ''));
  } catch {
    throw usageError('the HAR file is not valid JSON');
  }
  const parsed = Har.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  if (issue?.path.join('.') === 'log')
    throw usageError(
      'the JSON is not an HTTP Archive: it has no "log"; give the whole request with its headers, not only its body (docs/explain.md)',
    );
  throw usageError(`the JSON is not an HTTP Archive: ${issue?.path.join('.')}: ${issue?.message}`);
}

function toEntry(entries: readonly HarEntry[], number: string | undefined): HarEntry {
  if (number === undefined && entries.length === 1) return entries[0] as HarEntry;
  const chosen = /^[0-9]{1,6}$/.test(number ?? '') ? entries[Number(number) - 1] : undefined;
  if (chosen !== undefined) return chosen;
  const list = entries.slice(0, 30).map(({ request: { method, url } }, i) => `\n  ${i + 1}: ${method} ${url.slice(0, 120)}`);
  throw usageError(`the HAR file contains ${entries.length} requests; select one with --entry NUMBER:${list.join('')}`);
}

function toBody(content: HarEntry['request']['postData']): Pick<Captured, 'body' | 'notes'> {
  const { text, encoding, params } = content ?? {};
  if (text !== undefined) {
    if (encoding === 'base64') return { body: Buffer.from(text, 'base64'), notes: [] };
    const notes = text.includes('\ufffd') ? ['the HAR file contains U+FFFD: bytes of the body that were not UTF-8 are lost'] : [];
    return { body: Buffer.from(text), notes };
  }
  if (params === undefined) return { body: Buffer.alloc(0), notes: [] };
  const form = new URLSearchParams(params.map(({ name, value }): [string, string] => [name, value]));
  return {
    body: Buffer.from(form.toString()),
    notes: ['the HAR file contains the decoded form fields: their original encoding is a guess'],
  };
}
