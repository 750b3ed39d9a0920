/** The rules of handshakes: the gate must be able to respond, and must authenticate the sender by something an attacker does not know. */
import { HANDSHAKES } from '../../auth/handshakes/catalogue.ts';
import type { HandshakeName, SchemeDescription } from '../../auth/schemes/description.ts';
import type { HandshakeConfig, WebhookConfig } from '../schema/config.ts';
import { error, type Path, type Rating, warning } from './rating.ts';

/** Everything wrong or weak in it. */
export function checkHandshake({ handshake, description, allowQuery }: WebhookConfig, path: Path): Rating[] {
  if (handshake === undefined) return [];
  const { type, verifyToken } = handshake;
  const { token, hasMac, hasOrigins, parameter } = HANDSHAKES[type];
  const found = [...checkUnused(handshake, path), ...checkTokenSigning(type, description, path)];
  if (token === 'needed' && verifyToken === undefined) {
    const url =
      parameter === undefined ? '' : `, and append ?${handshake.parameter}=<token> to the URL that you configure at the sender`;
    const hint = `handshake: { verifyToken: { file: PATH } }${url}; or handshake: off if the app responds on another route`;
    found.push(warning(path, 'the sender cannot be authenticated, so its handshake is rejected', hint));
  }
  if (hasOrigins === true && handshake.allowedOrigins.length === 0)
    found.push(error(path, 'no origin is allowed to send events', 'allowedOrigins: [eventgrid.azure.net]'));
  const isHmac = description.signature?.forms.some(({ algorithm }) => algorithm === 'hmac-sha256') === true;
  if (hasMac === true && !isHmac)
    found.push(error(path, `${type} requires an HMAC-SHA256 with the route's key, but ${description.name} does not use one`));
  if (parameter !== undefined && verifyToken !== undefined && allowQuery)
    found.push(
      warning(path, 'with allowQuery, deliveries are accepted with any query, even without the token', 'remove allowQuery'),
    );
  return found;
}

/** That a caller gets any token signed is safe only if deliveries sign a plain body, which cannot be mistaken for a token. */
function checkTokenSigning(type: HandshakeName, { signed }: SchemeDescription, path: Path): Rating[] {
  const { signsAnyToken } = HANDSHAKES[type];
  if (signsAnyToken === undefined) return [];
  const isSafe = signed.every(
    (piece) => piece === 'body' || (signsAnyToken === 'text-and-body' && typeof piece === 'object' && 'text' in piece),
  );
  if (isSafe) return [];
  const [wording, hint] = FORMS[signsAnyToken];
  const sender = type === 'x' ? 'X' : 'LinkedIn';
  return [
    error([...path, 'type'], `the handshake of ${sender} signs any token with the key, so the scheme must sign ${wording}`, hint),
  ];
}

const FORMS = {
  body: ['the body alone', 'signed: [body]'],
  'text-and-body': ['the body, alone or after fixed text', 'signed: [{ text: "hmacsha256=" }, body]'],
} as const;

/** A setting that this type ignores would suggest a check that never happens. */
function checkUnused({ type, verifyToken, parameter, allowedOrigins, allowedRate }: HandshakeConfig, path: Path): Rating[] {
  const rules = HANDSHAKES[type];
  const unused = [
    ...(verifyToken !== undefined && rules.token === undefined ? ['verifyToken'] : []),
    ...(parameter !== undefined && rules.parameter === undefined ? ['parameter'] : []),
    ...(allowedOrigins.length > 0 && rules.hasOrigins === undefined ? ['allowedOrigins'] : []),
    ...(allowedRate !== undefined && rules.hasOrigins === undefined ? ['allowedRate'] : []),
  ];
  return unused.map((name) => error([...path, name], `the ${type} handshake does not use ${name}`, `remove ${name}`));
}
