/** `GET /journal`: the most recent decisions as JSON, newest first. */
import { toInstant } from '../../core/clock.ts';
import { REFUSALS } from '../../core/refusal-catalogue.ts';
import type { Journal, JournalEntry, JournalQuery } from '../../telemetry/journal/journal.ts';
import { UNMATCHED } from '../../telemetry/metrics/route-bound.ts';
import { type AdminResponse, toJson, toPlain } from '../response.ts';
import type { Endpoint } from '../router.ts';

const FILTERS: readonly string[] = ['route', 'code', 'reason', 'requestId', 'limit'];
const CODES: ReadonlySet<string> = new Set([...Object.keys(REFUSALS), 'forwarded', 'allowed']);
const DEFAULT_LIMIT = 100;

/** Builds the endpoint. */
export function createJournalEndpoint(journal: Journal): Endpoint {
  return {
    path: '/journal',
    method: 'GET',
    isOpen: false,
    respond({ query }) {
      if (journal.size === 0) return toPlain(404, 'the journal is disabled: journal.size is 0');
      const parsed = parseQuery(query, journal.size);
      return typeof parsed === 'string' ? toPlain(400, parsed) : toResponse(journal, parsed);
    },
  };
}

/** Returns the query or an error message: a misspelt filter must not look like an empty journal. */
function parseQuery(query: URLSearchParams, size: number): JournalQuery | string {
  for (const name of query.keys()) {
    if (!FILTERS.includes(name)) return `unknown filter ${name}; the filters are ${FILTERS.join(', ')}`;
    if (query.getAll(name).length > 1) return `the filter ${name} is repeated`;
  }
  const { route, code, limit = String(Math.min(DEFAULT_LIMIT, size)), ...others } = Object.fromEntries(query);
  if (!/^\d{1,6}$/.test(limit) || Number(limit) < 1 || Number(limit) > size)
    return `limit must be an integer from 1 to ${size} (journal.size)`;
  if (code !== undefined && !CODES.has(code)) return `unknown code ${code}; the codes are ${[...CODES].join(', ')}`;
  return {
    ...others,
    ...(code === undefined ? undefined : { code }),
    ...(route === undefined ? undefined : { route: route === UNMATCHED ? null : route }),
    limit: Number(limit),
  };
}

function toResponse(journal: Journal, query: JournalQuery): AdminResponse {
  return toJson({ size: journal.size, recorded: journal.recorded, entries: journal.find(query).map(toEntry) });
}

function toEntry({ at, line, explanation }: JournalEntry): object {
  const entry = { at: toInstant(at), ...line, route: line.route ?? null };
  return explanation === undefined ? entry : { ...entry, explanation };
}
