/** `sidegate forget`: makes a running gate forget an event ID, so that the next valid delivery with it is forwarded. */

import { readAdminToken } from '../app/admin.ts';
import { loadConfig } from '../config/load/load.ts';
import type { AdminConfig } from '../config/schema/config.ts';
import { type Milliseconds, systemClock } from '../core/clock.ts';
import { toErrorText, usageError } from '../core/errors.ts';
import { type ListenAddress, toLocalTarget } from '../core/listen-address.ts';
import { formatProblem } from '../core/problem.ts';
import { toPrintable } from '../core/text.ts';
import { openRequest, parseHttpUrl, readCa, readText } from './http-request.ts';
import { toTimeout } from './input.ts';
import { EXIT, type Io } from './io.ts';

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
const MAX_RESPONSE_BYTES = 65_536;

/** Exits with 0 if the ID was known. */
export async function forgetId(
  options: {
    readonly config: string;
    readonly route: string;
    readonly id: string;
    readonly admin?: string;
    readonly ca?: string;
    readonly timeout: string;
  },
  io: Io,
): Promise<number> {
  const timeout = toTimeout(options.timeout);
  const loaded = await loadConfig(options.config, systemClock, { needsUpstream: false });
  if (loaded.config === undefined) {
    for (const problem of loaded.problems) io.stderr(`${formatProblem(problem)}\n`);
    return EXIT.usage;
  }
  const { admin } = loaded.config;
  const base =
    options.admin === undefined ? toUrl(admin.address) : parseHttpUrl(options.admin, '--admin', 'http://127.0.0.1:9090');
  const ca = options.ca === undefined ? undefined : await readCa(options.ca);
  const token = await readToken(admin);
  const url = new URL(`/routes/${encodeURIComponent(options.route)}/forget`, base);
  try {
    return report(await post({ url, token, ca, timeout }, options.id), `${options.id} on ${options.route}`, io);
  } catch (thrown) {
    const why = (thrown as NodeJS.ErrnoException).code ?? toErrorText(thrown);
    io.stderr(`sidegate: no response from ${url.host}: ${why}; check that sidegate is running and that this is its admin port\n`);
    return EXIT.failed;
  }
}

function report({ status, text }: ForgetResponse, forgotten: string, io: Io): number {
  const was = status === 200 ? toState(text) : undefined;
  const meaning = MEANINGS.get(was);
  if (meaning === undefined) {
    io.stderr(`sidegate: ${status} ${toPrintable(text.trimEnd())}\n`);
    return EXIT.failed;
  }
  io.stdout(`${toPrintable(`${forgotten}: ${was}`)}\n${meaning}\n`);
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
  if (problem !== undefined) throw usageError(`${problem.path.join('.')}: ${problem.message}: ${problem.hint}`);
  return token?.expose().toString('latin1');
}

function toUrl(address: ListenAddress): URL {
  if (address.port === 0)
    throw usageError('the config sets the admin port to 0, so the system chooses it: use --admin http://127.0.0.1:PORT');
  return new URL(`http://${toLocalTarget(address)}`);
}

interface ForgetRequest {
  readonly url: URL;
  readonly token: string | undefined;
  readonly ca: string | undefined;
  readonly timeout: Milliseconds;
}

async function post({ url, token, ca, timeout }: ForgetRequest, id: string): Promise<ForgetResponse> {
  const headers: Record<string, string> = token === undefined ? {} : { Authorization: `Bearer ${token}` };
  const incoming = await openRequest({ method: 'POST', url, headers, body: JSON.stringify({ id }), timeout, ca });
  const text = await readText(incoming, MAX_RESPONSE_BYTES);
  // The server there is not an admin port.
  if (text === undefined) throw new Error('the response is too long for an admin port');
  return { status: incoming.statusCode ?? 0, text };
}
