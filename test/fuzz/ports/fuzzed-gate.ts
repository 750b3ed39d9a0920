/** A gate with all the ports that the fuzzer sends to, in front of an app whose responses it chooses. */
import { mkdtempSync, rmSync } from 'node:fs';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { REFUSALS } from '../../../src/core/refusal.ts';
import { PROBLEMS } from '../../../src/http-api/problem-catalogue.ts';
import { startApp, type TestApp } from '../../support/app.ts';
import { makeAuthority, toTlsFiles } from '../../support/certificates.ts';
import { makeDelivery } from '../../support/deliveries.ts';
import { startGate, type TestGate, toRoute } from '../../support/gate.ts';
import { sendDelivery } from '../../support/memory-attacks.ts';
import { startScriptApp } from '../../support/script-app.ts';
import { readByNode } from '../parsers/node-parser.ts';

/** The address of the balancer that sends PROXY headers. */
export const BALANCER = '127.0.0.9';
const OK = Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
/** A connection that lasts so long is stuck: all limits of the config are shorter. */
const SILENCE_MS = 5_000;
/** Deliveries in between show that the gate still works. */
const INPUTS_PER_DELIVERY = 50;

/** The gate and what the fuzzer needs of it. */
export interface FuzzedGate {
  readonly clear: TestGate;
  readonly tls: TestGate;
  /** File of the CA. */
  readonly ca: string;
  /** What the hostile app sends for each request. */
  response: Buffer;
  /** The bytes that the hostile app got since the last call, one text for each connection. */
  takeReceived(): string[];
  /** Throws if the gates do not work any more, or an exception was counted; cheap for most calls. */
  expectHealth(): Promise<void>;
  stop(): Promise<void>;
}

/** Starts it. */
export async function startFuzzedGate(): Promise<FuzzedGate> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-fuzz-'));
  const authority = makeAuthority(folder, 'ca');
  const app: TestApp = await startApp();
  let received: string[] = [];
  const hostile = await startScriptApp((socket: Socket) => {
    let own: string[] = [];
    let at = 0;
    socket.on('data', (bytes: Buffer) => {
      // The gate keeps connections, so this one may have been opened for an earlier input.
      if (own !== received) {
        own = received;
        at = own.push('') - 1;
      }
      own[at] += bytes.toString('latin1');
      socket.write(state.response);
      if (state.response !== OK) socket.end();
    });
  });
  const open = {
    name: 'open',
    match: { pathPrefix: '/' },
    upstream: `http://127.0.0.1:${hostile.port}`,
    allow: 'anyone',
    timeout: '2s',
  };
  const sections = {
    limits: { headTimeout: '2s', bodyTimeout: '2s' },
    routes: [open, toRoute(app.port)],
  };
  const queue = { sqlite: { path: join(folder, 'queue.db'), allowVolatile: true } };
  const clear = await startGate({
    ...sections,
    listen: { address: '127.0.0.1:0', proxyProtocol: { from: [BALANCER] } },
    provider: {
      address: '127.0.0.1:0',
      queue,
      endpoints: [{ name: 'acme', url: 'https://acme.example/hooks', secret: { file: 'secret' } }],
    },
  });
  const listen = { address: '127.0.0.1:0', tls: { certFile: 'tls.crt', keyFile: 'tls.key' } };
  const tls = await startGate({ ...sections, listen }, undefined, toTlsFiles(authority.issue('local', 'DNS:localhost')));
  let inputs = 0;
  const state: FuzzedGate = {
    clear,
    tls,
    ca: authority.ca,
    response: OK,
    takeReceived() {
      const taken = received;
      received = [];
      return taken;
    },
    async expectHealth() {
      if (inputs++ % INPUTS_PER_DELIVERY > 0) return;
      app.received.length = 0;
      for (const [gate, isTls] of [
        [clear, false],
        [tls, true],
      ] as const) {
        const status = await sendDelivery(gate.port, makeDelivery(), isTls);
        if (status !== 200) throw new Error(`a valid delivery got ${status}`);
        for (const scope of ['guarded', 'process'])
          if ((await gate.metric(`sidegate_escaped_errors_total{scope="${scope}"}`)) > 0) throw new Error('an exception escaped');
      }
    },
    async stop() {
      await Promise.all([clear.stop(), tls.stop()]);
      hostile.close();
      await app.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
  return state;
}

/**
 * Writes bytes and resolves with all that comes back until the other side ends the connection; rejects if it never does. With
 * `idleMs`, the client ends its side once nothing came for so long: a gate that waits for the rest of a request cannot know better.
 */
export function exchange(socket: Socket, bytes: Buffer, idleMs?: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    const silence = setTimeout(() => {
      socket.destroy();
      reject(new Error(`no end within ${SILENCE_MS} ms`));
    }, SILENCE_MS);
    const idle = idleMs === undefined ? undefined : setTimeout(() => socket.end(), idleMs);
    socket.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      idle?.refresh();
    });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      clearTimeout(silence);
      clearTimeout(idle);
      resolve(Buffer.concat(chunks));
    });
    socket.write(bytes);
  });
}

/** Throws unless these are responses that llhttp reads, with codes from the catalogues. Returns their statuses and bodies. */
export function checkResponses(bytes: Buffer): (readonly [status: number, body: string])[] {
  const { messages, error } = readByNode(bytes, 'RESPONSE');
  if (error !== undefined)
    throw new Error(`a response that llhttp rejects (${error}): ${JSON.stringify(bytes.toString('latin1'))}`);
  for (const { headers, body, isComplete, status = 0 } of messages) {
    if (!isComplete || !headers.includes('application/problem+json') || body === '') continue;
    const { code, status: own } = JSON.parse(body) as { readonly code: string; readonly status: number };
    if (!(code in REFUSALS) && !(code in PROBLEMS)) throw new Error(`the code ${code} is in no catalogue`);
    if (own !== status || code === 'internal_error' || code === 'internal') throw new Error(`${status} with ${body}`);
  }
  return messages.map(({ status = 0, body }) => [status, body]);
}
