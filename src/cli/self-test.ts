/** `sidegate self-test`: app and sender in one, around a gate that stands between them; what `helm test` runs in an injected pod. */

import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import type { Scheme, SignRequest } from '../auth/schemes/scheme.ts';
import { type Milliseconds, systemClock } from '../core/clock.ts';
import { SidegateError, toErrorText, usageError } from '../core/errors.ts';
import { type ListenAddress, parseListenAddress } from '../core/listen-address.ts';
import { onceEvent, onEvent } from '../core/safe-events.ts';
import { paint } from '../core/terminal.ts';
import { SelfTestApp } from '../diagnostics/self-test/app.ts';
import { readSecretOption, toDuration, toScheme } from './input.ts';
import { EXIT, type Io } from './io.ts';
import { postDelivery } from './send.ts';

/** Options of the command. */
export interface SelfTestOptions {
  readonly gate: string;
  readonly app: string;
  readonly secretFile: string;
  readonly wait: string;
  readonly timeout: string;
}

/** A delivery, what the gate must answer, and how often the app must have it afterwards. */
interface Trial {
  readonly name: string;
  readonly id: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
  readonly status: '2xx' | '401';
  readonly atApp: 0 | 1;
}

interface Outcome {
  readonly got: string;
  readonly isRight: boolean;
}

const DAY_MS: Milliseconds = 86_400_000;
const KNOCK_AGAIN_MS: Milliseconds = 250;
const TO_BE_WRITTEN = 'write whsec_ and base64, or of a key pair whsk_ and base64 of the private half';
const WIDTHS = [10, 22, 36] as const;

/** Exit 0 where the gate let the genuine delivery through, once, and nothing else. */
export async function testGate(options: SelfTestOptions, io: Io): Promise<number> {
  const url = toUrl(options.gate);
  const waitMs = toDuration(options.wait, '--wait');
  const timeoutMs = toDuration(options.timeout, '--timeout');
  const trials = await makeTrials(options.secretFile);
  const app = new SelfTestApp(toAddress(options.app));
  try {
    await app.listen();
  } catch (thrown) {
    io.stderr(`sidegate self-test: cannot be the app at ${options.app}: ${toErrorText(thrown)}\n`);
    return EXIT.failed;
  }
  try {
    if (!(await isThere(url, waitMs))) {
      io.stderr(
        `sidegate self-test: nobody listens at ${url.host} after ${options.wait}; does the pod have the sidecar, and is this its port?\n`,
      );
      return EXIT.failed;
    }
    return await runTrials(trials, { url, timeoutMs, app, io });
  } finally {
    app.close();
  }
}

interface SelfTestContext {
  readonly url: URL;
  readonly timeoutMs: Milliseconds;
  readonly app: SelfTestApp;
  readonly io: Io;
}

/** One after the other: the replay is none before the first of it was handled. */
async function runTrials(trials: readonly Trial[], context: SelfTestContext): Promise<number> {
  const { io, url } = context;
  io.stdout(`gate: ${url.href}\n${toRow('delivery', 'expected', 'got').trimEnd()}\n`);
  let wrong = 0;
  for (const trial of trials) {
    const { got, isRight } = await play(trial, context);
    if (!isRight) wrong++;
    io.stdout(
      `${toRow(trial.name, `${trial.status}, ${toCount(trial.atApp)}`, got)} ${isRight ? paint(io, 'good', 'ok') : paint(io, 'bad', 'WRONG')}\n`,
    );
  }
  io.stdout(wrong === 0 ? `all ${trials.length} as expected\n` : `${wrong} of ${trials.length} not as expected\n`);
  return wrong === 0 ? EXIT.ok : EXIT.failed;
}

async function play({ id, headers, body, status, atApp }: Trial, { url, timeoutMs, app }: SelfTestContext): Promise<Outcome> {
  try {
    const answer = await postDelivery(url, { headers, body }, timeoutMs);
    const count = app.count(id, body);
    const isStatus = status === '2xx' ? answer.status >= 200 && answer.status < 300 : answer.status === Number(status);
    const isWhole = app.isUnchanged(id, body);
    const got = `${answer.status}, ${toCount(count)}${isWhole ? '' : ', but changed'}`;
    return { got, isRight: isStatus && isWhole && count === atApp };
  } catch (thrown) {
    return { got: `no answer: ${(thrown as NodeJS.ErrnoException).code ?? toErrorText(thrown)}`, isRight: false };
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
      throw isUnfit(thrown)
        ? usageError(`${secretFile} holds nothing that signs by Standard Webhooks: ${TO_BE_WRITTEN}`)
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

/** The scheme's own hint is a setting of the gate's config. */
function isUnfit(thrown: unknown): boolean {
  return thrown instanceof SidegateError && thrown.code === 'secret_cannot_sign';
}

/** Waits until something takes connections there: a sidecar that is no init container may start after its app. */
async function isThere({ hostname, port, protocol }: URL, waitMs: Milliseconds): Promise<boolean> {
  const end = systemClock.monotonic() + waitMs;
  const host = hostname.replace(/^\[|\]$/g, '');
  const number = port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port);
  for (;;) {
    if (await takesConnections(host, number, Math.max(1, end - systemClock.monotonic()))) return true;
    if (systemClock.monotonic() + KNOCK_AGAIN_MS >= end) return false;
    // Nothing else keeps the process alive meanwhile but the app's port.
    await new Promise<void>((resolve) => {
      systemClock.after(KNOCK_AGAIN_MS, resolve);
    });
  }
}

function takesConnections(host: string, port: number, atMost: Milliseconds): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const finish = (isThereNow: boolean): void => {
      cancel();
      socket.destroy();
      resolve(isThereNow);
    };
    const cancel = systemClock.after(atMost, () => finish(false));
    onceEvent(socket, 'connect', () => finish(true));
    onEvent(socket, 'error', () => finish(false));
  });
}

function toUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol))
    throw usageError(`--gate ${text} is no http or https URL; for example http://127.0.0.1:8480/self-test`);
  return url;
}

function toAddress(text: string): ListenAddress {
  const address = parseListenAddress(text);
  if ('problem' in address) throw usageError(`--app: ${address.problem}`);
  return address;
}

function toCount(count: number): string {
  if (count === 0) return 'not at the app';
  return count === 1 ? 'at the app once' : `at the app ${count} times`;
}

function toRow(...cells: readonly [string, string, string]): string {
  return cells.map((cell, index) => cell.padEnd(WIDTHS[index] as number)).join(' ');
}
