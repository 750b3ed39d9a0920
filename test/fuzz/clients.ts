/** Clients that send a request exactly as it was generated: HTTP/1.1 on a kept socket, and HTTP/2. */
import { type ClientHttp2Session, connect as connectHttp2 } from 'node:http2';
import { connect, type Socket } from 'node:net';
import type { FuzzRequest } from './requests.ts';

/** What came back. */
export interface FuzzResponse {
  readonly status: number;
  readonly body: string;
}

/** Sends one request at a time. */
export interface FuzzClient {
  send(request: FuzzRequest): Promise<FuzzResponse>;
  close(): void;
}

const CUT_OFF: FuzzResponse = { status: 0, body: '' };
/** A side that says nothing for so long is stuck. */
const SILENCE_MS = 20_000;
const HEAD_END = '\r\n\r\n';

/** Keeps one connection for as long as the other side does. */
export class Http1Client implements FuzzClient {
  readonly #port: number;
  #socket: Socket | undefined;

  constructor(port: number) {
    this.#port = port;
  }

  async send(request: FuzzRequest): Promise<FuzzResponse> {
    const socket = this.#socket ?? this.#open();
    this.#socket = socket;
    const { response, isReusable } = await exchange(socket, request);
    if (!isReusable) this.close();
    return response;
  }

  close(): void {
    this.#socket?.destroy();
    this.#socket = undefined;
  }

  #open(): Socket {
    const socket = connect(this.#port, '127.0.0.1');
    socket.setTimeout(SILENCE_MS, () => socket.destroy());
    socket.on('error', () => socket.destroy());
    return socket;
  }
}

interface Exchanged {
  readonly response: FuzzResponse;
  readonly isReusable: boolean;
}

function exchange(socket: Socket, request: FuzzRequest): Promise<Exchanged> {
  return new Promise((resolve) => {
    let text = '';
    const finish = (exchanged: Exchanged): void => {
      socket.removeAllListeners('data');
      socket.removeAllListeners('close');
      resolve(exchanged);
    };
    // A connection that ends before a complete response may have got one without a length.
    socket.once('close', () => finish({ response: parseResponse(text, request.method, true) ?? CUT_OFF, isReusable: false }));
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      const response = parseResponse(text, request.method, false);
      if (response !== undefined) finish({ response, isReusable: !/^connection: *close/im.test(text) });
    });
    socket.write(toBytes(request));
  });
}

function toBytes({ method, target, host, fields, body }: FuzzRequest): Buffer {
  const lines = [`${method} ${target} HTTP/1.1`, `Host: ${host}`, ...fields.map(([name, value]) => `${name}: ${value}`)];
  if (body.length > 0) lines.push(`Content-Length: ${body.length}`);
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}${HEAD_END}`, 'latin1'), body]);
}

function parseResponse(text: string, method: string, isEnded: boolean): FuzzResponse | undefined {
  const end = text.indexOf(HEAD_END);
  if (end === -1) return undefined;
  const head = text.slice(0, end);
  const status = Number(/^HTTP\/1\.[01] (\d{3})/.exec(head)?.[1] ?? 0);
  const rest = text.slice(end + HEAD_END.length);
  // 100 Continue comes before the response proper.
  if (status === 100) return parseResponse(rest, method, isEnded);
  if (method === 'HEAD' || status === 204 || status === 304) return { status, body: '' };
  const length = /^content-length: *(\d+)/im.exec(head)?.[1];
  if (length !== undefined) return rest.length >= Number(length) ? { status, body: rest } : undefined;
  const isComplete = /^transfer-encoding: *chunked/im.test(head) ? rest.endsWith('0\r\n\r\n') : isEnded;
  return isComplete || isEnded ? { status, body: rest } : undefined;
}

/** Fields that HTTP/2 does not have (RFC 9113 §8.2.2); the client library would reject them itself. */
const NOT_IN_HTTP2 = new Set(['connection', 'upgrade', 'expect']);

/** One session; a stream for each request. */
export class Http2Client implements FuzzClient {
  readonly #port: number;
  readonly #ca: Buffer;
  #session: ClientHttp2Session | undefined;

  constructor(port: number, ca: Buffer) {
    this.#port = port;
    this.#ca = ca;
  }

  send({ method, target, host, fields, body }: FuzzRequest): Promise<FuzzResponse> {
    const headers: Record<string, string> = { ':method': method, ':path': target, ':authority': host };
    for (const [name, value] of fields) if (!NOT_IN_HTTP2.has(name.toLowerCase())) headers[name.toLowerCase()] = value;
    return new Promise((resolve) => {
      const stream = this.#open().request(headers, { endStream: body.length === 0 });
      let status = 0;
      let text = '';
      stream.on('response', (fields) => {
        status = fields[':status'] ?? 0;
      });
      stream.setEncoding('latin1');
      stream.on('data', (chunk: string) => {
        text += chunk;
      });
      stream.on('error', () => undefined);
      stream.once('close', () => resolve({ status, body: text }));
      if (body.length > 0) stream.end(body);
    });
  }

  close(): void {
    this.#session?.destroy();
  }

  #open(): ClientHttp2Session {
    if (this.#session !== undefined && !this.#session.closed && !this.#session.destroyed) return this.#session;
    this.#session = connectHttp2(`https://localhost:${this.#port}`, { ca: this.#ca });
    this.#session.on('error', () => undefined);
    return this.#session;
  }
}
