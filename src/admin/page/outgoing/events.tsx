/** The events that the app posted, and what became of them. */
import type { JSX } from 'preact';
import type { OutgoingEvent } from '../../../provider/api/schemas.ts';
import { Collapsible, ColumnHeads, ErrorNotice, Period } from '../elements.tsx';
import { formatTime, toInstant } from '../format.ts';
import { type PageLocation, toFormHandler } from '../location.ts';
import { usePages } from './use-pages.tsx';

const NAMES = ['type', 'tenant', 'from', 'to', 'unrouted'] as const;

/** The list with its filters. */
export function EventsView({ place }: { readonly place: PageLocation }): JSX.Element {
  const { query } = place;
  const filter = new URLSearchParams({ limit: '50' });
  for (const name of NAMES) {
    const value = toInstant(query.get(name) || undefined);
    if (value !== undefined) filter.set(name, value);
  }
  const { page, error, controls } = usePages<OutgoingEvent>(`/outgoing/events?${filter}`, 'events');
  const apply = toFormHandler(place, NAMES);
  const current = (name: (typeof NAMES)[number]): string => query.get(name) ?? '';
  return (
    <>
      <h1>Events</h1>
      <p>
        <a href="/?view=outgoing">Outgoing</a>
      </p>
      <Collapsible title="Filters" count={NAMES.filter((name) => query.get(name)).length}>
        <form class="filters" onSubmit={apply} onChange={apply} aria-label="Filters">
          <label>
            Type <input name="type" value={current('type')} autoComplete="off" spellcheck={false} />
          </label>
          <label>
            Tenant <input name="tenant" value={current('tenant')} autoComplete="off" spellcheck={false} />
          </label>
          <Period current={current} />
          <label class="choice">
            <input type="checkbox" name="unrouted" value="true" checked={current('unrouted') === 'true'} /> Only without an
            endpoint
          </label>
          <a href="/?view=events">Clear filters</a>
        </form>
      </Collapsible>
      <ErrorNotice error={error} />
      {page?.data.length === 0 && <p class="empty">No event matches{page.iterator === null ? '.' : ' on this page.'}</p>}
      {page !== undefined && page.data.length > 0 && (
        <table class="list">
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
      {controls}
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
