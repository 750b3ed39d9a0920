/** A simulated connection without a network: passes a request to the gate's own server, byte for byte, and reads the response. */
import { type IncomingMessage, request as openRequest } from 'node:http';
import { Duplex, duplexPair } from 'node:stream';
import { HeaderFields } from '../../core/headers.ts';
import { guardCallback, guardDecision, onEvent } from '../../core/safe-events.ts';
import type { ListenServer } from '../../http/server/server.ts';

/** A client and what it sends. */
export interface SimulatedRequest {
  readonly method: string;
  /** Target, headers and body, as sent on the wire. */
  readonly path: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
  /** Address of the client. */
  readonly client: string;
  readonly isTls: boolean;
  /** The names in the client certificate, each prefixed with its kind. */
  readonly certificateNames: readonly string[] | undefined;
}

/** The response to the sender. */
export interface SenderResponse {
  readonly status: number;
  readonly headers: HeaderFields;
  readonly body: Buffer;
}

/** Sends one request; resolves to undefined if the connection is closed without a response. */
export async function sendSimulated(listen: ListenServer, request: SimulatedRequest): Promise<SenderResponse | undefined> {
  const [near, far] = duplexPair();
  onEvent(near, 'error', () => undefined);
  listen.receive(Object.assign(far, toPeer(request)));
  const response = readResponse(near, request.method);
  near.write(Buffer.concat([Buffer.from(toHead(request), 'latin1'), request.body]));
  try {
    return await response;
  } finally {
    near.destroy();
    far.destroy();
  }
}

function toHead({ method, path, headers }: SimulatedRequest): string {
  return `${method} ${path} HTTP/1.1\r\n${headers.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`;
}

/** The socket properties that describe the peer. */
function toPeer({ client, isTls, certificateNames }: SimulatedRequest): object {
  const peer = { remoteAddress: client, remotePort: 0 };
  if (!isTls) return peer;
  const certificate = certificateNames === undefined ? {} : toCertificate(certificateNames);
  return { ...peer, encrypted: true, authorized: certificateNames !== undefined, getPeerCertificate: () => certificate };
}

/** A certificate in the form of node:tls. It is not signed, because the simulator skips the handshake. */
function toCertificate(names: readonly string[]): object {
  const alternatives = names.filter((name) => !name.startsWith('CN:')).map(toAlternativeName);
  const [commonName, ...more] = names.filter((name) => name.startsWith('CN:')).map((name) => name.slice(3));
  const raw = Buffer.from(`certificate of ${names.join(', ')}`);
  return {
    subject: { CN: more.length === 0 ? commonName : [commonName, ...more] },
    subjectaltname: alternatives.join(', '),
    raw,
    valid_from: 'Jan 1 00:00:00 1970 GMT',
    valid_to: 'Dec 31 23:59:59 9999 GMT',
  };
}

/** Node quotes values that could be parsed as several names. */
function toAlternativeName(name: string): string {
  const at = name.indexOf(':');
  const [kind, value] = [name.slice(0, at), name.slice(at + 1)];
  return `${kind}:${/[",\\]/.test(value) ? JSON.stringify(value) : value}`;
}

/** Parses the response with node:http, and discards the request that it writes for that. */
function readResponse(near: Duplex, method: string): Promise<SenderResponse | undefined> {
  const connection = new Duplex({
    read: guardCallback(() => {
      near.resume();
    }),
    write: guardCallback((_chunk, _encoding, done) => done()),
  });
  onEvent(near, 'data', (chunk: Buffer) => connection.push(chunk));
  onEvent(near, 'end', () => connection.push(null));
  onEvent(near, 'close', () => connection.destroy());
  return new Promise((resolve) => {
    const reader = openRequest({
      method: method === 'HEAD' ? 'HEAD' : 'GET',
      createConnection: guardDecision(() => connection, undefined),
    });
    onEvent(reader, 'response', async (incoming) => resolve(await collect(incoming)));
    onEvent(reader, 'error', () => resolve(undefined));
    reader.end();
  });
}

async function collect(incoming: IncomingMessage): Promise<SenderResponse | undefined> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
  } catch {
    return undefined;
  }
  return { status: incoming.statusCode ?? 0, headers: new HeaderFields(incoming.rawHeaders), body: Buffer.concat(chunks) };
}
