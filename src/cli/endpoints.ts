/** `sidegate endpoints`: lists, shows and changes the endpoints of a running provider. */

import type { Command } from 'commander';
import { usageError } from '../core/errors.ts';
import { isJsonObject } from '../core/json-path.ts';
import { formatJson, toPrintable } from '../core/text.ts';
import type { EndpointStats, EndpointView } from '../provider/api/schemas.ts';
import { type ApiClient, readPages, toSegment } from './api-client.ts';
import { type ProviderOptions, runProviderCommand, withConsole, withFormat, withProvider } from './api-options.ts';
import { formatMembers, formatOutcome, formatTable } from './api-output.ts';
import { COLLECT } from './base-program.ts';
import { readBody, readSecretOption, type SecretArguments } from './input.ts';
import { EXIT, type Io } from './io.ts';

type SetExit = (code: number) => void;

interface SettingOptions extends SecretArguments {
  readonly id?: string;
  readonly url?: string;
  readonly event?: readonly string[];
  readonly tenant?: string;
  readonly allTenants?: boolean;
  readonly description?: string;
  readonly settings?: string;
}

const PATH = '/endpoints';

/** Adds the commands. */
export function addEndpoints(program: Command, io: Io, setExit: SetExit): void {
  const group = program.command('endpoints').description('list, show and change the endpoints of a running provider');
  const addChange = (name: string, description: string): Command => withProvider(group.command(name).description(description));
  const add = (name: string, description: string): Command => withConsole(addChange(name, description));
  const run = (options: ProviderOptions, action: (client: ApiClient) => Promise<number>): Promise<void> =>
    runProviderCommand(options, io, action).then(setExit);
  withFormat(add('list', 'list all endpoints')).action((options) => run(options, (client) => list(client, options, io)));
  withFormat(add('show', 'show the settings of an endpoint').argument('<id>')).action((id, options) =>
    run(options, (client) => show(client, id, options, io)),
  );
  withSettings(addChange('create', 'create an endpoint, and print its secret'))
    .option('--id <id>', 'default: random')
    .option('--tenant <tenant>', 'events of this tenant; default: events without a tenant')
    .option('--all-tenants', 'events of all tenants, and those without a tenant')
    .option('--secret-env <name>', 'environment variable with the signing secret; default: a new random secret')
    .option('--secret-file <file>', 'file with the signing secret')
    .action((options) => run(options, (client) => create(client, options, io)));
  withSettings(addChange('update', 'change settings of an endpoint').argument('<id>')).action((id, options) =>
    run(options, (client) => update(client, id, options, io)),
  );
  addChange('delete', 'delete an endpoint')
    .argument('<id>')
    .action((id, options) => run(options, (client) => remove(client, id, io)));
  addActions(add, run, io);
}

function addActions(
  add: (name: string, description: string) => Command,
  run: (options: ProviderOptions, action: (client: ApiClient) => Promise<number>) => Promise<void>,
  io: Io,
): void {
  add('rotate', 'replace the signing secret of an endpoint, and print the new one')
    .argument('<id>')
    .option('--grace <duration>', 'how long deliveries are also signed with the old secret; 0s if it leaked')
    .option('--secret-env <name>', 'environment variable with the new secret; default: a random one')
    .option('--secret-file <file>', 'file with the new secret')
    .action((id, options) => run(options, (client) => rotate(client, id, options, io)));
  for (const [name, description] of [
    ['enable', 'enable an endpoint'],
    ['disable', 'disable an endpoint: its deliveries are skipped, and can be retried'],
  ] as const)
    add(name, description)
      .argument('<id>')
      .action((id, options) => run(options, (client) => toggle(client, id, name, io)));
  add('test', 'send a test event to an endpoint')
    .argument('<id>')
    .action((id, options) => run(options, (client) => test(client, id, io)));
  withFormat(add('stats', 'show the backlog of an endpoint, and its failures in a row').argument('<id>')).action((id, options) =>
    run(options, (client) => stats(client, id, options, io)),
  );
}

function withSettings(command: Command): Command {
  return command
    .option('--url <url>', 'where deliveries are sent')
    .option('--event <pattern>', 'event type, or a pattern such as invoice.*; repeatable; default: all', COLLECT)
    .option('--description <text>', 'text for operators')
    .option('--settings <file>', 'JSON file with settings as in the API; - for standard input');
}

async function list(client: ApiClient, { format }: { readonly format: string }, io: Io): Promise<number> {
  const all = await readPages<EndpointView>(client, PATH, new URLSearchParams(), {
    limit: Number.POSITIVE_INFINITY,
    position: 'iterator',
  });
  const table = () =>
    formatTable(all, [
      ['ID', ({ id }) => id],
      ['STATE', toState],
      ['EVENTS', ({ events }) => events.join(',') || 'all'],
      ['TENANT', toTenant],
      ['SOURCE', ({ source }) => source],
      ['URL', ({ url }) => url],
    ]);
  io.stdout(format === 'json' ? formatJson(all) : table());
  return EXIT.ok;
}

async function show(client: ApiClient, id: string, { format }: { readonly format: string }, io: Io): Promise<number> {
  const endpoint = (await client.request('GET', toPath(id))) as EndpointView;
  io.stdout(format === 'json' ? formatJson(endpoint) : formatEndpoint(endpoint));
  return EXIT.ok;
}

