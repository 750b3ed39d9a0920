/** Detects the format of a captured request, and reads it. */
import { usageError } from '../../core/errors.ts';
import type { Captured, ReadNamedFile } from './captured.ts';
import { readCurl } from './curl.ts';
import { readHar } from './har.ts';
import { readHttp } from './http-message.ts';

const SENT = /^(?:[0-9:.]+ )?(?:\[[^\]]*\] )?=> Send (header|data)/;
const OTHER = /^(?:[0-9:.]+ )?(?:\[[^\]]*\] )?(?:==|<=|=>) /;
const HEX = /^[0-9a-f]{4,}: ((?:[0-9a-f]{2} ){1,16})/;
/** TLS records, which are ignored. */
const SSL = /=> Send SSL/;

/** Options for reading a capture. */
interface CaptureOptions {
  readonly inputFormat?: string;
  /** Number of the request in a HAR file, from 1. */
  readonly entry?: string;
}

const READERS: Readonly<Record<string, (bytes: Buffer, options: CaptureOptions, readFile: ReadNamedFile) => Captured>> = {
  http: readHttp,
  har: (bytes, { entry }) => readHar(bytes, entry),
  curl: (bytes, _options, readFile) => readCurl(bytes, readFile),
  trace: readTrace,
};

/** Reads a capture; throws usageError if it is not one. */
export function readCaptured(bytes: Buffer, options: CaptureOptions, readFile: ReadNamedFile): Captured {
  const format = options.inputFormat ?? detect(bytes);
  const read = READERS[format];
  if (read === undefined) throw usageError(`--input-format ${format} is not one of ${Object.keys(READERS).join(', ')}`);
  if (options.entry !== undefined && format !== 'har') throw usageError('--entry is only for HAR files');
  return read(bytes, options, readFile);
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
