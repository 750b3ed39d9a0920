/** `sidegate deliveries`: lists, shows and repairs the deliveries of a running provider. */

import type { Command } from 'commander';
import { formatJson } from '../core/terminal.ts';
import type { OutgoingDelivery, OutgoingDeliveryDetail } from '../provider/api/schemas.ts';
import { type ApiClient, readPages } from './api-client.ts';
import { type ProviderOptions, runProviderCommand, withConsole, withFormat, withProvider } from './api-options.ts';
import { formatMembers, formatOutcome, formatTable } from './api-output.ts';
import { COLLECT } from './base-program.ts';
import { type FilterOptions, toDeliveryPath, toFilter, withFilter } from './delivery-options.ts';
import { toCount } from './input.ts';
import { EXIT, type Io } from './io.ts';
import { addRepairs } from './repairs.ts';

interface ListDeliveriesOptions extends FilterOptions {
  readonly state?: readonly string[];
  readonly format: string;
  readonly limit: string;
}

const NAME = 'deliveries';

/** Adds the commands. */
export function addDeliveries(program: Command, io: Io, setExit: (code: number) => void): void {
  const group = program.command(NAME).description('list, show and repair the deliveries of a running provider');
  const run = (options: ProviderOptions, action: (client: ApiClient) => Promise<number>): Promise<void> =>
    runProviderCommand(NAME, options, io, action).then(setExit);
  withFormat(withFilter(withOutgoing(group.command('list').description('list deliveries, newest event first'))))
    .option('--state <state>', 'waiting, delivered, dead or skipped; repeatable', COLLECT)
    .option('--limit <number>', 'maximum number of deliveries', '50')
    .action((options) => run(options, (client) => list(client, options, io)));
  withFormat(withOutgoing(group.command('show').description('show a delivery and its attempts')))
    .argument('<id>', 'EVENT~ENDPOINT')
    .action((id, options) => run(options, (client) => show(client, id, options, io)));
  addRepairs(group, withOutgoing, io, (options) => (action) => run(options, action));
}

/** The console API has all operations of these commands. */
function withOutgoing(command: Command): Command {
  return withConsole(withProvider(command));
}

async function list(client: ApiClient, options: ListDeliveriesOptions, io: Io): Promise<number> {
  const { state = [], format } = options;
  const limit = toCount(options.limit, '--limit');
  const query = new URLSearchParams(toFilter(options));
  for (const each of state) query.append('state', each);
  const all = await readPages<OutgoingDelivery>(client, '/deliveries', query, { limit, position: 'iterator' });
  const table = () =>
    formatTable(all, [
      ['ID', ({ id }) => id],
      ['TYPE', ({ type: name }) => name],
      ['TENANT', ({ tenant = '' }) => tenant],
      ['STATE', ({ state: name }) => name],
      ['ATTEMPTS', ({ attempts }) => String(attempts)],
      ['ACCEPTED', ({ createdAt }) => createdAt],
      ['NEXT ATTEMPT', ({ due }) => due ?? ''],
      ['LAST OUTCOME', ({ lastAttempt }) => (lastAttempt === undefined ? '' : formatOutcome(lastAttempt))],
    ]);
  io.stdout(format === 'json' ? formatJson(all) : table());
  return EXIT.ok;
}

async function show(client: ApiClient, id: string, { format }: Pick<ListDeliveriesOptions, 'format'>, io: Io): Promise<number> {
  const found = (await client.request('GET', toDeliveryPath(id))) as OutgoingDeliveryDetail;
  if (format === 'json') {
    io.stdout(formatJson(found));
    return EXIT.ok;
  }
  const { history } = found;
  io.stdout(
    formatMembers([
      ['event', found.event],
      ['endpoint', found.endpoint],
      ['type', found.type],
      ['tenant', found.tenant],
      ['state', found.state],
      ['accepted', found.createdAt],
      ['next attempt', found.due],
      ['settled', found.settledAt],
      ['attempts', String(found.attempts)],
    ]),
  );
  if (history.length === 0) return EXIT.ok;
  const table = formatTable(history, [
    ['AT', ({ at }) => at],
    ['DURATION', ({ durationMs }) => `${Math.round(durationMs)} ms`],
    ['OUTCOME', formatOutcome],
    ['DETAIL', ({ detail = '' }) => detail],
  ]);
  io.stdout(`\n${table}`);
  return EXIT.ok;
}