async function create(client: ApiClient, options: SettingOptions, io: Io): Promise<number> {
  const settings = await readSettings(options, io);
  if (settings['url'] === undefined) throw usageError('missing option: --url URL, or url in --settings');
  const { id, secret } = (await client.request('POST', PATH, { ...settings, ...(await readNewSecret(options)) })) as {
    id: string;
    secret: string;
  };
  io.stderr('The secret is not shown again. The receiver needs it to verify deliveries.\n');
  io.stdout(
    formatMembers([
      ['id', id],
      ['secret', secret],
    ]),
  );
  return EXIT.ok;
}

async function update(client: ApiClient, id: string, options: SettingOptions, io: Io): Promise<number> {
  const settings = await readSettings(options, io);
  if (Object.keys(settings).length === 0) throw usageError('nothing to change: use --url, --event, --description or --settings');
  io.stdout(formatEndpoint((await client.request('PATCH', toPath(id), settings)) as EndpointView));
  return EXIT.ok;
}

async function rotate(client: ApiClient, id: string, options: SecretArguments & { grace?: string }, io: Io): Promise<number> {
  const { grace } = options;
  const body = { ...(grace !== undefined && { grace }), ...(await readNewSecret(options)) };
  const { secret } = (await client.request('POST', `${toPath(id)}/rotate-secret`, body)) as { secret: string };
  io.stderr('The secret is not shown again. Give it to the receiver within the grace period.\n');
  io.stdout(`${toPrintable(secret)}\n`);
  return EXIT.ok;
}

async function toggle(client: ApiClient, id: string, action: 'enable' | 'disable', io: Io): Promise<number> {
  await client.request('POST', `${toPath(id)}/${action}`);
  const hint = action === 'enable' ? `; to send skipped events: sidegate deliveries retry --endpoint ${id} --state skipped` : '';
  io.stdout(`${toPrintable(`${id} is ${action}d${hint}`)}\n`);
  return EXIT.ok;
}

async function remove(client: ApiClient, id: string, io: Io): Promise<number> {
  await client.request('DELETE', toPath(id));
  io.stdout(`${toPrintable(id)} is deleted\n`);
  return EXIT.ok;
}

async function test(client: ApiClient, id: string, io: Io): Promise<number> {
  const { id: event } = (await client.request('POST', `${toPath(id)}/test`)) as { id: string };
  io.stdout(`${toPrintable(`sent ${event}; to see what became of it: sidegate deliveries show ${event}~${id}`)}\n`);
  return EXIT.ok;
}

async function stats(client: ApiClient, id: string, { format }: { readonly format: string }, io: Io): Promise<number> {
  const found = (await client.request('GET', `${toPath(id)}/stats`)) as EndpointStats;
  const { failures, since, lastAttempt, pausedUntil } = found.failing ?? {};
  const text = () =>
    formatMembers([
      ['waiting', String(found.waiting)],
      ['overdue since', found.oldestDue],
      ['failures in a row', failures === undefined ? undefined : `${failures} since ${since}`],
      ['last failure', lastAttempt && `${lastAttempt.at} ${formatOutcome(lastAttempt)}: ${lastAttempt.detail ?? '-'}`],
      ['paused until', pausedUntil],
    ]);
  io.stdout(format === 'json' ? formatJson(found) : text());
  return EXIT.ok;
}

function formatEndpoint(endpoint: EndpointView): string {
  const { signatures, rateLimit } = endpoint;
  return formatMembers([
    ['id', endpoint.id],
    ['state', toState(endpoint)],
    ['url', endpoint.url],
    ['description', endpoint.description],
    ['source', endpoint.source],
    ['events', endpoint.events.join(', ') || 'all'],
    ['tenant', toTenant(endpoint)],
    ['headers', endpoint.headerNames.join(', ')],
    ['timeout', endpoint.timeout],
    ['concurrency', String(endpoint.concurrency)],
    ['rate limit', rateLimit === undefined ? undefined : `${rateLimit} per second`],
    ['schedule', endpoint.schedule.join(', ')],
    ['order by', endpoint.orderBy],
    ['operational', endpoint.operational ? 'yes' : undefined],
    [
      'signatures',
      signatures
        .map(({ version, expiresAt }) => (expiresAt === undefined ? version : `${version} until ${expiresAt}`))
        .join(', '),
    ],
    ['public key', signatures.flatMap(({ publicKey }) => publicKey ?? []).join(', ')],
  ]);
}

function toState({ disabled }: EndpointView): string {
  return disabled === undefined ? 'enabled' : `disabled (${disabled.reason}) since ${disabled.at}`;
}

/** No tenant has a name with a space. */
function toTenant({ tenant, allTenants }: EndpointView): string {
  return allTenants ? 'all tenants' : (tenant ?? '');
}

function toPath(id: string): string {
  return `${PATH}/${toSegment(id)}`;
}

async function readSettings(options: SettingOptions, io: Io): Promise<Record<string, unknown>> {
  const { id, url, event, tenant, allTenants, description, settings } = options;
  const fromFile = settings === undefined ? {} : parseSettings((await readBody(settings, io)).toString('utf8'), settings);
  const given = { id, url, events: event, tenant, allTenants, description };
  return { ...fromFile, ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) };
}

function parseSettings(text: string, file: string): object {
  try {
    const value: unknown = JSON.parse(text);
    if (isJsonObject(value)) return value;
  } catch {
    // The message below says it.
  }
  throw usageError(`--settings ${file} does not contain a JSON object`);
}

async function readNewSecret(options: SecretArguments): Promise<{ secret?: string }> {
  if (options.secretEnv === undefined && options.secretFile === undefined) return {};
  return { secret: (await readSecretOption(options)).expose().toString('utf8') };
}
