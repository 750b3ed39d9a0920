/** The state that the page starts with, and how a user ends it. */

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

/**
 * Makes the browser forget the password, and opens the page again. HTTP Basic has no logout, but a browser drops credentials that a server rejects.
 * Only an XMLHttpRequest can name other credentials; with them, the browser does not ask for a password.
 */
export function logOut(): void {
  const request = new XMLHttpRequest();
  request.open('GET', '/logout', true, 'logged-out', 'logged-out');
  request.onloadend = () => location.assign('/');
  request.send();
}
