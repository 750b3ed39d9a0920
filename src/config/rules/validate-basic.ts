/** The rules of routes with HTTP Basic, and the warnings about choices that weaken them. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import { type BasicConfig, type Config, type RealmConfig, realmsOf } from '../schema/config.ts';
import { error, type Path, type Rating, warning } from './rating.ts';

/** Everything wrong or risky in a route's basic section. */
export function checkBasic(basic: BasicConfig, { listen, authz }: Config, path: Path, now: EpochMilliseconds): Rating[] {
  const found: Rating[] = [];
  const comesByTls = listen.tls !== undefined || listen.trustedProxies.length > 0 || authz !== undefined;
  if (basic.requireTls && !comesByTls) {
    found.push(
      error(
        [...path, 'requireTls'],
        'no request can come by TLS, so each would be refused',
        'give listen.tls, or name in listen.trustedProxies who ends TLS before the gate, or say requireTls: false',
      ),
    );
  }
  if (!basic.requireTls)
    found.push(warning([...path, 'requireTls'], 'passwords may cross the network in clear text', 'leave requireTls out'));
  found.push(...checkUsers(basic, path, now));
  return found;
}

/** A realm is one set of users, whichever sections name it. */
export function checkRealms(config: Config): Rating[] {
  const found: Rating[] = [];
  const owners = new Map<string, RealmConfig>();
  const sections = realmsOf(config);
  for (const { realm, path } of sections) {
    if (realm.users === undefined) continue;
    const owner = owners.get(realm.realm);
    if (owner === undefined) owners.set(realm.realm, realm);
    else if (toRealmId(owner) !== toRealmId(realm)) {
      found.push(
        error(
          [...path, 'users'],
          `the realm ${JSON.stringify(realm.realm)} has other users elsewhere`,
          'a browser sends what it was told for the realm to all of its routes: name the users once, or use two realms',
        ),
      );
    }
  }
  for (const { realm, path } of sections) {
    if (!owners.has(realm.realm)) found.push(error(path, 'nobody names the users of this realm', 'users: { file: PATH }'));
  }
  return found;
}

/** Everything wrong or risky in what of a section is about its users. */
export function checkUsers(
  realm: Omit<BasicConfig, 'requireTls' | 'forwardUser' | 'forwardAuthorization'>,
  path: Path,
  now: EpochMilliseconds,
): Rating[] {
  const found: Rating[] = [];
  if (realm.limit === 'off')
    found.push(warning([...path, 'limit'], 'passwords can be guessed as fast as they can be hashed', 'leave limit out'));
  if (realm.allowPlainTextPasswords)
    found.push(warning([...path, 'allowPlainTextPasswords'], 'whoever reads the users file has the passwords'));
  for (const [index, { notAfter }] of (realm.users ?? []).entries()) {
    if (notAfter !== undefined && notAfter <= now)
      found.push(warning([...path, 'users', index, 'notAfter'], 'these passwords have expired', 'remove the source'));
  }
  return found;
}

function toRealmId({ users, allowPlainTextPasswords, cache }: RealmConfig): string {
  return JSON.stringify([users, allowPlainTextPasswords, cache]);
}
