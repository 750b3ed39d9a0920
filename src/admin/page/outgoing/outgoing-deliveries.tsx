/** Deliveries of the sending side: dead letters and the next attempts, and how to repair them. */
import type { JSX } from 'preact';
import type { OutgoingDelivery, OutgoingDeliveryDetail } from '../../../provider/api/schemas.ts';
import { type Action, ActionButton } from '../action.tsx';
import { usePolled } from '../api.ts';
import { ColumnHeads, Dialog, ErrorNotice, Facts, Filters, Period, Texts } from '../elements.tsx';
import { formatMs, formatTime, toInstant } from '../format.ts';
import type { PageLocation } from '../location.ts';
import { act, describeAttempt, repair, STATES, toDeliveryPath } from './outgoing-api.ts';
import { usePages } from './use-pages.tsx';

const INTERVAL_MS = 5_000;
const NAMES = ['state', 'type', 'tenant', 'from', 'to'] as const;
/** Shown first: these may need somebody. */
const UNDONE = ['waiting', 'dead'] as const satisfies OutgoingDelivery['state'][];
const STATE_CLASSES = { waiting: 'queued', dead: 'failed', skipped: 'answered', delivered: 'forwarded' } as const;

/** The list, by state, endpoint and tenant. */
export function OutgoingDeliveries({ place }: { readonly place: PageLocation }): JSX.Element {
  const { query, go } = place;
  const state = query.get('state') ?? '';
  const endpoint = query.get('endpoint');
  const tenant = query.get('tenant');
  const filter = new URLSearchParams({ limit: '50' });
  for (const each of state === '' ? UNDONE : [state]) filter.append('state', each);
  for (const name of ['endpoint', ...NAMES.slice(1)]) {
    const value = toInstant(query.get(name) || undefined);
    if (value !== undefined) filter.set(name, value);
  }
  const { page, error, reload, controls } = usePages<OutgoingDelivery>(`/outgoing/deliveries?${filter}`, 'deliveries');
  const shown = query.get('delivery');
  return (
    <section aria-labelledby="deliveries">
      <h2 id="deliveries">
        Deliveries{endpoint !== null && ` to ${endpoint}`}
        {tenant !== null && ` of ${tenant}`}
      </h2>
      <FilterForm place={place} />
      <ErrorNotice error={error} />
      {page?.data.length === 0 && page.iterator === null && <p class="empty">{EMPTY[state] ?? 'No delivery matches.'}</p>}
      {page !== undefined && page.data.length > 0 && (
        <table class="list">
          <thead>
            <tr>
              <ColumnHeads
                names={['Event', 'Endpoint', 'State', 'Attempts', 'Last attempt', 'Next attempt, or since', 'Actions']}
              />
            </tr>
          </thead>
          <tbody>
            {page.data.map((delivery) => (
              <Row
                key={delivery.id}
                delivery={delivery}
                onOpen={(id) => go({ delivery: id })}
                onTenant={(name) => go({ tenant: name })}
                onEnd={reload}
              />
            ))}
          </tbody>
        </table>
      )}
      {controls}
      {shown !== null && <Detail key={shown} id={shown} onClose={() => go({ delivery: null })} />}
    </section>
  );
}

