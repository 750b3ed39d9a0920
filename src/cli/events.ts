/** `sidegate events`: lists the events of a running provider, and erases their payloads. */
import { usageError } from '../core/errors.ts';
import type { OutgoingEvent } from '../provider/api/schemas.ts';
import { readPages, toQuery, toSegment } from './api-client.ts';
import { type ApiCommand, type ApiGroup, FORMAT } from './api-command.ts';
import { EVENT_FILTER, type FilterOptions, toFilter } from './api-options.ts';
import type { Column } from './api-output.ts';
import { COLLECT } from './base-program.ts';
import { confirm, toCount } from './input.ts';
import { EXIT } from './io.ts';

interface EventOptions extends FilterOptions {
  readonly state?: readonly string[];
  readonly unrouted?: true;
  readonly limit: string;
  readonly yes?: true;
}

const COLUMNS: readonly Column<OutgoingEvent>[] = [
  ['ID', ({ id }) => id],
  ['TYPE', ({ type }) => type],
  ['TENANT', ({ tenant = '' }) => tenant],
  ['ACCEPTED', ({ createdAt }) => createdAt],
  ['DELIVERIES', ({ deliveries }) => String(deliveries)],
  ['WAITING', ({ waiting }) => String(waiting)],
  ['FAILED', ({ failed }) => String(failed)],
];

const list: ApiCommand<EventOptions> = {
  description: 'list events, newest first',
  options: [
    ...EVENT_FILTER,
    FORMAT,
    ['--endpoint <id>', 'only events with a delivery to this endpoint'],
    ['--state <state>', 'only events with a delivery that is waiting, delivered, dead or skipped; repeatable', COLLECT],
    ['--unrouted', 'only events that no endpoint selected'],
    ['--limit <number>', 'maximum number of events', '50'],
  ],
  async run({ client, options, printTable }) {
    const limit = toCount(options.limit, '--limit');
    const query = toQuery({ ...toFilter(options), unrouted: options.unrouted && 'true', state: options.state });
    return printTable(await readPages<OutgoingEvent>(client, '/events', query, { limit }), COLUMNS);
  },
};

const erase: ApiCommand<EventOptions> = {
  description: 'remove the payload of one event, or of all events of a tenant, permanently',
  argument: ['[id]', 'the event'],
  options: [
    ['--tenant <tenant>', 'all events of this tenant'],
    ['--yes', 'do not ask'],
  ],
  async run({ client, options: { tenant, yes }, io, printLine }, id?: string) {
    if ((id === undefined) === (tenant === undefined)) throw usageError('name either an event, or a tenant with --tenant');
    if (id !== undefined) {
      await client.request('DELETE', `/events/${toSegment(id)}/payload`);
      return printLine(`erased the payload of ${id}`);
    }
    const text = `this will erase the payloads of all events of the tenant ${tenant} permanently`;
    if (!yes && !(await confirm(text, io))) return EXIT.failed;
    const { erased } = (await client.request('DELETE', `/tenants/${toSegment(tenant ?? '')}/payloads`)) as { erased: number };
    if (typeof erased !== 'number') throw client.toStranger();
    return printLine(`erased ${erased} ${erased === 1 ? 'payload' : 'payloads'}`);
  },
};

export const EVENTS: ApiGroup<EventOptions> = {
  description: 'list the events of a running provider, and erase their payloads',
  api: 'provider',
  commands: { list, erase },
};
