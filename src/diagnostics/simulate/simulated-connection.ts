/** A simulated connection without a network: passes a request to the gate's own server, byte for byte, and reads the response. */
import { type IncomingMessage, request as openRequest } from 'node:http';
import { Duplex, duplexPair } from 'node:stream';
import { HeaderFields } from '../../core/headers.ts';
import { guardCallback, guardDecision, onEvent } from '../../core/safe-events.ts';
import type { ListenServer } from '../../gateway/server/server.ts';

/** A client and what it sends. */
export interface SimulatedRequest {
  readonly method: string;
  /** Target, field lines and content as they stand on the wire. */
  readonly path: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
  /** The connection's other end. */
  readonly client: string;
  readonly isTls: boolean;
  /** The names in the certificate that the client shows, each with its kind before it. */
  readonly certificateNames: readonly string[] | undefined;
}

/** What the sender gets. */
export interface SenderAnswer {
  readonly status: number;
  readonly headers: HeaderFields;
  readonly body: Buffer;
}

/** Sends one request; undefined where the connection ends without an answer. */
export async function sendSimulated(listen: ListenServer, request: SimulatedRequest): Promise<SenderAnswer | undefined> {
  const [near, far] = duplexPair();
  onEvent(near, 'error', () => undefined);
  listen.receive(Object.assign(far, toPeer(request)));
  const answer = readAnswer(near, request.method);
  near.write(Buffer.concat([Buffer.from(toHead(request), 'latin1'), request.body]));
  try {
    return await answer;
  } finally {
    near.destroy();
    far.destroy();
  }
}

function toHead({ method, path, headers }: SimulatedRequest): string {
  return `${method} ${path} HTTP/1.1\r\n${headers.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`;
}

/** What a socket tells of its other end. */
function toPeer({ client, isTls, certificateNames }: SimulatedRequest): object {
  const peer = { remoteAddress: client, remotePort: 0 };
  if (!isTls) return peer;
  const certificate = certificateNames === undefined ? {} : toCertificate(certificateNames);
  return { ...peer, encrypted: true, authorized: certificateNames !== undefined, getPeerCertificate: () => certificate };
}

/** As node:tls shows one. Nobody signed it: the simulator skips the handshake. */
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

/** Node quotes what would be read as more than one name. */
function toAlternativeName(name: string): string {
  const at = name.indexOf(':');
  const [kind, value] = [name.slice(0, at), name.slice(at + 1)];
  return `${kind}:${/[",\\]/.test(value) ? JSON.stringify(value) : value}`;
}

/** Read by node:http; the request that it writes for that goes nowhere, as ours is on its way. */
function readAnswer(near: Duplex, method: string): Promise<SenderAnswer | undefined> {
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
    onEvent(reader, 'response', async (answer) => resolve(await collect(answer)));
    onEvent(reader, 'error', () => resolve(undefined));
    reader.end();
  });
}

async function collect(answer: IncomingMessage): Promise<SenderAnswer | undefined> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of answer) chunks.push(chunk as Buffer);
  } catch {
    return undefined;
  }
  return { status: answer.statusCode ?? 0, headers: new HeaderFields(answer.rawHeaders), body: Buffer.concat(chunks) };
}
