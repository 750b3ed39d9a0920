/** The live list of deliveries, with its filters and the detail of one. */
import { Component, type JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { DeliveryView } from '../../console/schemas.ts';
import { read } from '../api.ts';
import { Collapsible, ColumnHeads, ErrorNotice, Period } from '../elements.tsx';
import { formatTime, isLocal, toInstant } from '../format.ts';
import { type PageLocation, toFormHandler } from '../location.ts';
import { DeliveryDialog, Outcome, Stages } from './delivery-detail.tsx';
import { EMPTY, LiveDeliveries, type LiveState } from './live-deliveries.ts';

const REPLICAS_MISSING =
  'Requests of other replicas are missing, as the store does not respond. They appear once it does; see the log of sidegate.';
const COLUMNS = ['Outcome', 'Route', 'Stages', 'Status', 'Event'] as const;

/** The view. */
export function DeliveriesView({ place }: { readonly place: PageLocation }): JSX.Element {
  const { query, go } = place;
  const filters = readFilters(query);
  const hasFilters = filters.size > 0;
  const [state, setState] = useState<LiveState>(EMPTY);
  const live = useRef<LiveDeliveries>(null);
  const routes = useRoutes();
  useEffect(() => {
    setState(EMPTY);
    const list = new LiveDeliveries(filters, setState);
    live.current = list;
    return () => list.close();
  }, [filters.toString()]);
  const shown = query.get('request');
  const open = (id: string): void => go({ request: id });
  return (
    <>
      <h1>Deliveries</h1>
      <FilterForm place={place} routes={routes} />
      <Status state={state} onPause={(isPaused) => live.current?.pause(isPaused)} />
      {state.rows.length === 0 ? (
        state.isLoaded && state.error === undefined && <Empty hasFilters={hasFilters} />
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
              <DeliveryTableRow key={row.id} row={row} onOpen={open} />
            ))}
          </tbody>
        </table>
      )}
      {state.rows.length > 0 && state.cursor !== null && (
        <button type="button" onClick={() => void live.current?.loadOlder()}>
          Load older requests
        </button>
      )}
      {shown !== null && <DeliveryDialog key={shown} id={shown} onClose={() => go({ request: null })} />}
    </>
  );
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
      No recent request matches these filters. <a href="/">Clear them</a>, or wait: matching requests appear here as they arrive.
    </p>
  ) : (
    <p class="empty">
      No request has arrived yet. Send one with <code>sidegate send</code>; it appears here at once. If your sender reports
      deliveries, check that its URL leads to this gate.
    </p>
  );
}

/** The names of the routes; without them, the filter offers fewer choices. */
function useRoutes(): readonly string[] {
  const [routes, setRoutes] = useState<readonly string[]>([]);
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
  readonly onOpen: (id: string) => void;
}

/** A delivery never changes, so its row is rendered once. */
class DeliveryTableRow extends Component<DeliveryTableRowProps> {
  override shouldComponentUpdate({ row }: DeliveryTableRowProps): boolean {
    return row.id !== this.props.row.id;
  }

  override render({ row, onOpen }: DeliveryTableRowProps): JSX.Element {
    const { id, at, outcome, route, method, path, stages, delivery, status, event, type } = row;
    const open = (click: MouseEvent): void => {
      if (click.ctrlKey || click.metaKey || click.shiftKey) return;
      click.preventDefault();
      onOpen(id);
    };
    return (
      <tr class={outcome}>
        <td class="time">
          <a href={`/?request=${id}`} onClick={open}>
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
  const current = (name: string): string => query.get(name) ?? '';
  const apply = toFormHandler(place, NAMES);
  const known = [...new Set([...routes, ...[current('route')].filter((name) => name !== '' && name !== UNMATCHED)])];
  return (
    <Collapsible title="Filters" count={[...readFilters(query)].length}>
      <form class="filters" onSubmit={apply} onChange={apply} aria-label="Filters">
        <label>
          Route{' '}
          <select name="route" value={current('route')}>
            <option value="">all</option>
            {known.map((name) => (
              <option key={name}>{name}</option>
            ))}
            <option value={UNMATCHED}>no route</option>
          </select>
        </label>
        <label>
          Time{' '}
          <select name="last" value={current('last')}>
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
        {Object.entries(TEXTS).map(([name, label]) => (
          <label key={name}>
            {label}{' '}
            <input name={name} class={name} maxLength={1_024} value={current(name)} autoComplete="off" spellcheck={false} />
          </label>
        ))}
        <Period current={current} />
        <a href="/">Clear filters</a>
      </form>
    </Collapsible>
  );
}
