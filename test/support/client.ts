/** Clients that say exactly what a test wants: one on node:http, one on the bare socket. */
import { type Agent, type IncomingHttpHeaders, type OutgoingHttpHeaders, request as openRequest } from 'node:http';
import { connect, type Socket } from 'node:net';

/** An answer. */
export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
  readonly text: string;
  /** The refusal's code, where it is one. */
  readonly code: string | undefined;
}

/** What may be sent beside method and path. */
export interface SendOptions {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: OutgoingHttpHeaders | readonly string[];
  readonly body?: Buffer | string;
  readonly agent?: Agent;
  /** The address that it comes from. */
  readonly from?: string;
}

/** Sends one request on a connection of its own, and reads the answer whole. */
export function send(port: number, options: SendOptions = {}): Promise<Answer> {
  const { method = 'POST', path = '/hooks/billing', headers = {}, body, agent = false, from = '127.0.0.1' } = options;
  return new Promise((resolve, reject) => {
    const to = { host: '127.0.0.1', port, localAddress: from };
    const outgoing = openRequest({ ...to, method, path, headers, agent }, (incoming) => {
      const chunks: Buffer[] = [];
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
      incoming.on('error', reject);
      incoming.on('end', () => {
        const bytes = Buffer.concat(chunks);
        const isRefusal = incoming.headers['content-type'] === 'application/problem+json' && bytes.length > 0;
        resolve({
          status: incoming.statusCode ?? 0,
          headers: incoming.headers,
          rawHeaders: incoming.rawHeaders,
          body: bytes,
          text: bytes.toString(),
          code: isRefusal ? (JSON.parse(bytes.toString()) as { code: string }).code : undefined,
        });
      });
    });
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

/** Writes bytes to a port and gives back all that comes until the other side closes. */
export function sendRaw(port: number, ...pieces: readonly (string | Buffer)[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket: Socket = connect(port, '127.0.0.1');
    let text = '';
    socket.setEncoding('latin1');
    socket.on('data', (chunk: string) => {
      text += chunk;
    });
    socket.on('close', () => resolve(text));
    socket.on('error', (error: NodeJS.ErrnoException) =>
      error.code === 'ECONNRESET' || error.code === 'EPIPE' ? undefined : reject(error),
    );
    for (const piece of pieces) socket.write(piece, 'latin1');
  });
}

/** The status lines in what a socket gave back. */
export function toStatuses(text: string): number[] {
  return [...text.matchAll(/HTTP\/1\.1 (\d{3})/g)].map((match) => Number(match[1]));
}

/** A head and body as one text, with `Connection: close`. */
export function toRequestText(lines: readonly string[], body = ''): string {
  return `${lines.join('\r\n')}\r\n\r\n${body}`;
}
