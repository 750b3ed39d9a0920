/** `sidegate forget`: makes a running gate forget an event ID, so that the next valid delivery with it is forwarded. */
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

interface ForgetResponse {
  readonly status: number;
  readonly text: string;
}

const MEANINGS: ReadonlyMap<unknown, string> = new Map([
  ['handled', 'it was handled; the next valid delivery is forwarded'],
  ['in-progress', 'the app is handling it now; the next valid delivery is forwarded, unless the app succeeds first'],
  [
    'absent',
    'unknown: it is not an ID of this route, was already forgotten, or is remembered by another replica in its own memory',
  ],
]);
const LOOPBACK = '127.0.0.1';
const WILDCARDS: Readonly<Record<string, string>> = { '0.0.0.0': LOOPBACK, '::': '::1' };
const MAX_RESPONSE_LENGTH = 65_536;

/** Exits with 0 if the ID was known. */
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
    return report(await post(url, JSON.stringify({ id: options.id }), token, timeoutMs), options, io);
  } catch (thrown) {
    const why = (thrown as NodeJS.ErrnoException).code ?? toErrorText(thrown);
    io.stderr(
      `sidegate forget: no response from ${url.host}: ${why}; check that sidegate is running and that this is its admin port\n`,
    );
    return EXIT.failed;
  }
}

function report({ status, text }: ForgetResponse, { route, id }: ForgetOptions, io: Io): number {
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
  const { token, problems } = await readAdminToken(admin);
  const [problem] = problems;
  if (problem !== undefined) throw usageError(`${problem.path}: ${problem.message}: ${problem.hint}`);
  return token?.expose().toString('latin1');
}

function toUrl({ hosts, port }: ListenAddress): URL {
  if (port === 0)
    throw usageError('the config sets the admin port to 0, so the system chooses it: use --admin http://127.0.0.1:PORT');
  const host = hosts[0] ?? LOOPBACK;
  return new URL(`http://${toAddressText(WILDCARDS[host] ?? host, port)}`);
}

function parseUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol))
    throw usageError(`--admin ${text} is not an http or https URL; example: http://127.0.0.1:9090`);
  return url;
}

function post(url: URL, body: string, token: string | undefined, timeoutMs: number): Promise<ForgetResponse> {
  const open = url.protocol === 'https:' ? openHttps : openHttp;
  const headers = {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    ...(token === undefined ? undefined : { Authorization: `Bearer ${token}` }),
  };
  return new Promise((resolve, reject) => {
    const outgoing = open(url, { method: 'POST', headers, signal: AbortSignal.timeout(timeoutMs) });
    onEvent(outgoing, 'response', (incoming) => {
      let text = '';
      incoming.setEncoding('utf8');
      onEvent(incoming, 'data', (chunk: string) => {
        text += chunk;
        // The server there is not an admin port.
        if (text.length > MAX_RESPONSE_LENGTH) incoming.destroy(new Error('the response is too long for an admin port'));
      });
      onEvent(incoming, 'error', reject);
      onEvent(incoming, 'end', () => resolve({ status: incoming.statusCode ?? 0, text }));
    });
    onEvent(outgoing, 'error', reject);
    outgoing.end(body);
  });
}
