/** The filters of the list. */
import type { JSX } from 'preact';
import type { DeliveryView } from '../../console/delivery-schemas.ts';
import { Collapsible, Period } from '../collapsible.tsx';
import { toInstant } from '../format.ts';
import { type PageLocation, toFormHandler } from '../location.ts';

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
export function readFilters(query: URLSearchParams): URLSearchParams {
  const filters = new URLSearchParams();
  for (const name of NAMES)
    for (const value of query.getAll(name))
      if (value !== '') filters.append(name, (name === 'from' || name === 'to' ? toInstant(value) : value) ?? value);
  return filters;
}

/** The form. */
export function FilterForm({ place, routes }: { readonly place: PageLocation; readonly routes: readonly string[] }): JSX.Element {
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
