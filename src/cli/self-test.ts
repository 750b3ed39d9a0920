/** `sidegate self-test`: acts as the sender and the app of a running gate; `helm test` runs it in an injected pod. */

import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { type Milliseconds, systemClock } from '../core/clock.ts';
import { SidegateError, toErrorText, usageError } from '../core/errors.ts';
import { type ListenAddress, parseListenAddress } from '../core/listen-address.ts';
import { onceEvent, onEvent } from '../core/safe-events.ts';
import { paint } from '../core/text.ts';
import { type BoundAddress, Listener } from '../http/server/listener.ts';
import type { Scheme, SignRequest } from '../verify/schemes/scheme.ts';
import { readSecretOption, toDuration, toScheme } from './input.ts';
import { EXIT, type Io } from './io.ts';
import { postDelivery } from './send.ts';

/** A delivery, the expected response, and how often the app must have received it afterwards. */
interface Trial {
  readonly name: string;
  readonly id: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
  readonly status: '2xx' | '401';
  readonly atApp: 0 | 1;
}

interface TrialResult {
  readonly actual: string;
  readonly isExpected: boolean;
}

const DAY_MS: Milliseconds = 86_400_000;
const CONNECT_RETRY_MS: Milliseconds = 250;
const SECRET_FORMAT = 'use whsec_ followed by base64, or whsk_ followed by the base64 of a private key';
const WIDTHS = [10, 22, 36] as const;

/** Exits with 0 if the gate forwarded the valid delivery, once, and nothing else. */
export async function testGate(
  options: {
    readonly gate: string;
    readonly app: string;
    readonly secretFile: string;
    readonly wait: string;
    readonly timeout: string;
  },
  io: Io,
): Promise<number> {
  const url = toUrl(options.gate);
  const waitMs = toDuration(options.wait, '--wait');
  const timeoutMs = toDuration(options.timeout, '--timeout');
  const trials = await makeTrials(options.secretFile);
  const app = new SelfTestApp(toAddress(options.app));
  try {
    await app.listen();
  } catch (thrown) {
    io.stderr(`sidegate: cannot listen as the app at ${options.app}: ${toErrorText(thrown)}\n`);
    return EXIT.failed;
  }
  try {
    if (!(await isListening(url, waitMs))) {
      io.stderr(
        `sidegate: nothing listens at ${url.host} after ${options.wait}; check that the pod has the sidecar, and that this is its port\n`,
      );
      return EXIT.failed;
    }
    return await runTrials(trials, { url, timeoutMs, app, io });
  } finally {
    app.close();
  }
}

/** In sequence: the replay must follow the original. */
async function runTrials(
  trials: readonly Trial[],
  context: {
    readonly url: URL;
    readonly timeoutMs: Milliseconds;
    readonly app: SelfTestApp;
    readonly io: Io;
  },
): Promise<number> {
  const { url, timeoutMs, app, io } = context;
  io.stdout(`gate: ${url.href}\n${toRow('delivery', 'expected', 'actual').trimEnd()}\n`);
  let wrong = 0;
  for (const trial of trials) {
    const { actual, isExpected } = await runTrial(trial, url, timeoutMs, app);
    if (!isExpected) wrong++;
    io.stdout(
      `${toRow(trial.name, `${trial.status}, ${toCount(trial.atApp)}`, actual)} ${isExpected ? paint(io, 'good', 'ok') : paint(io, 'bad', 'WRONG')}\n`,
    );
  }
  io.stdout(wrong === 0 ? `all ${trials.length} as expected\n` : `${wrong} of ${trials.length} not as expected\n`);
  return wrong === 0 ? EXIT.ok : EXIT.failed;
}

async function runTrial(
  { id, headers, body, status, atApp }: Trial,
  url: URL,
  timeoutMs: Milliseconds,
  app: SelfTestApp,
): Promise<TrialResult> {
  try {
    const response = await postDelivery(url, { headers, body }, timeoutMs);
    const count = app.count(id, body);
    const isStatus = status === '2xx' ? response.status >= 200 && response.status < 300 : response.status === Number(status);
    const isUnchanged = app.isUnchanged(id, body);
    const actual = `${response.status}, ${toCount(count)}${isUnchanged ? '' : ', but changed'}`;
    return { actual, isExpected: isStatus && isUnchanged && count === atApp };
  } catch (thrown) {
    return { actual: `no response: ${(thrown as NodeJS.ErrnoException).code ?? toErrorText(thrown)}`, isExpected: false };
  }
}

