/** `sidegate events`: lists the events of a running provider, and erases their payloads. */

import type { Command } from 'commander';
import { usageError } from '../core/errors.ts';
import { formatJson, toPrintable } from '../core/text.ts';
import type { OutgoingEvent } from '../provider/api/schemas.ts';
import { type ApiClient, readPages, toSegment } from './api-client.ts';
import {
  type EventFilterOptions,
  type ProviderOptions,
  runProviderCommand,
  toFilter,
  withEventFilter,
  withFormat,
  withProvider,
} from './api-options.ts';
import { formatTable } from './api-output.ts';
import { COLLECT } from './base-program.ts';
import { confirm, toCount } from './input.ts';
import { EXIT, type Io } from './io.ts';

/** Adds the commands. */
export function addEvents(program: Command, io: Io, setExit: (code: number) => void): void {
  const group = program.command('events').description('list the events of a running provider, and erase their payloads');
  const run = (options: ProviderOptions, action: (client: ApiClient) => Promise<number>): Promise<void> =>
    runProviderCommand(options, io, action).then(setExit);
  withFormat(withEventFilter(withProvider(group.command('list').description('list events, newest first'))))
    .option('--endpoint <id>', 'only events with a delivery to this endpoint')
    .option('--state <state>', 'only events with a delivery that is waiting, delivered, dead or skipped; repeatable', COLLECT)
    .option('--unrouted', 'only events that no endpoint selected')
    .option('--limit <number>', 'maximum number of events', '50')
    .action((options) => run(options, (client) => list(client, options, io)));
  withProvider(group.command('erase').description('remove the payload of one event, or of all events of a tenant, permanently'))
    .argument('[id]', 'the event')
    .option('--tenant <tenant>', 'all events of this tenant')
    .option('--yes', 'do not ask')
    .action((id, options) => run(options, (client) => erase(client, id, options, io)));
}

async function list(
  client: ApiClient,
  {
    unrouted,
    endpoint,
    state = [],
    format,
    ...options
  }: EventFilterOptions & {
    readonly unrouted?: true;
    readonly endpoint?: string;
    readonly state?: readonly string[];
    readonly format: string;
    readonly limit: string;
  },
  io: Io,
): Promise<number> {
  const limit = toCount(options.limit, '--limit');
  const query = new URLSearchParams({
    ...toFilter(options),
    ...(unrouted && { unrouted: 'true' }),
    ...(endpoint !== undefined && { endpoint }),
  });
  for (const each of state) query.append('state', each);
  const all = await readPages<OutgoingEvent>(client, '/events', query, { limit, position: 'iterator' });
  const table = () =>
    formatTable(all, [
      ['ID', ({ id }) => id],
      ['TYPE', ({ type }) => type],
      ['TENANT', ({ tenant = '' }) => tenant],
      ['ACCEPTED', ({ createdAt }) => createdAt],
      ['DELIVERIES', ({ deliveries }) => String(deliveries)],
      ['WAITING', ({ waiting }) => String(waiting)],
      ['FAILED', ({ failed }) => String(failed)],
    ]);
  io.stdout(format === 'json' ? formatJson(all) : table());
  return EXIT.ok;
}

async function erase(
  client: ApiClient,
  id: string | undefined,
  {
    tenant,
    yes,
  }: {
    readonly tenant?: string;
    readonly yes?: true;
  },
  io: Io,
): Promise<number> {
  if ((id === undefined) === (tenant === undefined)) throw usageError('name either an event, or a tenant with --tenant');
  if (id !== undefined) {
    await client.request('DELETE', `/events/${toSegment(id)}/payload`);
    io.stdout(`erased the payload of ${toPrintable(id)}\n`);
    return EXIT.ok;
  }
  const text = `this will erase the payloads of all events of the tenant ${tenant} permanently`;
  if (!yes && !(await confirm(text, io))) return EXIT.failed;
  const { erased } = (await client.request('DELETE', `/tenants/${toSegment(tenant ?? '')}/payloads`)) as { erased: number };
  if (typeof erased !== 'number') throw client.toStranger();
  io.stdout(`erased ${erased} ${erased === 1 ? 'payload' : 'payloads'}\n`);
  return EXIT.ok;
}
