/** Selects recent deliveries, newest first, in pages. */
import { UNMATCHED } from '../../telemetry/metrics/route-bound.ts';
import type { DeliveryQuery, StreamQuery } from './delivery-schemas.ts';
import type { ReplicaEntry } from './delivery-view.ts';
import { toOutcome } from './stages.ts';

/** A page; `cursor`: where the next one begins. */
export interface EntryPage {
  readonly entries: readonly ReplicaEntry[];
  readonly cursor: string | null;
}

const CURSOR = /^(\d{1,15})\.(\d{1,15})\.([0-9a-f-]{36})$/;

/** Whether the text is the cursor of a page. */
export function isCursor(text: string): boolean {
  return CURSOR.test(text);
}

/** Whether the filters of the stream select the entry. */
export function isStreamed(entry: ReplicaEntry, { route, outcome }: StreamQuery): boolean {
  if (route !== undefined && (entry.line.route ?? UNMATCHED) !== route) return false;
  return outcome === undefined || outcome.includes(toOutcome(entry));
}

/** Sorted by arrival, so that pages do not change while further requests finish. */
export function selectPage(all: readonly ReplicaEntry[], query: DeliveryQuery): EntryPage {
  const after = toPosition(query.cursor);
  const found = all
    .filter((entry) => isSelected(entry, query) && (after === undefined || compare(entry, after) > 0))
    .toSorted((a, b) => compare(a, toKey(b)));
  const entries = found.slice(0, query.limit);
  const last = entries.at(-1);
  const cursor =
    last === undefined || found.length === entries.length ? null : `${last.at}.${last.sequence}.${last.line.requestId}`;
  return { entries, cursor };
}

/** Requests of one millisecond are in the order in which their replica finished them. */
interface Position {
  readonly at: number;
  readonly sequence: number;
  readonly requestId: string;
}

function isSelected(entry: ReplicaEntry, query: DeliveryQuery): boolean {
  const { at, line } = entry;
  const { id, from, to } = query;
  if (id !== undefined && line.requestId !== id && line.webhookId !== id) return false;
  if ((from !== undefined && at < from) || (to !== undefined && at >= to)) return false;
  return isStreamed(entry, query);
}

function toPosition(cursor: string | undefined): Position | undefined {
  const [, at, sequence, requestId] = CURSOR.exec(cursor ?? '') ?? [];
  return requestId === undefined ? undefined : { at: Number(at), sequence: Number(sequence), requestId };
}

function toKey({ at, sequence, line: { requestId } }: ReplicaEntry): Position {
  return { at, sequence, requestId };
}

/** Positive if the entry is older than the position. */
function compare({ at, sequence, line: { requestId } }: ReplicaEntry, other: Position): number {
  if (at !== other.at) return other.at - at;
  if (sequence !== other.sequence) return other.sequence - sequence;
  return requestId === other.requestId ? 0 : requestId < other.requestId ? 1 : -1;
}