/** The address keeps the filters. */
function FilterForm({ place }: { readonly place: PageLocation }): JSX.Element {
  const { query, go } = place;
  return (
    <Filters place={place} view="outgoing" names={NAMES} label="Filters of deliveries">
      <label>
        State{' '}
        <select name="state" value={query.get('state') ?? ''}>
          <option value="">{UNDONE.join(' and ')}</option>
          {STATES.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <Texts query={query} labels={{ type: 'Type', tenant: 'Tenant' }} />
      <Period query={query} />
      {query.get('endpoint') !== null && (
        <button type="button" onClick={() => go({ endpoint: null })}>
          All endpoints
        </button>
      )}
    </Filters>
  );
}

const EMPTY: Readonly<Record<string, string>> = {
  '': 'Nothing waits, and no delivery is dead.',
  dead: 'No delivery is dead: every one was acknowledged, or has attempts left.',
  waiting: 'The queue is empty.',
};

interface RowProps {
  readonly delivery: OutgoingDelivery;
  readonly onOpen: (id: string) => void;
  readonly onTenant: (tenant: string) => void;
  readonly onEnd: () => void;
}

function Row({ delivery, onOpen, onTenant, onEnd }: RowProps): JSX.Element {
  const { id, event, endpoint, type, tenant, state, attempts, due, settledAt, lastAttempt } = delivery;
  const retry: Action = {
    label: 'Retry',
    question:
      state === 'waiting' ? `The event ${event} is sent to ${endpoint} now.` : `The event ${event} is sent to ${endpoint} again.`,
    run: async (_, signal) => {
      await act(`${toDeliveryPath(delivery)}/retry`, signal);
      return { text: 'It is due now.' };
    },
  };
  const cancel: Action = {
    label: 'Cancel',
    question: `The event ${event} is not sent to ${endpoint}, unless it is retried.`,
    run: async (onProgress, signal) => {
      const count = await repair({ action: 'cancel', event, endpoint }, onProgress, signal);
      return { text: count === 0 ? 'It did not wait any more.' : 'It is canceled.' };
    },
  };
  const at = due ?? settledAt;
  return (
    <tr>
      <th scope="row">
        <button type="button" class="link id" onClick={() => onOpen(id)}>
          {event}
        </button>
        <span class="aside url">{type}</span>
        {tenant !== undefined && (
          <button type="button" class="link aside" onClick={() => onTenant(tenant)}>
            tenant {tenant}
          </button>
        )}
      </th>
      <td data-label="Endpoint">{endpoint}</td>
      <td data-label="State">
        <span class={`outcome ${STATE_CLASSES[state]}`}>{state}</span>
      </td>
      <td class="number" data-label="Attempts">
        {attempts}
      </td>
      <td data-label="Last attempt">{lastAttempt === undefined ? '–' : describeAttempt(lastAttempt)}</td>
      <td class="time" data-label={state === 'waiting' ? 'Next attempt' : 'Since'}>
        {at === undefined ? '–' : formatTime(at)}
      </td>
      <td class="actions">
        <ActionButton action={retry} of={event} onEnd={onEnd} />
        {state === 'waiting' && <ActionButton action={cancel} of={event} onEnd={onEnd} />}
      </td>
    </tr>
  );
}

/** Loads it, as it may not be in the list any more. */
function Detail({ id, onClose }: { readonly id: string; readonly onClose: () => void }): JSX.Element {
  const { data, error } = usePolled<OutgoingDeliveryDetail>(toPathOf(id), INTERVAL_MS);
  return (
    <Dialog title="Delivery" onClose={onClose}>
      <ErrorNotice error={error} />
      {data === undefined ? (
        error === undefined && <p>Loading…</p>
      ) : (
        <>
          <Facts
            facts={[
              ['Event', data.event],
              [
                'Event of the sender',
                data.sourceEvent === undefined ? null : <a href={toRequests(data.event)}>{data.sourceEvent}</a>,
              ],
              ['Type', data.type],
              ['Tenant', data.tenant ?? null],
              ['Endpoint', data.endpoint],
              ['State', data.state],
              ['Accepted', data.createdAt],
              ['Next attempt', data.due ?? null],
            ]}
          />
          <h3>Attempts</h3>
          <ol class="attempts">
            {data.history.map((attempt) => (
              <li key={attempt.at}>
                {formatTime(attempt.at)}: {describeAttempt(attempt)} in {formatMs(attempt.durationMs)}
                {attempt.detail !== undefined && <span class="aside"> {attempt.detail}</span>}
              </li>
            ))}
          </ol>
        </>
      )}
    </Dialog>
  );
}

/** The requests that brought the event. */
function toRequests(event: string): string {
  return `/?id=${encodeURIComponent(event)}`;
}

/** The ID is from the address. */
function toPathOf(id: string): string {
  const [event = '', endpoint = ''] = id.split('~');
  return toDeliveryPath({ event, endpoint });
}
