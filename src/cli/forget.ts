/** `sidegate forget`: asks a running gate to forget one id, so that the event's next genuine delivery is let through. */
import { request as openHttp } from 'node:http';
import { request as openHttps } from 'node:https';
import { loadConfig } from '../config/load/load.ts';
import type { AdminConfig } from '../config/schema/config.ts';
import { formatProblem } from '../config/schema/problem.ts';
import { systemClock } from '../core/clock.ts';
import { toErrorText, usageError } from '../core/errors.ts';
import { type ListenAddress, toAddressText } from '../core/listen-address.ts';
import { onEvent } from '../core/safe-events.ts';
import { readAdminToken } from '../gateway/runtime/admin.ts';
import { toTimeout } from './input.ts';
import { EXIT, type Io } from './io.ts';

/** Options of the command. */
export interface ForgetOptions {
  readonly config: string;
  readonly route: string;
  readonly id: string;
  readonly admin?: string;
  readonly timeout: string;
}

interface Answer {
  readonly status: number;
  readonly text: string;
}

const MEANINGS: ReadonlyMap<unknown, string> = new Map([
  ['handled', 'it was handled; its next genuine delivery is let through'],
  ['in-progress', 'it is with the app right now; its next genuine delivery is let through, unless the app succeeds first'],
  [
    'absent',
    'the gate does not know it: not on this route, forgotten already, or remembered by another replica in its own memory',
  ],
]);
const LOOPBACK = '127.0.0.1';
const WILDCARDS: Readonly<Record<string, string>> = { '0.0.0.0': LOOPBACK, '::': '::1' };
const LARGEST_ANSWER = 65_536;

/** Exit 0 where there was something to forget. */
export async function forgetId(options: ForgetOptions, io: Io): Promise<number> {
  const timeoutMs = toTimeout(options.timeout, 'forget', io);
  const loaded = await loadConfig(options.config, systemClock, { needsUpstream: false });
  if (loaded.config === undefined) {
    for (const problem of loaded.problems) io.stderr(`${formatProblem(problem)}\n`);
    return EXIT.usage;
  }
  const { admin } = loaded.config;
  const base = options.admin === undefined ? toUrl(admin.address) : parseUrl(options.admin);
  const token = await readToken(admin);
  const url = new URL(`/routes/${encodeURIComponent(options.route)}/forget`, base);
  try {
    return tell(await post(url, JSON.stringify({ id: options.id }), token, timeoutMs), options, io);
  } catch (thrown) {
    const why = (thrown as NodeJS.ErrnoException).code ?? toErrorText(thrown);
    io.stderr(`sidegate forget: no answer from ${url.host}: ${why}; does the gate run, and is this its admin port?\n`);
    return EXIT.failed;
  }
}

function tell({ status, text }: Answer, { route, id }: ForgetOptions, io: Io): number {
  const was = status === 200 ? toState(text) : undefined;
  const meaning = MEANINGS.get(was);
  if (meaning === undefined) {
    io.stderr(`sidegate forget: ${status} ${text.trimEnd()}\n`);
    return EXIT.failed;
  }
  io.stdout(`${id} on ${route}: ${was}\n${meaning}\n`);
  return was === 'absent' ? EXIT.failed : EXIT.ok;
}

function toState(text: string): unknown {
  try {
    return (JSON.parse(text) as { was?: unknown }).was;
  } catch {
    return undefined;
  }
}

async function readToken(admin: AdminConfig): Promise<string | undefined> {
  const { token, troubles } = await readAdminToken(admin);
  const [trouble] = troubles;
  if (trouble !== undefined) throw usageError(`${trouble.path}: ${trouble.message}: ${trouble.hint}`);
  return token?.expose().toString('latin1');
}

function toUrl({ hosts, port }: ListenAddress): URL {
  if (port === 0)
    throw usageError('the config lets the system choose the admin port: name it with --admin http://127.0.0.1:PORT');
  const host = hosts[0] ?? LOOPBACK;
  return new URL(`http://${toAddressText(WILDCARDS[host] ?? host, port)}`);
}

function parseUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol))
    throw usageError(`--admin ${text} is no http or https URL; for example http://127.0.0.1:9090`);
  return url;
}

function post(url: URL, content: string, token: string | undefined, timeoutMs: number): Promise<Answer> {
  const open = url.protocol === 'https:' ? openHttps : openHttp;
  const headers = {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(content),
    ...(token === undefined ? undefined : { Authorization: `Bearer ${token}` }),
  };
  return new Promise((resolve, reject) => {
    const outgoing = open(url, { method: 'POST', headers, signal: AbortSignal.timeout(timeoutMs) });
    onEvent(outgoing, 'response', (incoming) => {
      let text = '';
      incoming.setEncoding('utf8');
      onEvent(incoming, 'data', (chunk: string) => {
        text += chunk;
        // Whatever listens there, it is no gate.
        if (text.length > LARGEST_ANSWER) incoming.destroy(new Error('the answer is too long for a gate'));
      });
      onEvent(incoming, 'error', reject);
      onEvent(incoming, 'end', () => resolve({ status: incoming.statusCode ?? 0, text }));
    });
    onEvent(outgoing, 'error', reject);
    outgoing.end(content);
  });
}
