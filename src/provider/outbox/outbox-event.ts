/** A row of the outbox as an event of the queue, or why it can never be one. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import { parseStrictJson } from '../../core/strict-json.ts';
import { JSON_BOUNDS } from '../../http-api/api-router.ts';
import type { RoutedEvent } from '../endpoints/registry.ts';
import type { Target } from '../endpoints/target.ts';
import { EVENT_ID, EVENT_TYPE, joinBody, MAX_EVENT_TYPE_LENGTH, TENANT } from '../events/event.ts';
import type { NewEvent } from '../queue/delivery-queue.ts';
import type { OutboxRow } from './outbox-table.ts';

/** The limits and the routing of events. */
export interface EventParts {
  readonly now: EpochMilliseconds;
  readonly maxEventSize: number;
  readonly route: (event: RoutedEvent) => readonly Target[];
}

/** The last second of the year 9999. */
const MAX_CREATED = 253_402_300_799;

/** Converts a row. `data` is sent byte for byte as it was inserted. */
export function toEvent(row: OutboxRow, parts: EventParts): NewEvent | { readonly reason: string } {
  const { id, type, tenant, data, bytes } = row;
  const { maxEventSize } = parts;
  const reason = findProblem(row);
  if (reason !== undefined) return { reason };
  if (data === null) return { reason: toTooLarge(bytes, maxEventSize) };
  const text = Buffer.from(data);
  const parsed = parseStrictJson(text, JSON_BOUNDS);
  if (parsed.kind === 'problem') return { reason: `data: ${parsed.problem}` };
  if (!isObject(parsed.value)) return { reason: 'data is not a JSON object' };
  const body = joinBody({ type, id, created: Math.floor(row.created) }, text);
  if (body.length > maxEventSize) return { reason: toTooLarge(body.length, maxEventSize) };
  const routed = { type, tenant: tenant ?? undefined, data: parsed.value };
  return { id, type, tenant: routed.tenant, createdAt: parts.now, body, metadata: '{}', targets: parts.route(routed) };
}

function findProblem({ id, type, tenant, created }: OutboxRow): string | undefined {
  if (!EVENT_ID.test(id)) return 'id is not 1 to 128 letters, digits and _ : -';
  if (type.length > MAX_EVENT_TYPE_LENGTH) return `type has more than ${MAX_EVENT_TYPE_LENGTH} characters`;
  if (!EVENT_TYPE.test(type)) return 'type is not letters, digits, _ and -, in segments separated by dots';
  if (tenant !== null && !TENANT.test(tenant)) return 'tenant is not 1 to 128 letters, digits and _ : . -';
  if (!(created >= 0 && created <= MAX_CREATED)) return 'created is not between the years 1970 and 9999';
  return undefined;
}

function toTooLarge(bytes: number, maxEventSize: number): string {
  return `the event has ${bytes} bytes; provider.maxEventSize is ${maxEventSize}`;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
