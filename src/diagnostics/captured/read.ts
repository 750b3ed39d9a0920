/** Detects the format of a captured request, and reads it. */
import { usageError } from '../../core/errors.ts';
import type { Captured, ReadNamedFile } from './captured.ts';
import { readCurl } from './curl.ts';
import { readHar } from './har.ts';
import { readHttp } from './http-message.ts';
import { readTrace } from './trace.ts';

/** Options for reading a capture. */
export interface CaptureOptions {
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
