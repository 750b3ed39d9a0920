/** Selects recent deliveries, of this replica and of others, newest first, in pages. */
import { UNMATCHED } from '../../telemetry/metrics/route-bound.ts';
import type { DeliveryDetail, DeliveryQuery, DeliveryView, StreamQuery } from './delivery-schemas.ts';
import { type ReplicaEntry, redactView, toView, type ViewContext } from './delivery-view.ts';
import type { SharedEntry } from './shared-entries.ts';
import { type Outcome, toOutcome } from './stages.ts';

/** A request, with the values that filters and the order depend on. It is formatted only if its page is asked for. */
export interface Row {
  readonly at: number;
  readonly sequence: number;
  readonly requestId: string;
  readonly route: string | null;
  readonly outcome: Outcome;
  readonly event: string | null;
  toView(context: ViewContext): DeliveryView;
}

/** A page; `cursor`: where the next one begins. */
export interface RowPage {
  readonly rows: readonly Row[];
  readonly cursor: string | null;
}

const CURSOR = /^(\d{1,15})\.(\d{1,15})\.([0-9a-f-]{36})$/;

/** Whether the text is the cursor of a page. */
export function isCursor(text: string): boolean {
  return CURSOR.test(text);
}

/** A request of this replica. */
export function toOwnRow(entry: ReplicaEntry): Row {
  const { at, sequence, line } = entry;
  return {
    at,
    sequence,
    requestId: line.requestId,
    route: line.route ?? null,
    outcome: toOutcome(entry),
    event: line.webhookId ?? null,
    toView: (context) => toView(entry, context),
  };
}

/** A request of another replica. */
export function toSharedRow({ sequence, detail }: SharedEntry): Row {
  const { id, at, route, outcome, event } = detail;
  return {
    at: Date.parse(at),
    sequence,
    requestId: id,
    route,
    outcome,
    event,
    toView: ({ redact }) => redactView(toRow(detail), redact),
  };
}

/** Whether the filters of the stream select the request. */
export function isStreamed(row: Pick<Row, 'route' | 'outcome'>, { route, outcome }: StreamQuery): boolean {
  if (route !== undefined && (row.route ?? UNMATCHED) !== route) return false;
  return outcome === undefined || outcome.includes(row.outcome);
}

/** Sorted by arrival, so that pages do not change while further requests finish. */
export function selectPage(all: readonly Row[], query: DeliveryQuery): RowPage {
  const after = toPosition(query.cursor);
  const found = all
    .filter((row) => isSelected(row, query) && (after === undefined || compare(row, after) > 0))
    .toSorted((a, b) => compare(a, b));
  const rows = found.slice(0, query.limit);
  const last = rows.at(-1);
  const cursor = last === undefined || found.length === rows.length ? null : `${last.at}.${last.sequence}.${last.requestId}`;
  return { rows, cursor };
}

/** Requests of one millisecond are in the order in which their replica finished them. */
type Position = Pick<Row, 'at' | 'sequence' | 'requestId'>;

function isSelected(row: Row, query: DeliveryQuery): boolean {
  const { id, from, to } = query;
  if (id !== undefined && row.requestId !== id && row.event !== id) return false;
  if ((from !== undefined && row.at < from) || (to !== undefined && row.at >= to)) return false;
  return isStreamed(row, query);
}

function toPosition(cursor: string | undefined): Position | undefined {
  const [, at, sequence, requestId] = CURSOR.exec(cursor ?? '') ?? [];
  return requestId === undefined ? undefined : { at: Number(at), sequence: Number(sequence), requestId };
}

/** Positive if the first is older. */
function compare(first: Position, second: Position): number {
  if (first.at !== second.at) return second.at - first.at;
  if (first.sequence !== second.sequence) return second.sequence - first.sequence;
  if (first.requestId === second.requestId) return 0;
  return first.requestId < second.requestId ? 1 : -1;
}

function toRow(detail: DeliveryDetail): DeliveryView {
  const {
    port: _,
    user: _1,
    certificate: _2,
    detail: _3,
    observed: _4,
    isUnchecked: _5,
    traceId: _6,
    headers: _7,
    ...rest
  } = detail;
  const { body: _8, findings: _9, commands: _10, ...view } = rest;
  return view;
}
