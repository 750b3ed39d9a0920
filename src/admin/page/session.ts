/** The state that the page starts with. */

import type { PageSession } from '../console/page-html.ts';

/** The gate, and what its user may do. */
export type Session = PageSession;

/** Reads the attributes that the gate wrote. */
export function readSession({ dataset }: HTMLElement): Session {
  const user = dataset['user'] ?? '';
  return {
    version: dataset['version'] ?? '',
    replica: dataset['replica'] ?? '',
    canLogIn: dataset['canLogIn'] === 'true',
    hasOutgoing: dataset['hasOutgoing'] === 'true',
    user: user === '' ? undefined : user,
  };
}
