/** Deliveries of the sending side: dead letters, and the next attempts. */
import type { JSX } from 'preact';
import { type Action, ActionButton } from '../action.tsx';
import { ColumnHeads } from '../column-heads.tsx';
import { Dialog } from '../dialog.tsx';
import { Facts } from '../facts.tsx';
import { formatMs, formatTime } from '../format.ts';
import type { Place } from '../location.ts';
import { ErrorNotice } from '../notices.tsx';
import { usePolled } from '../use-polled.ts';
import { type Attempt, act, describeAttempt, type OutgoingDelivery, STATES, toDeliveryPath } from './outgoing-api.ts';
import { usePages } from './use-pages.tsx';

const INTERVAL_MS = 5_000;

/** The list, by state and endpoint. */
export function OutgoingDeliveries({ place: { query, go } }: { readonly place: Place }): JSX.Element {
  const state = query.get('state') ?? 'dead';
  const endpoint = query.get('endpoint');
  const filter = new URLSearchParams({ state, limit: '50', ...(endpoint !== null && { endpoint }) });
  const { page, error, reload, controls } = usePages<OutgoingDelivery>(`/outgoing/deliveries?${filter}`, 'deliveries');
  const shown = query.get('delivery');
  return (
    <section aria-labelledby="deliveries">
      <h2 id="deliveries">Deliveries{endpoint !== null && ` to ${endpoint}`}</h2>
      <form class="filters" aria-label="State of deliveries">
        <label>
          State{' '}
          <select value={state} onChange={({ currentTarget }) => go({ state: currentTarget.value })}>
            {STATES.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        {endpoint !== null && (
          <button type="button" onClick={() => go({ endpoint: null })}>
            All endpoints
          </button>
        )}
      </form>
      <ErrorNotice error={error} />
      {page?.data.length === 0 && page.iterator === null && <p class="empty">{EMPTY[state] ?? 'None has this state.'}</p>}
      {page !== undefined && page.data.length > 0 && (
        <table class="list">
          <thead>
            <tr>
              <ColumnHeads
                names={[
                  'Event',
                  'Endpoint',
                  'Attempts',
                  'Last attempt',
                  state === 'waiting' ? 'Next attempt' : 'Since',
                  'Actions',
                ]}
              />
            </tr>
          </thead>
          <tbody>
            {page.data.map((delivery) => (
              <Row key={delivery.id} delivery={delivery} onOpen={(id) => go({ delivery: id })} onEnd={reload} />
            ))}
          </tbody>
        </table>
      )}
      {controls}
      {shown !== null && <Detail key={shown} id={shown} onClose={() => go({ delivery: null })} />}
    </section>
  );
}

const EMPTY: Readonly<Record<string, string>> = {
  dead: 'No delivery is dead: every one was acknowledged, or has attempts left.',
  waiting: 'The queue is empty.',
};

interface RowProps {
  readonly delivery: OutgoingDelivery;
  readonly onOpen: (id: string) => void;
  readonly onEnd: () => void;
}

function Row({ delivery, onOpen, onEnd }: RowProps): JSX.Element {
  const { id, event, endpoint, type, state, attempts, due, settledAt, lastAttempt } = delivery;
  const replay: Action = {
    label: 'Replay',
    question: `The event ${event} is sent to ${endpoint} again.`,
    run: async (_, signal) => {
      await act(`${toDeliveryPath(delivery)}/replay`, signal);
      return { text: 'It is due again.' };
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
      </th>
      <td data-label="Endpoint">{endpoint}</td>
      <td class="number" data-label="Attempts">
        {attempts}
      </td>
      <td data-label="Last attempt">{lastAttempt === undefined ? '–' : describeAttempt(lastAttempt)}</td>
      <td class="time" data-label={state === 'waiting' ? 'Next attempt' : 'Since'}>
        {at === undefined ? '–' : formatTime(at)}
      </td>
      <td class="actions">{state !== 'waiting' && <ActionButton action={replay} of={event} onEnd={onEnd} />}</td>
    </tr>
  );
}

/** Loads it, as it may not be in the list any more. */
function Detail({ id, onClose }: { readonly id: string; readonly onClose: () => void }): JSX.Element {
  const { data, error } = usePolled<OutgoingDelivery & { readonly history: readonly Attempt[] }>(toPathOf(id), INTERVAL_MS);
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
              ['Type', data.type],
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

/** The ID is from the address. */
function toPathOf(id: string): string {
  const [event = '', endpoint = ''] = id.split('~');
  return toDeliveryPath({ event, endpoint });
}
