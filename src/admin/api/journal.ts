/** `GET /journal`: the last verdicts as JSON, newest first. */
import { toInstant } from '../../core/clock.ts';
import { REFUSALS } from '../../core/refusal-catalogue.ts';
import type { Journal, JournalEntry, JournalQuery } from '../../telemetry/journal/journal.ts';
import { UNMATCHED } from '../../telemetry/metrics/labels.ts';
import { type Answer, toJson, toPlain } from '../answer.ts';
import type { Endpoint } from '../router.ts';

const FILTERS: readonly string[] = ['route', 'code', 'reason', 'requestId', 'limit'];
const CODES: ReadonlySet<string> = new Set([...Object.keys(REFUSALS), 'forwarded', 'allowed']);
const USUAL_LIMIT = 100;

/** Builds the endpoint. */
export function createJournalEndpoint(journal: Journal): Endpoint {
  return {
    path: '/journal',
    method: 'GET',
    isOpen: false,
    answer({ query }) {
      if (journal.size === 0) return toPlain(404, 'no journal is kept: journal.size is 0');
      const wanted = toQuery(query, journal.size);
      return typeof wanted === 'string' ? toPlain(400, wanted) : toAnswer(journal, wanted);
    },
  };
}

/** The query, or what is wrong with it: a filter that is misspelt must not look like an empty journal. */
function toQuery(query: URLSearchParams, size: number): JournalQuery | string {
  for (const name of query.keys()) {
    if (!FILTERS.includes(name)) return `there is no ${name} to ask by; there are ${FILTERS.join(', ')}`;
    if (query.getAll(name).length > 1) return `${name} is given more than once`;
  }
  const { route, code, limit = String(Math.min(USUAL_LIMIT, size)), ...others } = Object.fromEntries(query);
  if (!/^\d{1,6}$/.test(limit) || Number(limit) < 1 || Number(limit) > size)
    return `limit is a whole number from 1 to ${size}, which is journal.size`;
  if (code !== undefined && !CODES.has(code)) return `there is no code ${code}; the codes are ${[...CODES].join(', ')}`;
  return {
    ...others,
    ...(code === undefined ? undefined : { code }),
    ...(route === undefined ? undefined : { route: route === UNMATCHED ? null : route }),
    limit: Number(limit),
  };
}

function toAnswer(journal: Journal, query: JournalQuery): Answer {
  return toJson({ size: journal.size, recorded: journal.recorded, entries: journal.find(query).map(toEntry) });
}

function toEntry({ at, line, explanation }: JournalEntry): object {
  const entry = { at: toInstant(at), ...line, route: line.route ?? null };
  return explanation === undefined ? entry : { ...entry, explanation };
}
