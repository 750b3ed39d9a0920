/** The doors that the same attacks are tried on: a route for webhooks, and one for users with a password. */

import { makeDelivery } from '../support/deliveries.ts';
import { type Sections, startGate, type TestGate, toRoute } from '../support/gate.ts';
import { makeEntry, toBasic } from '../support/users.ts';

/** What proves to a gate that a request may pass. */
export interface Door {
  /** Raw header pairs for a POST with this content. */
  credentials(body: Buffer): string[];
  /** The route's own section. */
  readonly route: Sections;
}

/** By their names. */
export const DOORS = {
  webhook: {
    credentials: (body) => Object.entries(makeDelivery({ body }).headers).flat(),
    route: { webhook: { keys: [{ name: 'current', secret: { file: 'secret' } }] } },
  },
  basic: {
    credentials: () => ['Authorization', toBasic('Aladdin', 'open sesame').Authorization, 'Content-Type', 'application/json'],
    route: { basic: { realm: 'r', users: { file: 'users' }, requireTls: false } },
  },
} satisfies Record<string, Door>;

/** Names of doors. */
export const DOOR_NAMES = Object.keys(DOORS) as (keyof typeof DOORS)[];

/** One route to the app behind a door. */
export function toDoorRoute(
  door: Door,
  appPort: number,
  match: Sections = { path: '/hooks/billing' },
  name = 'billing',
): Sections {
  const { webhook: _, ...route } = toRoute(appPort, { match });
  return { ...route, ...door.route, name };
}

/** Starts a gate with such routes. */
export function startDoor(sections: Sections): Promise<TestGate> {
  return startGate(sections, undefined, { users: makeEntry('Aladdin', 'open sesame') });
}

/** Field lines of raw pairs. */
export function toLines(raw: readonly string[]): string[] {
  return raw.flatMap((name, i) => (i % 2 === 0 ? [`${name}: ${raw[i + 1]}`] : []));
}
