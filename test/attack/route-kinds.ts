/** The kinds of routes that the attacks run against: for webhooks, and for users with a password. */

import { makeDelivery } from '../support/deliveries.ts';
import { type Sections, startGate, type TestGate, toRoute } from '../support/gate.ts';
import { makeEntry, toBasic } from '../support/users.ts';

/** How requests authenticate on a kind of route. */
export interface RouteKind {
  /** Raw header pairs for a POST with this content. */
  credentials(body: Buffer): string[];
  /** The route's own section. */
  readonly route: Sections;
}

/** By name. */
export const ROUTE_KINDS = {
  webhook: {
    credentials: (body) => Object.entries(makeDelivery({ body }).headers).flat(),
    route: { webhook: { keys: [{ name: 'current', secret: { file: 'secret' } }] } },
  },
  basic: {
    credentials: () => ['Authorization', toBasic('Aladdin', 'open sesame').Authorization, 'Content-Type', 'application/json'],
    route: { basic: { realm: 'r', users: { file: 'users' }, requireTls: false } },
  },
} satisfies Record<string, RouteKind>;

/** The names of the kinds. */
export const ROUTE_KIND_NAMES = Object.keys(ROUTE_KINDS) as (keyof typeof ROUTE_KINDS)[];

/** A route of this kind to the app. */
export function toKindRoute(
  kind: RouteKind,
  appPort: number,
  match: Sections = { path: '/hooks/billing' },
  name = 'billing',
): Sections {
  const { webhook: _, ...route } = toRoute(appPort, { match });
  return { ...route, ...kind.route, name };
}

/** Starts a gate with these sections and the user Aladdin. */
export function startGateWithUser(sections: Sections): Promise<TestGate> {
  return startGate(sections, undefined, { users: makeEntry('Aladdin', 'open sesame') });
}

/** Field lines of raw pairs. */
export function toLines(raw: readonly string[]): string[] {
  return raw.flatMap((name, i) => (i % 2 === 0 ? [`${name}: ${raw[i + 1]}`] : []));
}
