/** A gate before a framework: its handlers are guarded, and a catch-all is open that lets every form of a path through. */
import { AMBIGUOUS_FORMS } from '../../../src/core/head.ts';
import { type Sections, startGate, type TestGate } from '../gate.ts';
import { makeEntry, toBasic } from '../users.ts';

/** Passes the gates of `/admin` and `/account`. */
export const GUARDED_USER = toBasic('Aladdin', 'open sesame');
/** What those routes ask. */
export const GUARDED_BASIC = { realm: 'admin', users: { file: 'users' }, requireTls: false };
const WEBHOOK = { keys: [{ name: 'current', secret: { file: 'secret' } }] };

/** The handlers of all frameworks, guarded, and an open route around them. */
export function toGuardedRoutes(appPort: number, openMatch: Sections = {}): Sections[] {
  const upstream = `http://127.0.0.1:${appPort}`;
  return [
    { name: 'admin', match: { pathPrefix: '/admin' }, upstream, basic: GUARDED_BASIC },
    { name: 'billing', match: { path: '/hooks/billing' }, upstream, webhook: WEBHOOK },
    { name: 'account', match: { path: '/account' }, upstream, basic: GUARDED_BASIC },
    { name: 'rest', match: { pathPrefix: '/', ...openMatch }, upstream, allow: 'anyone' },
  ];
}

/** Starts a gate with `sections`, whose users file knows `GUARDED_USER`. */
export function startWithUsers(sections: Sections): Promise<TestGate> {
  return startGate(sections, undefined, { users: makeEntry('Aladdin', 'open sesame') });
}

/** Starts the gate. */
export function startGuarded(appPort: number): Promise<TestGate> {
  return startWithUsers({ routes: toGuardedRoutes(appPort, { allowInPath: AMBIGUOUS_FORMS }) });
}
