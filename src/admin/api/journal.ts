/** `GET /journal`, `GET /journal/attempts` and `/captures`: the most recent decisions, attempts and captured deliveries, newest first. */
import { toInstant } from '../../core/clock.ts';
import { REFUSALS } from '../../core/refusal.ts';
import type { AttemptEntry, AttemptJournal } from '../../telemetry/journal/attempt-journal.ts';
import type { Journal, JournalEntry, JournalQuery } from '../../telemetry/journal/journal.ts';
import { UNMATCHED } from '../../telemetry/metrics/series.ts';
import { type AdminEndpoint, type AdminResponse, toJson, toPlain } from '../router.ts';

const DECISION_FILTERS = ['route', 'code', 'reason', 'requestId'] as const;
const ATTEMPT_FILTERS = ['endpoint', 'event', 'outcome'] as const;
const CODES: ReadonlySet<string> = new Set([...Object.keys(REFUSALS), 'forwarded', 'allowed']);
const DEFAULT_LIMIT = 100;

/** Builds the endpoint of decisions. */
export function createJournalEndpoint(journal: Journal): AdminEndpoint {
  return {
    path: '/journal',
    method: 'GET',
    isOpen: false,
    respond({ query }) {
      if (journal.size === 0) return toDisabled();
      const parsed = parseQuery(query, journal.size);
      if (typeof parsed === 'string') return toPlain(400, parsed);
      return toJson({ size: journal.size, recorded: journal.recorded, entries: journal.find(parsed).map(toEntry) });
    },
  };
}

/** Builds the endpoint of attempts. */
export function createAttemptsEndpoint(journal: AttemptJournal): AdminEndpoint {
  return {
    path: '/journal/attempts',
    method: 'GET',
    isOpen: false,
    respond({ query }) {
      if (journal.size === 0) return toDisabled();
      const given = parseFilters(query, ATTEMPT_FILTERS, journal.size);
      if (typeof given === 'string') return toPlain(400, given);
      return toJson({ size: journal.size, recorded: journal.recorded, entries: journal.find(given).map(toAttempt) });
    },
  };
}

function toDisabled(): AdminResponse {
  return toPlain(404, 'the journal is disabled: journal.size is 0');
}

function parseQuery(query: URLSearchParams, size: number): JournalQuery | string {
  const given = parseFilters(query, DECISION_FILTERS, size);
  if (typeof given === 'string') return given;
  const { route, code, ...others } = given;
  if (code !== undefined && !CODES.has(code)) return `unknown code ${code}; the codes are ${[...CODES].join(', ')}`;
  return {
    ...others,
    ...(code === undefined ? undefined : { code }),
    ...(route === undefined ? undefined : { route: route === UNMATCHED ? null : route }),
  };
}

/** The filters of a query, and how many entries it asks for. */
type Filters<Name extends string> = { readonly [Each in Name]?: string } & { readonly limit: number };

/** Returns the filters or an error message: a misspelt filter must not look like an empty journal. */
function parseFilters<Name extends string>(query: URLSearchParams, names: readonly Name[], size: number): Filters<Name> | string {
  const known: readonly string[] = [...names, 'limit'];
  for (const name of query.keys()) {
    if (!known.includes(name)) return `unknown filter ${name}; the filters are ${known.join(', ')}`;
    if (query.getAll(name).length > 1) return `the filter ${name} is repeated`;
  }
  const { limit = String(Math.min(DEFAULT_LIMIT, size)), ...filters } = Object.fromEntries(query);
  if (!/^\d{1,6}$/.test(limit) || Number(limit) < 1 || Number(limit) > size)
    return `limit must be an integer from 1 to ${size} (journal.size)`;
  return { ...(filters as { [Each in Name]?: string }), limit: Number(limit) };
}

function toEntry({ at, line, explanation }: JournalEntry): object {
  const entry = { at: toInstant(at), ...line, route: line.route ?? null };
  return explanation === undefined ? entry : { ...entry, explanation };
}

function toAttempt({ at, duration, retryAt, ...entry }: AttemptEntry): object {
  return { at: toInstant(at), ...entry, durationMs: duration, retryAt: retryAt === undefined ? undefined : toInstant(retryAt) };
}

/** Builds `GET /captures`, `GET /captures/{requestId}` and `DELETE /captures`: rejected deliveries of routes with `capture: failures`. */
export function createCapturesEndpoints(captures: {
  /** Newest first. */
  list(): readonly object[];
  /** Returns the delivery as an HTTP Archive in JSON. */
  find(requestId: string): string | undefined;
  /** Deletes all and returns how many there were. */
  clear(): number;
}): AdminEndpoint[] {
  return [
    { path: '/captures', method: 'GET', isOpen: false, respond: () => toJson({ captures: captures.list() }) },
    { path: '/captures', method: 'DELETE', isOpen: false, respond: () => toJson({ deleted: captures.clear() }) },
    {
      path: '/captures/*',
      method: 'GET',
      isOpen: false,
      respond: ({ parameter }) => respondWithCapture(captures.find(parameter)),
    },
  ];
}

function respondWithCapture(har: string | undefined): AdminResponse {
  return har === undefined
    ? toPlain(404, 'there is no capture of this request; GET /captures lists the captures of routes with capture: failures')
    : { status: 200, contentType: 'application/json', text: har };
}
