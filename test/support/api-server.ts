/** A TLS server in the place of a cluster's API server: real sockets and certificates, answers of the test's own. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TLSSocket } from 'node:tls';
import { systemClock } from '../../src/core/clock.ts';
import { KubeClient } from '../../src/kubernetes/client/client.ts';
import { type Authority, makeAuthority } from './certificates.ts';

/** What the server was asked. */
export interface Asked {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
  /** The common name in the client's certificate. */
  readonly clientName: string | undefined;
  /** Tells connections apart. */
  readonly clientPort: number;
}

/** A server that is up. */
export interface ApiServer {
  readonly folder: string;
  readonly authority: Authority;
  readonly url: URL;
  readonly ca: string;
  readonly asked: Asked[];
  stop(): Promise<void>;
}

/** What it answers. */
export type AnswerWith = (asked: Asked, response: ServerResponse) => void;

/** A JSON answer. */
export function answerJson(response: ServerResponse, status: number, value: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'Content-Type': 'application/json', ...headers }).end(JSON.stringify(value));
}

/** The API server's form of an error. */
export function toStatus(code: number, reason: string, message: string): object {
  return { kind: 'Status', apiVersion: 'v1', status: 'Failure', code, reason, message };
}

/** A client that connects to it as in a pod. */
export function toClient({ url, ca }: ApiServer, token = 't'): KubeClient {
  return new KubeClient({ kind: 'pod', server: url, ca, token: async () => token }, systemClock);
}

/** Starts one on loopback, whose certificate is for `names`; client certificates by its own authority are taken, none is wanted. */
export async function startApiServer(answer: AnswerWith, names = 'IP:127.0.0.1,DNS:localhost'): Promise<ApiServer> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-kube-'));
  const authority = makeAuthority(folder, 'cluster-ca');
  const pair = authority.issue('kube-apiserver', names);
  const ca = readFileSync(authority.ca, 'utf8');
  const asked: Asked[] = [];
  const server = createServer(
    { cert: readFileSync(pair.cert), key: readFileSync(pair.key), ca, requestCert: true, rejectUnauthorized: false },
    (request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const entry = toAsked(request, Buffer.concat(chunks).toString());
        asked.push(entry);
        answer(entry, response);
      });
    },
  );
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address() as AddressInfo;
  return {
    folder,
    authority,
    url: new URL(`https://127.0.0.1:${port}`),
    ca,
    asked,
    async stop() {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function toAsked(request: IncomingMessage, body: string): Asked {
  const socket = request.socket as TLSSocket;
  const { subject } = socket.getPeerCertificate();
  return {
    method: request.method ?? '',
    url: request.url ?? '',
    headers: request.headers,
    body,
    clientName: socket.authorized ? String(subject?.CN) : undefined,
    clientPort: socket.remotePort ?? 0,
  };
}
