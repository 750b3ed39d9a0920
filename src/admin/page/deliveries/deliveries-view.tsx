/** The live list of deliveries, with its filters and the detail of one. */
import { Component, type JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { PageData } from '../../console/page.ts';
import type { DeliveryView } from '../../console/schemas.ts';
import { read } from '../api.ts';
import { ColumnHeads, ErrorNotice, Filters, Period, Texts } from '../elements.tsx';
import { formatTime, isLocal, toInstant } from '../format.ts';
import { type PageLocation, toOpener } from '../location.ts';
import { DeliveryDialog, Outcome, Stages } from './delivery-detail.tsx';
import { EMPTY, LiveDeliveries, type LiveState } from './live-deliveries.ts';

const REPLICAS_MISSING =
  'Requests of other replicas are missing, as the store does not respond. They appear once it does; see the log of sidegate.';
const COLUMNS = ['Outcome', 'Route', 'Stages', 'Status', 'Event'] as const;

interface ViewProps {
  readonly place: PageLocation;
  /** What the gate has read: one request, or a page of the list. */
  readonly given: PageData | undefined;
}

/** The view. */
export function DeliveriesView({ place, given }: ViewProps): JSX.Element {
  const shown = place.query.get('request') ?? '';
  return (
    <>
      <h1>Deliveries</h1>
      {given !== undefined && shown !== '' ? (
        <p>
          <a href={place.toAddress({ request: null })}>All requests</a>
        </p>
      ) : (
        <DeliveryList place={place} given={given} />
      )}
      {shown !== '' && <DeliveryDialog key={shown} id={shown} given={given} onClose={() => place.go({ request: null })} />}
    </>
  );
}

/** The list with its filters. */
function DeliveryList({ place, given }: ViewProps): JSX.Element {
  const { query, toAddress } = place;
  const filters = readFilters(query);
  const [state, setState] = useState(() => toFirstState(given));
  const live = useRef<LiveDeliveries>(null);
  const routes = useRoutes(given);
  useEffect(() => {
    setState(EMPTY);
    const list = new LiveDeliveries(filters, setState);
    live.current = list;
    return () => list.close();
  }, [filters.toString()]);
  return (
    <>
      <FilterForm place={place} routes={routes} />
      {given === undefined ? (
        <Status state={state} onPause={(isPaused) => live.current?.pause(isPaused)} />
      ) : (
        <ErrorNotice error={given.error} />
      )}
      {state.rows.length === 0 ? (
        state.isLoaded && state.error === undefined && <Empty hasFilters={filters.size > 0} />
      ) : (
        <table class="deliveries">
          <caption class="hidden">Recent requests, newest first</caption>
          <thead>
            <tr>
              <ColumnHeads names={[`Time (${isLocal() ? 'local' : 'UTC'})`, ...COLUMNS]} />
            </tr>
          </thead>
          <tbody>
            {state.rows.map((row) => (
              <DeliveryTableRow key={row.id} row={row} place={place} />
            ))}
          </tbody>
        </table>
      )}
      {state.rows.length > 0 && state.cursor !== null && (
        <p>
          <a href={toAddress({ cursor: state.cursor ?? null })} onClick={toOpener(() => void live.current?.loadOlder())}>
            Load older requests
          </a>
        </p>
      )}
    </>
  );
}

function toFirstState(given: PageData | undefined): LiveState {
  const { data: rows, cursor } = given?.deliveries ?? { data: EMPTY.rows, cursor: EMPTY.cursor };
  return { ...EMPTY, rows, cursor, isLoaded: given !== undefined, error: given?.error };
}

interface StatusProps {
  readonly state: LiveState;
  readonly onPause: (isPaused: boolean) => void;
}

function Status({ state: { connection, isPaused, waiting, error, areReplicasMissing }, onPause }: StatusProps): JSX.Element {
  const text = isPaused ? 'Paused' : connection === 'live' ? 'Live' : connection === 'lost' ? 'Reconnecting…' : 'Connecting…';
  return (
    <div class="status">
      <span role="status" class={isPaused ? 'paused' : connection}>
        {text}
      </span>
      <button type="button" onClick={() => onPause(!isPaused)}>
        {isPaused ? `Resume${waiting > 0 ? ` (${waiting} new)` : ''}` : 'Pause'}
      </button>
      <ErrorNotice error={error ?? (areReplicasMissing ? REPLICAS_MISSING : undefined)} />
    </div>
  );
}

function Empty({ hasFilters }: { readonly hasFilters: boolean }): JSX.Element {
  return hasFilters ? (
    <p class="empty">
      No recent request matches these filters. <a href="/">Clear them</a>, or wait for one that does.
    </p>
  ) : (
    <p class="empty">
      No request has arrived yet. Send one with <code>sidegate send</code>. If your sender reports deliveries, check that its URL
      leads to this gate.
    </p>
  );
}

/** The names of the routes; without them, the filter offers fewer choices. */
function useRoutes(given: PageData | undefined): readonly string[] {
  const [routes, setRoutes] = useState(given?.routes ?? []);
  useEffect(() => {
    read<{ routes: { name: string }[] }>('/overview').then(
      (overview) => setRoutes(overview.routes.map(({ name }) => name).sort()),
      () => undefined,
    );
  }, []);
  return routes;
}

interface DeliveryTableRowProps {
  readonly row: DeliveryView;
  readonly place: PageLocation;
}

/** A delivery never changes, so its row is rendered once. */
class DeliveryTableRow extends Component<DeliveryTableRowProps> {
  override shouldComponentUpdate({ row }: DeliveryTableRowProps): boolean {
    return row.id !== this.props.row.id;
  }

  override render({ row, place: { toAddress, go } }: DeliveryTableRowProps): JSX.Element {
    const { id, at, outcome, route, method, path, stages, delivery, status, event, type } = row;
    return (
      <tr class={outcome}>
        <td class="time">
          <a href={toAddress({ request: id })} onClick={toOpener(() => go({ request: id }))}>
            {formatTime(at)}
          </a>
        </td>
        <td>
          <Outcome outcome={outcome} />
        </td>
        <td class="route">{route ?? <span class="unmatched">{`${method} ${path ?? ''}`}</span>}</td>
        <td>
          <Stages stages={stages} delivery={delivery} />
        </td>
        <td class="number">{status}</td>
        <td class="id" title={event ?? undefined}>
          {event}
          {type !== null && <span class="aside"> {type}</span>}
        </td>
      </tr>
    );
  }
}

/** Worst first. */
const OUTCOMES = [
  'failed',
  'rejected',
  'observed',
  'answered',
  'queued',
  'forwarded',
] as const satisfies DeliveryView['outcome'][];
const UNMATCHED = '_unmatched';
/** Names of the API. */
const TEXTS = {
  reason: 'Reason',
  status: 'Status (4xx)',
  client: 'Client',
  type: 'Event type',
  id: 'ID of request or event',
} as const;
const NAMES = ['route', 'outcome', ...Object.keys(TEXTS), 'last', 'from', 'to'];
const PERIODS = { '15m': 'last 15 minutes', '1h': 'last hour' } as const;

/** The filters of the address, as the list in the API takes them. */
function readFilters(query: URLSearchParams): URLSearchParams {
  const filters = new URLSearchParams();
  for (const name of NAMES)
    for (const value of query.getAll(name))
      if (value !== '') filters.append(name, (name === 'from' || name === 'to' ? toInstant(value) : value) ?? value);
  return filters;
}

/** The form. */
function FilterForm({ place, routes }: { readonly place: PageLocation; readonly routes: readonly string[] }): JSX.Element {
  const { query } = place;
  const route = query.get('route') ?? '';
  // The journal may have requests of a route that the config no longer has.
  const known = [...new Set([...routes, ...[route].filter((name) => name !== '' && name !== UNMATCHED)])];
  return (
    <Filters place={place} names={NAMES}>
      <label>
        Route{' '}
        <select name="route" value={route}>
          <option value="">all</option>
          {known.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
          <option value={UNMATCHED}>no route</option>
        </select>
      </label>
      <label>
        Time{' '}
        <select name="last" value={query.get('last') ?? ''}>
          <option value="">all</option>
          {Object.entries(PERIODS).map(([value, name]) => (
            <option key={value} value={value}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <fieldset>
        <legend>Outcome</legend>
        {OUTCOMES.map((name) => (
          <label key={name} class="choice">
            <input type="checkbox" name="outcome" value={name} checked={query.getAll('outcome').includes(name)} /> {name}
          </label>
        ))}
      </fieldset>
      <Texts query={query} labels={TEXTS} />
      <Period query={query} />
    </Filters>
  );
}
