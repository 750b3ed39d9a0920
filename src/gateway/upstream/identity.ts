/** Writes the identity of the client and the route: for the app, and for a proxy that sends auth requests. */
import type { Admitted } from '../../core/admitted.ts';
import type { FieldSettings } from '../../core/field-policy.ts';
import type { IdentitySigner } from './identity-token.ts';

/** The data about the client that a route reports. */
export interface IdentityContext extends Pick<FieldSettings, 'user'> {
  /** The name of the route. */
  readonly route: string;
  /** Signs the identity; default: it is not signed. */
  readonly signer?: IdentitySigner;
}

const USER_FIELDS: readonly string[] = ['Sidegate-User', 'X-Forwarded-User'];

/** Adds the field lines as raw pairs. `more`: additional field names for the user; all of them are empty without a user, because a proxy copies them. */
export function addIdentity(out: string[], admitted: Admitted, context: IdentityContext, more: readonly string[] = []): void {
  const { head, sender, claimed, observed } = admitted;
  const user = context.user === 'forward' ? sender.user : undefined;
  out.push('Sidegate-Route', context.route);
  if (claimed !== undefined) out.push('Sidegate-Key', claimed.event.keyName);
  if (user !== undefined || more.length > 0) {
    const text = user === undefined ? '' : toFieldText(user.name);
    for (const name of [...USER_FIELDS, ...more]) out.push(name, text);
  }
  out.push('Sidegate-Request-Id', head.requestId);
  // A request that passed unverified in observe mode gets no token.
  if (observed !== undefined) {
    out.push('Sidegate-Observed', observed.code);
    return;
  }
  const token = context.signer?.sign(admitted);
  if (token !== undefined) out.push('Sidegate-Identity', token);
}

/**
 * Everything except visible ASCII, and `%` and the delimiters of lists, parameters and quoted strings (RFC 9110 §5.6): one name
 * stays one name.
 */
const NOT_PLAIN = /[^\x21-\x7e]|[",;%\\]/gu;

/** Formats a user name as a header value; special characters are percent-encoded UTF-8, so that it can be decoded. */
function toFieldText(user: string): string {
  return user.replace(NOT_PLAIN, (character) =>
    [...Buffer.from(character)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''),
  );
}
