/** Reads the output of `curl --trace FILE`: the sent bytes, in hex. */
import { usageError } from '../../core/errors.ts';
import type { Captured } from './captured.ts';
import { readHttp } from './http-message.ts';

const SENT = /^(?:[0-9:.]+ )?(?:\[[^\]]*\] )?=> Send (header|data)/;
const OTHER = /^(?:[0-9:.]+ )?(?:\[[^\]]*\] )?(?:==|<=|=>) /;
const HEX = /^[0-9a-f]{4,}: ((?:[0-9a-f]{2} ){1,16})/;
/** TLS records, which are ignored. */
const SSL = /=> Send SSL/;

/** The first request of the trace. */
export function readTrace(bytes: Buffer): Captured {
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
