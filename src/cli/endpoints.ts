/** `sidegate endpoints`: lists, shows and changes the endpoints of a running provider. */
import { usageError } from '../core/errors.ts';
import { isJsonObject } from '../core/json-path.ts';
import type { EndpointStats, EndpointView } from '../provider/api/schemas.ts';
import { readPages, toSegment } from './api-client.ts';
import { type ApiCommand, type ApiGroup, FORMAT } from './api-command.ts';
import type { ApiOption, GivenTexts } from './api-options.ts';
import { type Column, formatMembers, formatOutcome } from './api-output.ts';
import { COLLECT } from './base-program.ts';
import { readBody, readSecretOption, type SecretArguments } from './input.ts';
import type { Io } from './io.ts';

interface EndpointOptions extends SecretArguments, GivenTexts<'id' | 'url' | 'tenant' | 'description' | 'settings' | 'grace'> {
  readonly event?: readonly string[];
  readonly allTenants?: boolean;
}

const PATH = '/endpoints';

const SETTINGS: readonly ApiOption[] = [
  ['--url <url>', 'where deliveries are sent'],
  ['--event <pattern>', 'event type, or a pattern such as invoice.*; repeatable; default: all', COLLECT],
  ['--description <text>', 'text for operators'],
  ['--settings <file>', 'JSON file with settings as in the API; - for standard input'],
];

const COLUMNS: readonly Column<EndpointView>[] = [
  ['ID', ({ id }) => id],
  ['STATE', toState],
  ['EVENTS', ({ events }) => events.join(',') || 'all'],
  ['TENANT', toTenant],
  ['SOURCE', ({ source }) => source],
  ['URL', ({ url }) => url],
];

const create: ApiCommand<EndpointOptions> = {
  description: 'create an endpoint, and print its secret',
  api: 'provider',
  options: [
    ...SETTINGS,
    ['--id <id>', 'default: random'],
    ['--tenant <tenant>', 'events of this tenant; default: events without a tenant'],
    ['--all-tenants', 'events of all tenants, and those without a tenant'],
    ['--secret-env <name>', 'environment variable with the signing secret; default: a new random secret'],
    ['--secret-file <file>', 'file with the signing secret'],
  ],
  async run({ client, options, io, print }) {
    const settings = await readSettings(options, io);
    if (settings['url'] === undefined) throw usageError('missing option: --url URL, or url in --settings');
    const body = { ...settings, ...(await readNewSecret(options)) };
    const { id, secret } = (await client.request('POST', PATH, body)) as { id: string; secret: string };
    io.stderr('The secret is not shown again. The receiver needs it to verify deliveries.\n');
    const members = [
      ['id', id],
      ['secret', secret],
    ] as const;
    return print(members, formatMembers);
  },
};

const update: ApiCommand<EndpointOptions> = {
  description: 'change settings of an endpoint',
  api: 'provider',
  argument: ['<id>'],
  options: SETTINGS,
  async run({ client, options, io, print }, id: string) {
    const settings = await readSettings(options, io);
    if (Object.keys(settings).length === 0)
      throw usageError('nothing to change: use --url, --event, --description or --settings');
    return print((await client.request('PATCH', toPath(id), settings)) as EndpointView, formatEndpoint);
  },
};

const rotate: ApiCommand<EndpointOptions> = {
  description: 'replace the signing secret of an endpoint, and print the new one',
  argument: ['<id>'],
  options: [
    ['--grace <duration>', 'how long deliveries are also signed with the old secret; 0s if it leaked'],
    ['--secret-env <name>', 'environment variable with the new secret; default: a random one'],
    ['--secret-file <file>', 'file with the new secret'],
  ],
  async run({ client, options, io, printLine }, id: string) {
    const { grace } = options;
    const body = { ...(grace !== undefined && { grace }), ...(await readNewSecret(options)) };
    const { secret } = (await client.request('POST', `${toPath(id)}/rotate-secret`, body)) as { secret: string };
    io.stderr('The secret is not shown again. Give it to the receiver within the grace period.\n');
    return printLine(secret);
  },
};

export const ENDPOINTS: ApiGroup<EndpointOptions> = {
  description: 'list, show and change the endpoints of a running provider',
  api: 'provider or admin',
  commands: {
    list: {
      description: 'list all endpoints',
      options: [FORMAT],
      run: async ({ client, printTable }) => printTable(await readPages<EndpointView>(client, PATH), COLUMNS),
    },
    show: {
      description: 'show the settings of an endpoint',
      argument: ['<id>'],
      options: [FORMAT],
      run: async ({ client, print }, id: string) =>
        print((await client.request('GET', toPath(id))) as EndpointView, formatEndpoint),
    },
    create,
    update,
    delete: {
      description: 'delete an endpoint',
      api: 'provider',
      argument: ['<id>'],
      async run({ client, printLine }, id: string) {
        await client.request('DELETE', toPath(id));
        return printLine(`${id} is deleted`);
      },
    },
    rotate,
    enable: toSwitch('enable', 'enable an endpoint'),
    disable: toSwitch('disable', 'disable an endpoint: its deliveries are skipped, and can be retried'),
    test: {
      description: 'send a test event to an endpoint',
      argument: ['<id>'],
      async run({ client, printLine }, id: string) {
        const { id: event } = (await client.request('POST', `${toPath(id)}/test`)) as { id: string };
        return printLine(`sent ${event}; to see what became of it: sidegate deliveries show ${event}~${id}`);
      },
    },
    stats: {
      description: 'show the backlog of an endpoint, and its failures in a row',
      argument: ['<id>'],
      options: [FORMAT],
      run: async ({ client, print }, id: string) =>
        print((await client.request('GET', `${toPath(id)}/stats`)) as EndpointStats, formatStats),
    },
  },
};

function toSwitch(action: 'enable' | 'disable', description: string): ApiCommand<EndpointOptions> {
  const hint = (id: string): string =>
    action === 'enable' ? `; to send skipped events: sidegate deliveries retry --endpoint ${id} --state skipped` : '';
  return {
    description,
    argument: ['<id>'],
    async run({ client, printLine }, id: string) {
      await client.request('POST', `${toPath(id)}/${action}`);
      return printLine(`${id} is ${action}d${hint(id)}`);
    },
  };
}

function formatStats({ waiting, oldestDue, failing }: EndpointStats): string {
  const { failures, since, lastAttempt, pausedUntil } = failing ?? {};
  return formatMembers([
    ['waiting', String(waiting)],
    ['overdue since', oldestDue],
    ['failures in a row', failures === undefined ? undefined : `${failures} since ${since}`],
    ['last failure', lastAttempt && `${lastAttempt.at} ${formatOutcome(lastAttempt)}: ${lastAttempt.detail ?? '-'}`],
    ['paused until', pausedUntil],
  ]);
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

async function readSettings(options: EndpointOptions, io: Io): Promise<Record<string, unknown>> {
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
