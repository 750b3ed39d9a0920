/** The filters of the list. */
import type { JSX } from 'preact';
import type { DeliveryView } from '../../console/delivery-schemas.ts';
import { toInstant } from '../format.ts';
import { type Place, toFormHandler } from '../location.ts';

/** What the list shows; undefined: everything. */
export interface Filters {
  readonly route: string | undefined;
  readonly outcomes: readonly string[];
  readonly id: string | undefined;
  /** RFC 3339. */
  readonly from: string | undefined;
  readonly to: string | undefined;
}

const OUTCOMES = ['forwarded', 'failed', 'answered', 'rejected'] as const;
const UNMATCHED = '_unmatched';

/** The filters of the address. */
export function readFilters(query: URLSearchParams): Filters {
  const get = (name: string): string | undefined => query.get(name) || undefined;
  return {
    route: get('route'),
    outcomes: query.getAll('outcome').filter((each) => each !== ''),
    id: get('id'),
    from: toInstant(get('from')),
    to: toInstant(get('to')),
  };
}

/** The query of the list in the API; the stream has neither ID nor times. */
export function toQuery({ route, outcomes, id, from, to }: Filters, of: 'list' | 'stream'): string {
  const query = new URLSearchParams();
  if (route !== undefined) query.set('route', route);
  for (const outcome of outcomes) query.append('outcome', outcome);
  if (of === 'list')
    for (const [name, value] of Object.entries({ id, from, to })) if (value !== undefined) query.set(name, value);
  return query.toString();
}

/** Applies the filters that the stream does not have. */
export function isShown({ id, event, at }: DeliveryView, filters: Filters): boolean {
  if (filters.id !== undefined && filters.id !== id && filters.id !== event) return false;
  const time = Date.parse(at);
  return !(time < Date.parse(filters.from ?? '') || time >= Date.parse(filters.to ?? ''));
}

/** The form. */
export function FilterForm({ place, routes }: { readonly place: Place; readonly routes: readonly string[] }): JSX.Element {
  const { query } = place;
  const current = (name: string): string => query.get(name) ?? '';
  const apply = toFormHandler(place, ['route', 'outcome', 'id', 'from', 'to']);
  const known = [...new Set([...routes, ...[current('route')].filter((name) => name !== '' && name !== UNMATCHED)])];
  return (
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
      <fieldset>
        <legend>Outcome</legend>
        {OUTCOMES.map((name) => (
          <label key={name} class="choice">
            <input type="checkbox" name="outcome" value={name} checked={query.getAll('outcome').includes(name)} /> {name}
          </label>
        ))}
      </fieldset>
      <label>
        ID of request or event <input name="id" maxLength={1_024} value={current('id')} autoComplete="off" spellcheck={false} />
      </label>
      <label>
        From (UTC) <input type="datetime-local" name="from" value={current('from')} />
      </label>
      <label>
        To (UTC) <input type="datetime-local" name="to" value={current('to')} />
      </label>
      <a href="/">Clear filters</a>
    </form>
  );
}
