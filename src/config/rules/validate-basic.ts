/** The rules of routes with HTTP Basic, and the warnings about insecure settings. */
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { error, type Path, type Problem, warning } from '../../core/problem.ts';
import { type BasicConfig, type Config, type PortBasicConfig, type RealmConfig, realmsOf } from '../schema/config.ts';

const DAY_MS: Milliseconds = 86_400_000;
/** The default allows 12,960. */
const MAX_GUESSES_PER_DAY = 100_000;

/** Everything wrong or risky in a route's basic section. */
export function* checkBasic(
  basic: BasicConfig,
  { listen, authz }: Config,
  path: Path,
  now: EpochMilliseconds,
): Iterable<Problem> {
  const canUseTls = listen.tls !== undefined || listen.trustedProxies.length > 0 || authz !== undefined;
  if (basic.requireTls && !canUseTls) {
    yield error(
      [...path, 'requireTls'],
      'no request can arrive over TLS, so every request would be rejected',
      'set listen.tls, or list the proxies that terminate TLS in listen.trustedProxies, or set requireTls: false',
    );
  }
  if (!basic.requireTls)
    yield warning([...path, 'requireTls'], 'passwords may cross the network in clear text', 'remove requireTls');
  yield* checkUsers(basic, path, now);
}

/** All sections with the same realm must have the same users. */
export function* checkRealms(config: Config): Iterable<Problem> {
  const owners = new Map<string, RealmConfig>();
  const sections = realmsOf(config);
  for (const { realm, path } of sections) {
    if (realm.users === undefined) continue;
    const owner = owners.get(realm.realm);
    if (owner === undefined) owners.set(realm.realm, realm);
    else if (toRealmId(owner) !== toRealmId(realm)) {
      yield error(
        [...path, 'users'],
        `another section defines different users for the realm ${JSON.stringify(realm.realm)}`,
        'browsers send the same credentials to all routes of a realm: define the users once, or use two realms',
      );
    }
  }
  for (const { realm, path } of sections) {
    if (!owners.has(realm.realm)) yield error(path, 'no section defines the users of this realm', 'users: { file: PATH }');
  }
}

/** Everything wrong or risky in a section's settings about users. */
export function* checkUsers(realm: PortBasicConfig, path: Path, now: EpochMilliseconds): Iterable<Problem> {
  if (realm.limit === 'off')
    yield warning(
      [...path, 'limit'],
      'the rate of password guesses is limited only by hashing',
      'remove limit to restore the default',
    );
  else yield* checkLimit(realm.limit, [...path, 'limit']);
  if (realm.allowPlainTextPasswords)
    yield warning([...path, 'allowPlainTextPasswords'], 'anyone who can read the users file knows the passwords');
  for (const [index, { notAfter }] of (realm.users ?? []).entries()) {
    if (notAfter !== undefined && notAfter <= now)
      yield warning([...path, 'users', index, 'notAfter'], 'these passwords have expired', 'remove the source');
  }
}

/** Both ways to guess: until the ban, which forgets what was counted, and one attempt less in each window. */
function checkLimit({ failures, per, ban }: Exclude<PortBasicConfig['limit'], 'off'>, path: Path): Problem[] {
  const perDay = Math.floor(DAY_MS * Math.max(failures / ban, failures > 1 ? (failures - 1) / per : 0));
  if (perDay <= MAX_GUESSES_PER_DAY) return [];
  const number = Number.isFinite(perDay) ? String(perDay) : 'any number of';
  const message = `allows ${number} guesses a day from one client or for one user, which is hardly a limit: more than ${MAX_GUESSES_PER_DAY}`;
  return [warning(path, message, 'set fewer failures, a longer per or a longer ban; or remove limit to restore the default')];
}

function toRealmId({ users, allowPlainTextPasswords, cache }: RealmConfig): string {
  return JSON.stringify([users, allowPlainTextPasswords, cache]);
}
