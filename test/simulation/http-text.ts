/** HTTP/1.1 as the simulated senders and apps speak it: enough to read what the gate writes. */

export interface HttpMessage {
  /** The request line or the status line. */
  readonly start: string;
  /** By lower-case name. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: Buffer;
}

const HEAD_END = '\r\n\r\n';
const EMPTY = Buffer.alloc(0);

/** Reads messages that have a length. */
export class MessageReader {
  #bytes: Buffer = EMPTY;

  push(bytes: Buffer): HttpMessage[] {
    this.#bytes = this.#bytes.length === 0 ? bytes : Buffer.concat([this.#bytes, bytes]);
    const messages: HttpMessage[] = [];
    for (let message = this.#take(); message !== undefined; message = this.#take()) messages.push(message);
    return messages;
  }

  #take(): HttpMessage | undefined {
    const end = this.#bytes.indexOf(HEAD_END);
    if (end === -1) return undefined;
    const [start = '', ...lines] = this.#bytes.toString('latin1', 0, end).split('\r\n');
    const headers = new Map(lines.map(toField));
    const from = end + HEAD_END.length;
    if (headers.get('transfer-encoding') === 'chunked') return this.#takeChunks(start, headers, from);
    const length = Number(headers.get('content-length') ?? 0);
    if (this.#bytes.length < from + length) return undefined;
    const body = this.#bytes.subarray(from, from + length);
    this.#bytes = this.#bytes.subarray(from + length);
    return { start, headers, body };
  }

  #takeChunks(start: string, headers: ReadonlyMap<string, string>, from: number): HttpMessage | undefined {
    const chunks: Buffer[] = [];
    for (let at = from; ; ) {
      const lineEnd = this.#bytes.indexOf('\r\n', at);
      if (lineEnd === -1) return undefined;
      const length = Number.parseInt(this.#bytes.toString('latin1', at, lineEnd), 16);
      const next = lineEnd + 2 + length + 2;
      if (this.#bytes.length < next) return undefined;
      if (length === 0) {
        this.#bytes = this.#bytes.subarray(next);
        return { start, headers, body: Buffer.concat(chunks) };
      }
      chunks.push(this.#bytes.subarray(lineEnd + 2, lineEnd + 2 + length));
      at = next;
    }
  }
}

/** A request with a body. */
export function formatRequest(path: string, host: string, headers: Readonly<Record<string, string>>, body: Buffer): Buffer {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const method = body.length === 0 ? 'GET' : 'POST';
  const framing = body.length === 0 ? '' : `Content-Length: ${body.length}\r\n`;
  const head = `${method} ${path} HTTP/1.1\r\nHost: ${host}\r\n${lines.join('')}${framing}\r\n`;
  return Buffer.concat([Buffer.from(head, 'latin1'), body]);
}

export function formatResponse(status: number, body = '', more = ''): Buffer {
  return Buffer.from(`HTTP/1.1 ${status} Status\r\nContent-Length: ${Buffer.byteLength(body)}\r\n${more}\r\n${body}`, 'latin1');
}

export function statusOf({ start }: HttpMessage): number {
  return Number(start.slice(9, 12));
}

function toField(line: string): [string, string] {
  const at = line.indexOf(':');
  return [line.slice(0, at).toLowerCase(), line.slice(at + 1).trim()];
}