async function makeTrials(secretFile: string): Promise<Trial[]> {
  const scheme = toScheme('standard-webhooks');
  const secret = await readSecretOption({ secretFile });
  const now = systemClock.now();
  const sign = (request: SignRequest): ReturnType<Scheme['sign']> => {
    try {
      return scheme.sign(request, secret, undefined);
    } catch (thrown) {
      throw cannotSign(thrown)
        ? usageError(`${secretFile} does not contain a Standard Webhooks secret: ${SECRET_FORMAT}`)
        : thrown;
    }
  };
  const make = (timestamp: number): Pick<Trial, 'id' | 'headers' | 'body'> => {
    const id = `msg_selftest_${randomBytes(12).toString('base64url')}`;
    const data = { type: 'sidegate.self_test', id, created: Math.floor(timestamp / 1_000), data: {} };
    const body = Buffer.from(JSON.stringify(data));
    const signature = sign({ id, timestamp, body, method: 'POST', url: '' });
    return { id, body, headers: [['Content-Type', 'application/json'], ...signature] };
  };
  const [signed, tampered, stale] = [make(now), make(now), make(now - DAY_MS)];
  const changed = Buffer.from(tampered.body.toString().replace('"data":{}', '"data":{"paid":true}'));
  return [
    { ...signed, name: 'signed', status: '2xx', atApp: 1 },
    { ...tampered, body: changed, name: 'tampered', status: '401', atApp: 0 },
    { ...signed, name: 'replayed', status: '2xx', atApp: 1 },
    { ...stale, name: 'stale', status: '401', atApp: 0 },
  ];
}

/** The scheme's own hint does not help here: it names a setting of the config. */
function cannotSign(thrown: unknown): boolean {
  return thrown instanceof SidegateError && thrown.code === 'secret_cannot_sign';
}

/** Waits until the port accepts connections: a sidecar that is not an init container may start after its app. */
async function isListening({ hostname, port, protocol }: URL, waitMs: Milliseconds): Promise<boolean> {
  const end = systemClock.monotonic() + waitMs;
  const host = hostname.replace(/^\[|\]$/g, '');
  const number = port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port);
  for (;;) {
    if (await acceptsConnections(host, number, Math.max(1, end - systemClock.monotonic()))) return true;
    if (systemClock.monotonic() + CONNECT_RETRY_MS >= end) return false;
    // Only the app's port keeps the process alive meanwhile.
    await new Promise<void>((resolve) => {
      systemClock.after(CONNECT_RETRY_MS, resolve);
    });
  }
}

function acceptsConnections(host: string, port: number, timeout: Milliseconds): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const finish = (isAccepted: boolean): void => {
      cancel();
      socket.destroy();
      resolve(isAccepted);
    };
    const cancel = systemClock.after(timeout, () => finish(false));
    onceEvent(socket, 'connect', () => finish(true));
    onEvent(socket, 'error', () => finish(false));
  });
}

function toUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol))
    throw usageError(`--gate ${text} is not an http or https URL; example: http://127.0.0.1:8480/self-test`);
  return url;
}

function toAddress(text: string): ListenAddress {
  const address = parseListenAddress(text);
  if ('problem' in address) throw usageError(`--app: ${address.problem}`);
  return address;
}

function toCount(count: number): string {
  if (count === 0) return 'not forwarded';
  return count === 1 ? 'forwarded once' : `forwarded ${count} times`;
}

function toRow(...cells: readonly [string, string, string]): string {
  return cells.map((cell, index) => cell.padEnd(WIDTHS[index] as number)).join(' ');
}

// The app of `sidegate self-test`: accepts and records all requests.

const MAX_BODY_BYTES = 65_536;

/** A request that the app received. */
interface ReceivedRequest {
  readonly id: string | undefined;
  readonly body: Buffer;
}

/** The app; `listen` opens its port. */
class SelfTestApp {
  readonly #server: Server;
  readonly #listener: Listener;
  readonly #received: ReceivedRequest[] = [];

  constructor(address: ListenAddress) {
    this.#server = createServer();
    onEvent(this.#server, 'request', (request, response) => this.#take(request, response));
    this.#listener = new Listener(this.#server, address);
  }

  /** Rejects with the system's error. */
  listen(): Promise<BoundAddress> {
    return this.#listener.open();
  }

  /** How many requests have this ID or this body. */
  count(id: string, body: Buffer): number {
    return this.#received.filter((request) => request.id === id || request.body.equals(body)).length;
  }

  /** Whether all requests with this ID have this body. */
  isUnchanged(id: string, body: Buffer): boolean {
    return this.#received.every((request) => request.id !== id || request.body.equals(body));
  }

  close(): void {
    this.#listener.close();
    this.#server.closeAllConnections();
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    let size = 0;
    try {
      for await (const chunk of request) {
        size += (chunk as Buffer).length;
        if (size > MAX_BODY_BYTES) {
          response.writeHead(413, { Connection: 'close' }).end();
          return;
        }
        chunks.push(chunk as Buffer);
      }
    } catch {
      // The sender disconnected, so the body is incomplete.
      return;
    }
    this.#received.push({ id: String(request.headers['webhook-id']), body: Buffer.concat(chunks) });
    response.end('handled by the self-test\n');
  }
}
