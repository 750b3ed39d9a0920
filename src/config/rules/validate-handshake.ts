/** Whether a route's handshake can be answered at all, and is judged by something that strangers do not know. */
import { HANDSHAKES } from '../../auth/handshakes/catalogue.ts';
import type { HandshakeConfig, WebhookConfig } from '../schema/config.ts';
import { error, type Path, type Rating, warning } from './rating.ts';

/** Everything wrong or weak in it. */
export function checkHandshake({ handshake, description, allowQuery }: WebhookConfig, path: Path): Rating[] {
  if (handshake === undefined) return [];
  const { type, verifyToken } = handshake;
  const { token, hasMac, hasOrigins, parameter } = HANDSHAKES[type];
  const found = checkUnused(handshake, path);
  // It signs what strangers ask for: nothing but plain content may be signed so, as that is told from a token.
  if (type === 'x' && description.signed.some((piece) => piece !== 'body'))
    found.push(
      error(
        [...path, 'type'],
        'the handshake of X signs any token by the key, so the scheme must sign the content alone',
        'signed: [body]',
      ),
    );
  if (token === 'needed' && verifyToken === undefined) {
    const url =
      parameter === undefined ? '' : `, and ?${handshake.parameter}=<it> at the end of the URL that the sender is given`;
    const hint = `handshake: { verifyToken: { file: PATH } }${url}; or handshake: off where the app answers by another route`;
    found.push(warning(path, 'nothing tells the sender from strangers, so its handshake is refused', hint));
  }
  if (hasOrigins === true && handshake.allowedOrigins.length === 0)
    found.push(error(path, 'nobody is allowed to send', 'allowedOrigins: [eventgrid.azure.net]'));
  const isHmac = description.signature?.forms.some(({ algorithm }) => algorithm === 'hmac-sha256') === true;
  if (hasMac === true && !isHmac)
    found.push(error(path, `${type} asks for an HMAC-SHA256 by the route's key, and ${description.name} has none`));
  if (parameter !== undefined && verifyToken !== undefined && allowQuery)
    found.push(
      warning(path, 'with allowQuery, a delivery may have any query, with the token or without', 'leave allowQuery out'),
    );
  return found;
}

/** What this kind does not look at would promise a check that nobody makes. */
function checkUnused({ type, verifyToken, parameter, allowedOrigins, allowedRate }: HandshakeConfig, path: Path): Rating[] {
  const kind = HANDSHAKES[type];
  const unused = [
    ...(verifyToken !== undefined && kind.token === undefined ? ['verifyToken'] : []),
    ...(parameter !== undefined && kind.parameter === undefined ? ['parameter'] : []),
    ...(allowedOrigins.length > 0 && kind.hasOrigins === undefined ? ['allowedOrigins'] : []),
    ...(allowedRate !== undefined && kind.hasOrigins === undefined ? ['allowedRate'] : []),
  ];
  return unused.map((name) => error([...path, name], `${type} has no use for it`, 'leave it out'));
}
