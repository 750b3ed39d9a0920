/** `sidegate logins`: shows clients with failed logins at a running sidegate, and lifts their bans. */
import type { FailedLogins } from '../admin/console/schemas.ts';
import { usageError } from '../core/errors.ts';
import { type ApiCommand, type ApiGroup, FORMAT } from './api-command.ts';
import { type GivenTexts, REQUIRED } from './api-options.ts';
import type { Column } from './api-output.ts';

interface LoginOptions extends GivenTexts<'client' | 'name'> {
  readonly realm: string;
}

const SECOND = 1_000;

const COLUMNS: readonly Column<FailedLogins>[] = [
  ['REALM', ({ realm }) => realm],
  ['CLIENT', ({ client }) => client],
  ['FAILED', ({ failures }) => String(failures)],
  ['LAST', ({ lastAt }) => lastAt],
  ['BANNED FOR', ({ bannedForMs }) => (bannedForMs === null ? '' : `${Math.ceil(bannedForMs / SECOND)} s`)],
  ['ROUTES', ({ routes }) => routes.join(',')],
];

const list: ApiCommand<LoginOptions> = {
  description: 'list clients with recent failed logins, and their bans',
  options: [FORMAT],
  async run({ client, printTable }) {
    const found = (await client.request('GET', '/logins')) as { readonly data?: readonly FailedLogins[] } | null;
    if (!Array.isArray(found?.data)) throw client.toStranger();
    return printTable(found.data as readonly FailedLogins[], COLUMNS);
  },
};

const release: ApiCommand<LoginOptions> = {
  description: 'forget the failed logins of a client or a user, and lift the ban',
  options: [
    ['--realm <realm>', 'the realm, as sidegate logins list shows it', REQUIRED],
    ['--client <address>', 'an address of the banned client; its whole network is released'],
    ['--name <user>', 'the user who is banned'],
  ],
  /** Exits with 0 also if nothing was known: then nothing is banned either. */
  async run({ client, options: { realm, client: address, name }, printLine }) {
    if ((address === undefined) === (name === undefined)) throw usageError('use either --client ADDRESS or --name USER');
    const body = { realm, ...(address === undefined ? { user: name } : { client: address }) };
    const { hadFailures } = (await client.request('POST', '/logins/release', body)) as { readonly hadFailures: boolean };
    return printLine(`${address ?? name} ${hadFailures ? 'is released' : 'has no failed logins'} in ${realm}`);
  },
};

export const LOGINS: ApiGroup<LoginOptions> = {
  description: 'show clients with failed logins at a running sidegate, and lift their bans',
  api: 'admin',
  commands: { list, release },
};
