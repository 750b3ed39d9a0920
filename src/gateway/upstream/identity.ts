/** Writes who came in and by which route: for the app, and for a proxy that asks on its behalf. */
import type { Admitted } from '../../core/admitted.ts';
import type { IdentitySigner } from './identity-token.ts';

/** What a route tells of who came in. */
export interface IdentityContext {
  /** The route's name. */
  readonly route: string;
  /** `forward` tells who it is, `hide` sees to it that nobody does; left out: the route asks nobody who he is. */
  readonly user?: 'forward' | 'hide';
  /** Signs all of it; left out: nothing is signed. */
  readonly signer?: IdentitySigner;
}

const USER_FIELDS: readonly string[] = ['Sidegate-User', 'X-Forwarded-User'];

/** Adds the field lines as raw pairs; `more` are further names for the user. */
export function addIdentity(out: string[], admitted: Admitted, context: IdentityContext, more: readonly string[] = []): void {
  const { head, sender, claimed, observed } = admitted;
  out.push('Sidegate-Route', context.route);
  if (claimed !== undefined) out.push('Sidegate-Key', claimed.event.keyName);
  if (sender.user !== undefined && context.user === 'forward') {
    const text = toFieldText(sender.user.name);
    for (const name of [...USER_FIELDS, ...more]) out.push(name, text);
  }
  out.push('Sidegate-Request-Id', head.requestId);
  // Nothing vouches for what was let through unverified.
  if (observed !== undefined) {
    out.push('Sidegate-Observed', observed.code);
    return;
  }
  const token = context.signer?.sign(admitted);
  if (token !== undefined) out.push('Sidegate-Identity', token);
}

/** All but visible ASCII, `%`, and what a list, its parameters or a quoted text is made of (RFC 9110 §5.6): one name stays one name. */
const NOT_PLAIN = /[^\x21-\x7e]|[",;%\\]/gu;

/** A user's name as header text; percent-encoded UTF-8 where it is not plain, so that it can be undone. */
function toFieldText(user: string): string {
  return user.replace(NOT_PLAIN, (character) =>
    [...Buffer.from(character)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''),
  );
}
