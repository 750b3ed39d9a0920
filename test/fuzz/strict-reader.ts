/** Reads requests from bytes by the letter of RFC 9112, independently of node:http and of sidegate. */

/** A request, as far as its recipient depends on it. */
export interface StrictRequest {
  readonly method: string;
  readonly target: string;
  readonly body: string;
}

/** llhttp skips further spaces around the target, as RFC 9112 §3 permits, and empty lines before a request (§2.2). */
const HEAD = /^[\r\n]*([!#$%&'*+.^_`|~0-9A-Za-z-]+) +([\x21-\x7e]+) +HTTP\/1\.[01]\r\n((?:[^\r\n]+\r\n)*)\r\n/;
const LENGTH = /^content-length:[\t ]*(\d+)[\t ]*$/im;
const CHUNKED = /^transfer-encoding:[\t ]*chunked[\t ]*$/im;
const CHUNK = /^([0-9A-Fa-f]+)[^\r\n]*\r\n/;
const TRAILERS = /^(?:[^\r\n]+\r\n)*\r\n/;

/** The complete requests up to the first that is incomplete or malformed. */
export function readStrictly(text: string): StrictRequest[] {
  const requests: StrictRequest[] = [];
  for (let rest = text; ; ) {
    const head = HEAD.exec(rest);
    if (head === null) return requests;
    const [whole, method = '', target = '', fields = ''] = head;
    const body = readBody(rest.slice(whole.length), fields);
    if (body === undefined) return requests;
    requests.push({ method, target, body: body.text });
    rest = body.rest;
  }
}

interface Body {
  readonly text: string;
  readonly rest: string;
}

function readBody(text: string, fields: string): Body | undefined {
  const length = LENGTH.exec(fields)?.[1];
  if (!CHUNKED.test(fields)) return length === undefined ? { text: '', rest: text } : take(text, Number(length));
  let body = '';
  for (let rest = text; ; ) {
    const line = CHUNK.exec(rest);
    if (line === null) return undefined;
    const chunk = take(rest.slice(line[0].length), Number.parseInt(line[1] as string, 16));
    if (chunk === undefined) return undefined;
    body += chunk.text;
    rest = chunk.rest;
    if (chunk.text === '') {
      const end = TRAILERS.exec(rest);
      return end === null ? undefined : { text: body, rest: rest.slice(end[0].length) };
    }
    if (!rest.startsWith('\r\n')) return undefined;
    rest = rest.slice(2);
  }
}

function take(text: string, length: number): Body | undefined {
  return text.length < length ? undefined : { text: text.slice(0, length), rest: text.slice(length) };
}
