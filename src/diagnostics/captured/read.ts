/** Detects the format of a captured request, and reads it: HTTP Archives (HAR 1.2) and traces of curl here. */
import * as z from 'zod';
import { usageError } from '../../core/errors.ts';
import { type Captured, type ReadNamedFile, readHttp, splitUrl } from './captured.ts';
import { readCurl } from './curl.ts';

const SENT = /^(?:[0-9:.]+ )?(?:\[[^\]]*\] )?=> Send (header|data)/;
const OTHER = /^(?:[0-9:.]+ )?(?:\[[^\]]*\] )?(?:==|<=|=>) /;
const HEX = /^[0-9a-f]{4,}: ((?:[0-9a-f]{2} ){1,16})/;
/** TLS records, which are ignored. */
const SSL = /=> Send SSL/;

const READERS: Readonly<Record<string, (bytes: Buffer, readFile: ReadNamedFile, entry: string | undefined) => Captured>> = {
  http: readHttp,
  har: (bytes, _readFile, entry) => readHar(bytes, entry),
  curl: readCurl,
  trace: readTrace,
};

/** Reads a capture; throws usageError if it is not one. `entry`: number of the request in a HAR file, from 1. */
export function readCaptured(
  bytes: Buffer,
  { inputFormat, entry }: { readonly inputFormat?: string; readonly entry?: string },
  readFile: ReadNamedFile,
): Captured {
  const format = inputFormat ?? detect(bytes);
  const read = READERS[format];
  if (read === undefined) throw usageError(`--input-format ${format} is not one of ${Object.keys(READERS).join(', ')}`);
  if (entry !== undefined && format !== 'har') throw usageError('--entry is only for HAR files');
  return read(bytes, readFile, entry);
}

const DETECTION_BYTES = 4_096;

function detect(bytes: Buffer): string {
  const head = bytes
    .subarray(0, DETECTION_BYTES)
    .toString('latin1')
    .replace(/^(?:ï»¿)?\s+/, '');
  if (head.startsWith('{') || head.startsWith('ï»¿{')) return 'har';
  if (/^(?:\$ +)?curl(?:\.exe)?\s/.test(head)) return 'curl';
  if (/^(?:[0-9:.]+ )?(?:== Info|=> Send)/.test(head)) return 'trace';
  if (/^[!#$%&'*+.^_`|~0-9A-Za-z-]+ \S+ HTTP\/[0-9.]+\s*$/m.test(head.split('\n')[0] ?? '')) return 'http';
  throw usageError(
    'unknown format: use a raw HTTP request (POST /path HTTP/1.1, headers, an empty line, the body), a HAR file, a curl command line or the output of curl --trace',
  );
}

/** The first request of the trace. */
function readTrace(bytes: Buffer): Captured {
  const parts: { readonly kind: string; readonly digits: string[] }[] = [];
  let part: { readonly kind: string; readonly digits: string[] } | undefined;
  for (const line of bytes.toString('latin1').split(/\r?\n/)) {
    const kind = SSL.test(line) ? undefined : SENT.exec(line)?.[1];
    if (kind !== undefined) {
      part = { kind, digits: [] };
      parts.push(part);
    } else if (OTHER.test(line)) part = undefined;
    else part?.digits.push(HEX.exec(line)?.[1] ?? '');
  }
  const second = parts.findIndex(({ kind }, i) => i > 0 && kind === 'header');
  const sent = second === -1 ? parts : parts.slice(0, second);
  const request = Buffer.concat(sent.map(({ digits }) => Buffer.from(digits.join('').replaceAll(' ', ''), 'hex')));
  if (request.length === 0)
    throw usageError('the trace contains no sent bytes: use --trace, because --trace-ascii and -v do not write them');
  return readHttp(request);
}

const field = z.object({ name: z.string(), value: z.string() });
const Har = z.object({
  log: z.object({
    entries: z.array(
      z.object({
        startedDateTime: z.string().optional(),
        /** In captures of the admin port (diagnostics/explain/captures.ts). */
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
function readHar(bytes: Buffer, number: string | undefined): Captured {
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
