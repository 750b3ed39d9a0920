/** Selects recent deliveries, of this replica and of others, newest first, in pages. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { JournalEntry } from '../../telemetry/journal/journal.ts';
import { UNMATCHED } from '../../telemetry/metrics/series.ts';
import { toView, type ViewContext } from './delivery-view.ts';
import type { DeliveryDetail, DeliveryQuery, DeliveryView, StreamQuery } from './schemas.ts';
import type { SharedEntry } from './shared-entries.ts';

/** A request that filters can select. Its view is not redacted yet. */
export interface Row {
  readonly at: EpochMilliseconds;
  readonly sequence: number;
  readonly view: DeliveryView;
}

/** A page; `cursor`: where the next one begins. */
interface RowPage {
  readonly rows: readonly Row[];
  readonly cursor: string | null;
}

const CURSOR = /^(\d{1,15})\.(\d{1,15})\.([0-9a-f-]{36})$/;

/** Whether the text is the cursor of a page. */
export function isCursor(text: string): boolean {
  return CURSOR.test(text);
}

/** A request of this replica. */
export function toOwnRow(entry: JournalEntry, context: ViewContext): Row {
  return { at: entry.at, sequence: entry.sequence, view: toView(entry, context) };
}

/** A request of another replica. */
export function toSharedRow({ sequence, detail }: SharedEntry): Row {
  return { at: Date.parse(detail.at), sequence, view: toRowView(detail) };
}

/** Whether the filters of the stream select the request. */
export function isStreamed({ at, view }: Row, query: StreamQuery): boolean {
  const { route, outcome, id, from, to, status, ...equal } = query;
  if (route !== undefined && (view.route ?? UNMATCHED) !== route) return false;
  if (outcome !== undefined && !outcome.includes(view.outcome)) return false;
  if (id !== undefined && ![view.id, view.event, view.delivery?.split('~')[0]].includes(id)) return false;
  if ((from !== undefined && at < from) || (to !== undefined && at >= to)) return false;
  if (status !== undefined && !String(view.status).startsWith(status.replace('xx', ''))) return false;
  return (['reason', 'client', 'type'] as const).every((name) => equal[name] === undefined || view[name] === equal[name]);
}

/** Sorted by arrival, so that pages do not change while further requests finish. */
export function selectPage(all: readonly Row[], query: DeliveryQuery, now: EpochMilliseconds): RowPage {
  const { cursor: position, limit, last: lastMs, ...filters } = query;
  const after = toPosition(position);
  const since = lastMs === undefined ? Number.NEGATIVE_INFINITY : now - lastMs;
  const found = all
    .filter((row) => row.at >= since && isStreamed(row, filters) && (after === undefined || compare(row, after) > 0))
    .toSorted(compare);
  const rows = found.slice(0, limit);
  const last = rows.at(-1);
  const cursor = last === undefined || found.length === rows.length ? null : `${last.at}.${last.sequence}.${last.view.id}`;
  return { rows, cursor };
}

/** Requests of one millisecond are in the order in which their replica finished them. */
interface RowPosition extends Omit<Row, 'view'> {
  readonly view: Pick<DeliveryView, 'id'>;
}

function toPosition(cursor: string | undefined): RowPosition | undefined {
  const [, at, sequence, id] = CURSOR.exec(cursor ?? '') ?? [];
  return id === undefined ? undefined : { at: Number(at), sequence: Number(sequence), view: { id } };
}

/** Positive if the first is older. */
function compare(first: RowPosition, second: RowPosition): number {
  if (first.at !== second.at) return second.at - first.at;
  if (first.sequence !== second.sequence) return second.sequence - first.sequence;
  if (first.view.id === second.view.id) return 0;
  return first.view.id < second.view.id ? 1 : -1;
}

function toRowView(detail: DeliveryDetail): DeliveryView {
  const { port: _, user: _1, certificate: _2, detail: _3, isUnchecked: _4, traceId: _5, headers: _6, ...rest } = detail;
  const { body: _7, findings: _8, commands: _9, ...view } = rest;
  return view;
}
