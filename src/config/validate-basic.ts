/** The rules of routes with HTTP Basic, and the warnings about choices that weaken them. */
import type { EpochMilliseconds } from '../core/clock.ts';
import type { BasicConfig, Config, RouteConfig } from './config.ts';
import { error, type Path, type Rating, warning } from './rating.ts';

/** Everything wrong or risky in a route's basic section. */
export function checkBasic(basic: BasicConfig, { listen }: Config, path: Path, now: EpochMilliseconds): Rating[] {
  const found: Rating[] = [];
  const comesByTls = listen.tls !== undefined || listen.trustedProxies.length > 0;
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
  if (basic.limit === 'off')
    found.push(warning([...path, 'limit'], 'passwords can be guessed as fast as they can be hashed', 'leave limit out'));
  if (basic.allowPlainTextPasswords)
    found.push(warning([...path, 'allowPlainTextPasswords'], 'whoever reads the users file has the passwords'));
  for (const [index, { notAfter }] of (basic.users ?? []).entries()) {
    if (notAfter !== undefined && notAfter <= now)
      found.push(warning([...path, 'users', index, 'notAfter'], 'these passwords have expired', 'remove the source'));
  }
  return found;
}

/** A realm is one set of users, whichever routes name it. */
export function checkRealms(routes: readonly RouteConfig[]): Rating[] {
  const found: Rating[] = [];
  const owners = new Map<string, RouteConfig>();
  for (const [index, route] of routes.entries()) {
    const { basic } = route;
    if (basic?.users === undefined) continue;
    const owner = owners.get(basic.realm);
    if (owner === undefined) owners.set(basic.realm, route);
    else if (toRealmId(owner.basic) !== toRealmId(basic)) {
      found.push(
        error(
          ['routes', index, 'basic', 'users'],
          `route ${owner.name} has other users for the realm ${JSON.stringify(basic.realm)}`,
          'a browser sends what it was told for the realm to all of its routes: name the users once, or use two realms',
        ),
      );
    }
  }
  for (const [index, { basic }] of routes.entries()) {
    if (basic !== undefined && !owners.has(basic.realm))
      found.push(error(['routes', index, 'basic'], 'no route of this realm names its users', 'users: { file: PATH }'));
  }
  return found;
}

function toRealmId(basic: BasicConfig | undefined): string {
  return JSON.stringify([basic?.users, basic?.allowPlainTextPasswords, basic?.cache]);
}
