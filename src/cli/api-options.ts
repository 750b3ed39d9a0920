/** The options of commands that use an API of a running sidegate: where it is, the credentials, and which deliveries. */

import type { Command } from 'commander';
import { usageError } from '../core/errors.ts';
import { isLoopbackIp } from '../core/ip-address.ts';
import { Secret } from '../core/secret.ts';
import { toPrintable } from '../core/text.ts';
import { findTokenProblem } from '../http/server/port-access.ts';
import { ApiClient, ApiFailure, type ApiTarget, toSegment } from './api-client.ts';
import { parseHttpUrl, readCa } from './http-request.ts';
import { promptForPasswords, readNamedSecret, readPipedPassword, toChoice, toTime, toTimeout } from './input.ts';
import { EXIT, type Io } from './io.ts';

/** The options. */
interface ApiOptions {
  readonly tokenEnv?: string;
  readonly tokenFile?: string;
  readonly user?: string;
  readonly passwordEnv?: string;
  readonly passwordFile?: string;
  readonly ca?: string;
  readonly timeout: string;
  readonly format?: string;
}

/** The options of commands that show and change what the sending side sends. */
export interface ProviderOptions extends ApiOptions {
  readonly provider?: string;
  /** Only of commands whose operations the console API has, too. */
  readonly admin?: string;
}

/** The options of commands that only the console API has. */
export interface AdminOptions extends ApiOptions {
  readonly admin: string;
}

/** Runs one command with a client, and returns the exit code. */
type RunWithClient = (client: ApiClient, io: Io) => Promise<number>;

const PROVIDER_URL = 'http://127.0.0.1:8482';
const ADMIN_URL = 'http://127.0.0.1:9090';
const STDIN = '-';
const IPV6 = /^\[(.*)\]$/;

/** Adds the options of the provider's API. */
export function withProvider(command: Command): Command {
  return withCredentials(
    command.option('--provider <url>', `URL of the API (provider.address); default: ${PROVIDER_URL}`),
    'provider',
  );
}

/** Adds the option that sends the command to the admin port instead. */
export function withConsole(command: Command): Command {
  return command.option('--admin <url>', 'use the admin port instead of --provider, with the credentials of that port');
}

/** Adds the options of the console API. */
export function withAdmin(command: Command): Command {
  return withCredentials(command.option('--admin <url>', 'URL of the admin port (admin.address)', ADMIN_URL), 'admin');
}

/** Adds the format option. */
export function withFormat(command: Command): Command {
  return command.option('--format <format>', 'text or json', 'text');
}

function withCredentials(command: Command, section: 'provider' | 'admin'): Command {
  return command
    .option('--token-env <name>', `environment variable with the token (${section}.token)`)
    .option('--token-file <file>', 'file with the token; - for standard input')
    .option('--user <name>', `user of the API (${section}.basic), instead of a token; prompts for the password`)
    .option('--password-env <name>', 'environment variable with the password of the user')
    .option('--password-file <file>', 'file with the password of the user; - for standard input')
    .option('--ca <file>', 'certificates of trusted CAs, PEM')
    .option('--timeout <duration>', 'how long to wait for a response', '30s');
}

/** Runs a command of the provider's API. */
export function runProviderCommand(options: ProviderOptions, io: Io, run: RunWithClient): Promise<number> {
  return runWithClient(toProviderTarget, options, io, run);
}

/** Runs a command of the console API. */
export function runAdminCommand(options: AdminOptions, io: Io, run: RunWithClient): Promise<number> {
  return runWithClient(toAdminTarget, options, io, run);
}

function toProviderTarget({ provider, admin }: ProviderOptions): ApiTarget {
  if (admin === undefined)
    return { option: '--provider', url: parseHttpUrl(provider ?? PROVIDER_URL, '--provider', PROVIDER_URL), prefix: '/v1' };
  if (provider !== undefined) throw usageError('use either --provider or --admin');
  return { ...toAdminTarget({ admin }), prefix: '/api/v1/outgoing' };
}

function toAdminTarget({ admin }: Pick<AdminOptions, 'admin'>): ApiTarget {
  return { option: '--admin', url: parseHttpUrl(admin, '--admin', ADMIN_URL), prefix: '/api/v1' };
}

/** Reports failures of the API. */
async function runWithClient<O extends ApiOptions>(
  toTarget: (options: O) => ApiTarget,
  options: O,
  io: Io,
  run: RunWithClient,
): Promise<number> {
  toChoice(options.format ?? 'text', ['text', 'json'], '--format');
  const target = toTarget(options);
  const timeout = toTimeout(options.timeout);
  const ca = options.ca === undefined ? undefined : await readCa(options.ca);
  const authorization = await readAuthorization(options, target, io);
  try {
    return await run(new ApiClient({ target, authorization, ca, timeout }), io);
  } catch (thrown) {
    if (!(thrown instanceof ApiFailure)) throw thrown;
    // Servers, and through them their clients, decide parts of the text.
    io.stderr(`sidegate: ${thrown.message.split('\n').map(toPrintable).join('\n')}\n`);
    return EXIT.failed;
  }
}

