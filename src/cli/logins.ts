/** `sidegate logins`: shows clients with failed logins at a running sidegate, and lifts their bans. */

import type { Command } from 'commander';
import type { FailedLogins } from '../admin/console/schemas.ts';
import { usageError } from '../core/errors.ts';
import { formatJson, toPrintable } from '../core/text.ts';
import type { ApiClient } from './api-client.ts';
import { type AdminOptions, runAdminCommand, withAdmin, withFormat } from './api-options.ts';
import { formatTable } from './api-output.ts';
import { EXIT, type Io } from './io.ts';

const SECOND = 1_000;

/** Adds the commands. */
export function addLogins(program: Command, io: Io, setExit: (code: number) => void): void {
  const group = program
    .command('logins')
    .description('show clients with failed logins at a running sidegate, and lift their bans');
  withFormat(withAdmin(group.command('list').description('list clients with recent failed logins, and their bans'))).action(
    async (options) => setExit(await runAdminCommand(options, io, (client) => list(client, options, io))),
  );
  withAdmin(group.command('release').description('forget the failed logins of a client or a user, and lift the ban'))
    .requiredOption('--realm <realm>', 'the realm, as sidegate logins list shows it')
    .option('--client <address>', 'an address of the banned client; its whole network is released')
    .option('--name <user>', 'the user who is banned')
    .action(async (options) => setExit(await runAdminCommand(options, io, (client) => release(client, options, io))));
}

async function list(client: ApiClient, { format }: AdminOptions, io: Io): Promise<number> {
  const found = (await client.request('GET', '/logins')) as { readonly data?: readonly FailedLogins[] } | null;
  const { data } = found ?? {};
  if (!Array.isArray(data)) throw client.toStranger();
  const table = () =>
    formatTable(data as readonly FailedLogins[], [
      ['REALM', ({ realm }) => realm],
      ['CLIENT', ({ client: address }) => address],
      ['FAILED', ({ failures }) => String(failures)],
      ['LAST', ({ lastAt }) => lastAt],
      ['BANNED FOR', ({ bannedForMs }) => (bannedForMs === null ? '' : `${Math.ceil(bannedForMs / SECOND)} s`)],
      ['ROUTES', ({ routes }) => routes.join(',')],
    ]);
  io.stdout(format === 'json' ? formatJson(data) : table());
  return EXIT.ok;
}

/** Exits with 0 also if nothing was known: then nothing is banned either. */
async function release(
  client: ApiClient,
  {
    realm,
    client: address,
    name,
  }: AdminOptions & {
    readonly realm: string;
    readonly client?: string;
    readonly name?: string;
  },
  io: Io,
): Promise<number> {
  if ((address === undefined) === (name === undefined)) throw usageError('use either --client ADDRESS or --name USER');
  const body = { realm, ...(address === undefined ? { user: name } : { client: address }) };
  const { hadFailures } = (await client.request('POST', '/logins/release', body)) as { readonly hadFailures: boolean };
  const who = toPrintable(address ?? name ?? '');
  io.stdout(
    hadFailures ? `${who} is released in ${toPrintable(realm)}\n` : `${who} has no failed logins in ${toPrintable(realm)}\n`,
  );
  return EXIT.ok;
}
