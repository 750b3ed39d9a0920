/** The options of commands that use an API of a running sidegate: where it is, the credentials, and which deliveries. */

import { usageError } from '../core/errors.ts';
import { isLoopbackIp } from '../core/ip-address.ts';
import { Secret } from '../core/secret.ts';
import { findTokenProblem } from '../http/server/port-access.ts';
import type { ApiTarget } from './api-client.ts';
import type { COLLECT } from './base-program.ts';
import { parseHttpUrl } from './http-request.ts';
import { promptForPasswords, readNamedSecret, readPipedPassword, toTime } from './input.ts';
import type { Io } from './io.ts';

/** An option: its flags, its description, and its default or what parses it. */
export type ApiOption = readonly [flags: string, description: string, value?: string | typeof COLLECT | typeof REQUIRED];

/** In place of a default: the option must be given. */
export const REQUIRED = Symbol('required');

/** Which API a command uses: that of the provider, the same or the console API with `--admin`, or only the console API. */
export type ApiName = 'provider' | 'provider or admin' | 'admin';

/** Options that may be given, each with a text. */
export type GivenTexts<Name extends string> = Readonly<Partial<Record<Name, string>>>;

/** The options of all commands. */
export interface ApiOptions
  extends GivenTexts<
    'provider' | 'admin' | 'tokenEnv' | 'tokenFile' | 'user' | 'passwordEnv' | 'passwordFile' | 'ca' | 'format'
  > {
  readonly timeout: string;
}

const PROVIDER_URL = 'http://127.0.0.1:8482';
const ADMIN_URL = 'http://127.0.0.1:9090';
const STDIN = '-';
const IPV6 = /^\[(.*)\]$/;

const PROVIDER_OPTIONS: readonly ApiOption[] = [
  ['--provider <url>', `URL of the API (provider.address); default: ${PROVIDER_URL}`],
  ...toCredentialOptions('provider'),
];

export const API_OPTIONS: Readonly<Record<ApiName, readonly ApiOption[]>> = {
  provider: PROVIDER_OPTIONS,
  'provider or admin': [
    ...PROVIDER_OPTIONS,
    ['--admin <url>', 'use the admin port instead of --provider, with the credentials of that port'],
  ],
  admin: [['--admin <url>', 'URL of the admin port (admin.address)', ADMIN_URL], ...toCredentialOptions('admin')],
};

function toCredentialOptions(section: 'provider' | 'admin'): readonly ApiOption[] {
  return [
    ['--token-env <name>', `environment variable with the token (${section}.token)`],
    ['--token-file <file>', 'file with the token; - for standard input'],
    ['--user <name>', `user of the API (${section}.basic), instead of a token; prompts for the password`],
    ['--password-env <name>', 'environment variable with the password of the user'],
    ['--password-file <file>', 'file with the password of the user; - for standard input'],
    ['--ca <file>', 'certificates of trusted CAs, PEM'],
    ['--timeout <duration>', 'how long to wait for a response', '30s'],
  ];
}

/** Where the API is. */
export function toTarget(api: ApiName, { provider, admin }: ApiOptions): ApiTarget {
  if (admin === undefined)
    return { option: '--provider', url: parseHttpUrl(provider ?? PROVIDER_URL, '--provider', PROVIDER_URL), prefix: '/v1' };
  if (provider !== undefined) throw usageError('use either --provider or --admin');
  const prefix = api === 'admin' ? '/api/v1' : '/api/v1/outgoing';
  return { option: '--admin', url: parseHttpUrl(admin, '--admin', ADMIN_URL), prefix };
}

/** Never from an argument, except for the user name: every user of the machine can read arguments. */
export async function readAuthorization(options: ApiOptions, target: ApiTarget, io: Io): Promise<string | undefined> {
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

// The options that select deliveries.

/** Their values. */
export type FilterOptions = GivenTexts<'endpoint' | 'event' | 'type' | 'tenant' | 'from' | 'to'>;

/** The options that select events. */
export const EVENT_FILTER: readonly ApiOption[] = [
  ['--type <type>', 'only events of this type'],
  ['--tenant <tenant>', 'only events of this tenant'],
  ['--from <time>', 'only events accepted since then: RFC 3339, or a duration before now such as 2h'],
  ['--to <time>', 'only events accepted before then'],
];

/** The options that select deliveries. */
export const FILTER: readonly ApiOption[] = [
  ['--endpoint <id>', 'only deliveries to this endpoint; inbox:ROUTE for those of an inbox'],
  ['--event <id>', 'only deliveries of this event'],
  ...EVENT_FILTER,
];

/** The parameters of the API. */
export function toFilter({ endpoint, event, type, tenant, from, to }: FilterOptions): Record<string, string> {
  const given = { endpoint, event, type, tenant, from: toTime(from, '--from'), to: toTime(to, '--to') };
  return Object.fromEntries(Object.entries(given).filter((entry): entry is [string, string] => entry[1] !== undefined));
}
