/** The events that the app posted, and what became of them. */
import type { JSX } from 'preact';
import type { OutgoingEvent } from '../../../provider/api/schemas.ts';
import type { PageData } from '../../console/page.ts';
import { usePolled } from '../api.ts';
import { ColumnHeads, ErrorNotice, Filters, Period, Texts } from '../elements.tsx';
import { formatTime, toInstant } from '../format.ts';
import { type PageLocation, toOpener } from '../location.ts';
import type { ListPage } from './outgoing-api.ts';

const INTERVAL_MS = 5_000;
const NAMES = ['type', 'tenant', 'from', 'to', 'unrouted'] as const;

interface EventsProps {
  readonly place: PageLocation;
  /** What the gate has read. */
  readonly given: PageData | undefined;
}

/** The list with its filters. */
export function EventsView({ place, given }: EventsProps): JSX.Element {
  const { query, toAddress, go } = place;
  const filter = new URLSearchParams({ limit: '50' });
  for (const name of [...NAMES, 'iterator']) {
    const value = toInstant(query.get(name) || undefined);
    if (value !== undefined) filter.set(name, value);
  }
  const { data: page, error } = usePolled<ListPage<OutgoingEvent>>(`/outgoing/events?${filter}`, INTERVAL_MS, {
    data: given?.events,
    error: given?.error,
  });
  const toLink = (iterator: string | null, label: string): JSX.Element => (
    <a href={toAddress({ iterator })} onClick={toOpener(() => go({ iterator }))}>
      {label}
    </a>
  );
  return (
    <>
      <h1>Events</h1>
      <p>
        <a href="/?view=outgoing">Outgoing</a>
      </p>
      <Filters place={place} view="events" names={NAMES}>
        <Texts query={query} labels={{ type: 'Type', tenant: 'Tenant' }} />
        <Period query={query} />
        <label class="choice">
          <input type="checkbox" name="unrouted" value="true" checked={query.get('unrouted') === 'true'} /> Only without an
          endpoint
        </label>
      </Filters>
      <ErrorNotice error={error} />
      {page?.data.length === 0 && <p class="empty">No event matches{page.iterator === null ? '.' : ' on this page.'}</p>}
      {page !== undefined && page.data.length > 0 && (
        <table class="list">
          <caption class="hidden">Accepted events, newest first</caption>
          <thead>
            <tr>
              <ColumnHeads names={['Event', 'Tenant', 'Accepted', 'Endpoints', 'Delivered', 'Waiting', 'Failed']} />
            </tr>
          </thead>
          <tbody>
            {page.data.map((event) => (
              <Row key={event.id} event={event} />
            ))}
          </tbody>
        </table>
      )}
      <p>
        {query.get('iterator') !== null && toLink(null, 'First events')}{' '}
        {typeof page?.iterator === 'string' && toLink(page.iterator, 'Older events')}
      </p>
    </>
  );
}

function Row({
  event: { id, type, tenant, createdAt, deliveries, waiting, failed },
}: {
  readonly event: OutgoingEvent;
}): JSX.Element {
  return (
    <tr>
      <th scope="row">
        <span class="id">{id}</span>
        <span class="aside url">{type}</span>
      </th>
      <td data-label="Tenant">{tenant ?? '–'}</td>
      <td class="time" data-label="Accepted">
        {formatTime(createdAt)}
      </td>
      <td class="number" data-label="Endpoints">
        {deliveries === 0 ? <span class="outcome rejected">none</span> : deliveries}
      </td>
      <td class="number" data-label="Delivered">
        {deliveries - waiting - failed}
      </td>
      <td class="number" data-label="Waiting">
        {waiting}
      </td>
      <td class="number" data-label="Failed">
        {failed}
      </td>
    </tr>
  );
}