/** Never from an argument, except for the user name: every user of the machine can read arguments. */
async function readAuthorization(options: ApiOptions, target: ApiTarget, io: Io): Promise<string | undefined> {
  const { user, tokenEnv, tokenFile, passwordEnv, passwordFile } = options;
  const token = await readOne(tokenEnv, tokenFile, 'token', io);
  const password =
    (await readOne(passwordEnv, passwordFile, 'password', io)) ?? (user === undefined ? undefined : await promptFor(io));
  if ((user === undefined) !== (password === undefined))
    throw usageError('use --user together with --password-env or --password-file');
  if (user === undefined || password === undefined) return token && toBearer(token);
  if (token !== undefined) throw usageError('use either a token or a user with a password');
  if (user.includes(':')) throw usageError(`--user ${user} contains a colon, which no user name has (RFC 7617)`);
  // The admin port would reject it anyway, but then it has crossed the network.
  if (target.option === '--admin' && target.url.protocol === 'http:' && !isLoopbackHost(target.url.hostname))
    throw usageError(
      `a password is not sent to ${target.url.host} in clear text: use kubectl port-forward and --admin ${ADMIN_URL}, or https`,
    );
  return `Basic ${Buffer.concat([Buffer.from(`${user}:`), password]).toString('base64')}`;
}

function toBearer(token: Buffer): string {
  const found = findTokenProblem(new Secret(token));
  if (found !== undefined) throw usageError(`${found.problem}; check --token-file or --token-env`);
  return `Bearer ${token.toString('latin1')}`;
}

function isLoopbackHost(hostname: string): boolean {
  return hostname === 'localhost' || isLoopbackIp(IPV6.exec(hostname)?.[1] ?? hostname);
}

async function promptFor(io: Io): Promise<Buffer | undefined> {
  if (io.stdin.isTTY !== true) return undefined;
  const [typed = ''] = await promptForPasswords(['Password: '], io);
  return Buffer.from(typed);
}

async function readOne(
  env: string | undefined,
  file: string | undefined,
  what: 'token' | 'password',
  io: Io,
): Promise<Buffer | undefined> {
  if (env !== undefined && file !== undefined) throw usageError(`use either --${what}-env or --${what}-file`);
  if (env === undefined && file === undefined) return undefined;
  if (file === STDIN) return (await promptFor(io)) ?? Buffer.from(await readPipedPassword(io));
  return (await readNamedSecret(env, file)).expose();
}

// The options and the ID that select deliveries.

/** Select events. */
export interface EventFilterOptions {
  readonly type?: string;
  readonly tenant?: string;
  readonly from?: string;
  readonly to?: string;
}

/** Select deliveries. */
export interface FilterOptions extends EventFilterOptions {
  readonly endpoint?: string;
  readonly event?: string;
}

/** Adds the options that select deliveries. */
export function withFilter(command: Command): Command {
  return withEventFilter(
    command
      .option('--endpoint <id>', 'only deliveries to this endpoint; inbox:ROUTE for those of an inbox')
      .option('--event <id>', 'only deliveries of this event'),
  );
}

/** Adds the options that select events. */
export function withEventFilter(command: Command): Command {
  return command
    .option('--type <type>', 'only events of this type')
    .option('--tenant <tenant>', 'only events of this tenant')
    .option('--from <time>', 'only events accepted since then: RFC 3339, or a duration before now such as 2h')
    .option('--to <time>', 'only events accepted before then');
}

/** The parameters of the API. */
export function toFilter({ endpoint, event, type, tenant, from, to }: FilterOptions): Record<string, string> {
  const given = { endpoint, event, type, tenant, from: toTime(from, '--from'), to: toTime(to, '--to') };
  return Object.fromEntries(Object.entries(given).filter((entry): entry is [string, string] => entry[1] !== undefined));
}

/** Throws for a text that is not EVENT~ENDPOINT. */
export function parseDeliveryId(id: string): { readonly event: string; readonly endpoint: string } {
  const [event = '', endpoint, ...rest] = id.split('~');
  if (endpoint === undefined || rest.length > 0)
    throw usageError(`${id} is not the ID of a delivery: write EVENT~ENDPOINT, as sidegate deliveries list shows it`);
  return { event, endpoint };
}

/** The path of a delivery. */
export function toDeliveryPath(id: string): string {
  const { event, endpoint } = parseDeliveryId(id);
  return `/deliveries/${toSegment(event)}~${toSegment(endpoint)}`;
}
