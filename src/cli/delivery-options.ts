/** The options and the ID that select deliveries. */
import type { Command } from 'commander';
import { usageError } from '../core/errors.ts';
import { toSegment } from './api-client.ts';
import { toTime } from './input.ts';

/** Select events. */
export interface EventFilterOptions {
  readonly type?: string;
  readonly tenant?: string;
  readonly from?: string;
  readonly to?: string;
}

/** Select deliveries. */
export interface FilterOptions extends EventFilterOptions {
  readonly endpoint?: string;
  readonly event?: string;
}

/** Adds the options that select deliveries. */
export function withFilter(command: Command): Command {
  return withEventFilter(
    command
      .option('--endpoint <id>', 'only deliveries to this endpoint; inbox:ROUTE for those of an inbox')
      .option('--event <id>', 'only deliveries of this event'),
  );
}

/** Adds the options that select events. */
export function withEventFilter(command: Command): Command {
  return command
    .option('--type <type>', 'only events of this type')
    .option('--tenant <tenant>', 'only events of this tenant')
    .option('--from <time>', 'only events accepted since then: RFC 3339, or a duration before now such as 2h')
    .option('--to <time>', 'only events accepted before then');
}

/** The parameters of the API. */
export function toFilter({ endpoint, event, type, tenant, from, to }: FilterOptions): Record<string, string> {
  const given = { endpoint, event, type, tenant, from: toTime(from, '--from'), to: toTime(to, '--to') };
  return Object.fromEntries(Object.entries(given).filter((entry): entry is [string, string] => entry[1] !== undefined));
}

/** Throws for a text that is not EVENT~ENDPOINT. */
export function parseDeliveryId(id: string): { readonly event: string; readonly endpoint: string } {
  const [event = '', endpoint, ...rest] = id.split('~');
  if (endpoint === undefined || rest.length > 0)
    throw usageError(`${id} is not the ID of a delivery: write EVENT~ENDPOINT, as sidegate deliveries list shows it`);
  return { event, endpoint };
}

/** The path of a delivery. */
export function toDeliveryPath(id: string): string {
  const { event, endpoint } = parseDeliveryId(id);
  return `/deliveries/${toSegment(event)}~${toSegment(endpoint)}`;
}
