/** The live list of deliveries, with its filters and the detail of one. */
import { Component, type JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { DeliveryView } from '../../console/delivery-schemas.ts';
import { read } from '../api.ts';
import { ColumnHeads } from '../column-heads.tsx';
import { formatTime, isLocal } from '../format.ts';
import type { PageLocation } from '../location.ts';
import { ErrorNotice } from '../notices.tsx';
import { DeliveryDialog } from './delivery-detail.tsx';
import { FilterForm, readFilters } from './filters.tsx';
import { EMPTY, LiveDeliveries, type LiveState } from './live-deliveries.ts';
import { Outcome, Stages } from './stages.tsx';

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
