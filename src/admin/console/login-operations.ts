/** The operations of logins: which clients fail, which are banned, and how a ban is lifted. */
import type { RealmConfig } from '../../config/schema/config.ts';
import { toInstant } from '../../core/clock.ts';
import type { Reason } from '../../core/refusal.ts';
import { toAttemptKey } from '../../gateway/pipeline/gates/basic-auth.ts';
import { defineOperation, type Operation, toJson } from '../../http-api/operation.ts';
import { toInvalid, toProblem } from '../../http-api/problem.ts';
import { StoreUnavailable } from '../../state/seen-ids.ts';
import type { JournalEntry } from '../../telemetry/journal/journal.ts';
import type { Attempts } from '../../users/attempts.ts';
import { type FailedLogins, failedLoginList, type Release, release, released } from './schemas.ts';

/** The dependencies of the operations. */
export interface LoginParts {
  readonly journal: { find(query: { readonly limit: number }): readonly JournalEntry[]; readonly size: number };
  readonly realms: () => readonly Pick<RealmConfig, 'realm' | 'limit'>[];
  /** The realm of a route. */
  readonly findRealm: (route: string) => string | undefined;
  readonly attempts: Pick<Attempts, 'findBan' | 'lift'>;
  /** `of`: `client` or `user`. A user's name may be a password in the wrong field, so it is not passed on. */
  readonly onLifted: (realm: string, of: 'client' | 'user') => void;
}

const FAILED: ReadonlySet<Reason> = new Set(['bad_credentials', 'malformed_credentials', 'banned']);
/** Each costs a round trip to the store. */
const MAX_CLIENTS = 100;
const MAX_BODY = 4_096;

/** Builds the operations. */
export function createLoginOperations(parts: LoginParts): Operation[] {
  return [createList(parts), createRelease(parts)];
}

function createList(parts: LoginParts): Operation {
  return defineOperation({
    id: 'listFailedLogins',
    method: 'GET',
    path: '/api/v1/logins',
    summary: 'List clients with recent failed logins, and their bans',
    description: `At most ${MAX_CLIENTS}, those that failed last first; from the requests of this replica that the journal still has.`,
    responses: { 200: { description: 'The clients.', schema: failedLoginList } },
    problems: [],
    async handle() {
      const clients = groupFailures(parts);
      const data = await Promise.all(clients.map(async (each) => ({ ...each, bannedForMs: await findBan(each, parts) })));
      return toJson(200, { data });
    },
  });
}

function createRelease(parts: LoginParts): Operation {
  return defineOperation({
    id: 'releaseLogin',
    method: 'POST',
    path: '/api/v1/logins/release',
    summary: 'Forget the failed logins of a client or a user, and lift the ban',
    description: 'Other replicas that share the store follow within a second.',
    body: { schema: release, maxBytes: MAX_BODY },
    responses: { 200: { description: 'They are forgotten.', schema: released } },
    problems: ['busy'],
    handle: ({ body }) => lift(body, parts),
  });
}

async function lift(body: Release, { realms, attempts, onLifted }: LoginParts) {
  if (!realms().some(({ realm }) => realm === body.realm))
    return toInvalid([{ field: 'realm', message: 'no section has this realm' }]);
  try {
    const hadFailures = await attempts.lift(toAttemptKey(body.realm, body));
    onLifted(body.realm, 'client' in body ? 'client' : 'user');
    return toJson(200, { hadFailures });
  } catch (thrown) {
    if (!(thrown instanceof StoreUnavailable)) throw thrown;
    return toProblem('busy', 'the store is unavailable: try again');
  }
}

type Failures = Omit<FailedLogins, 'bannedForMs'>;

function groupFailures({ journal, findRealm }: LoginParts): Failures[] {
  const found = new Map<string, Failures>();
  for (const { at, line } of journal.find({ limit: Math.max(1, journal.size) })) {
    if (!FAILED.has(line.reason) || line.route === undefined) continue;
    const realm = findRealm(line.route);
    if (realm === undefined) continue;
    const id = JSON.stringify([realm, line.client]);
    const known = found.get(id);
    if (known === undefined && found.size >= MAX_CLIENTS) continue;
    const { failures = 0, lastAt = toInstant(at), routes = [] } = known ?? {};
    const all = routes.includes(line.route) ? routes : [...routes, line.route];
    found.set(id, { realm, client: line.client, failures: failures + 1, lastAt, routes: all });
  }
  return [...found.values()];
}

async function findBan({ realm, client }: Failures, { realms, attempts }: LoginParts): Promise<number | null> {
  const limit = realms().find((each) => each.realm === realm)?.limit;
  if (limit === undefined || limit === 'off') return null;
  const left = await attempts.findBan(toAttemptKey(realm, { client }), limit);
  return left > 0 ? left : null;
}
