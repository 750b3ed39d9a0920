/** The rules of handshakes: the gate must be able to respond, and must authenticate the sender by something an attacker does not know. */

import { error, type Path, type Problem, warning } from '../../core/problem.ts';
import { HANDSHAKES, hasTokenInUrl } from '../../verify/handshakes/catalogue.ts';
import { coversQueryOf, isFieldPiece, readsQuery } from '../../verify/schemes/coverage.ts';
import type { HandshakeName, Piece, SchemeDescription } from '../../verify/schemes/description.ts';
import type { HandshakeConfig, WebhookConfig } from '../schema/config.ts';

/** A handshake of the config, or of the library, whose token is not read from a file. */
type CheckedHandshake = Omit<HandshakeConfig, 'verifyToken'> & { readonly verifyToken?: unknown };

interface HandshakeSection extends Pick<WebhookConfig, 'description' | 'allowQuery'> {
  readonly handshake?: CheckedHandshake | undefined;
  /** The methods that the route lists. */
  readonly methods?: readonly string[] | undefined;
}

/** Everything wrong or weak in it. */
export function* checkHandshake(section: HandshakeSection, path: Path): Iterable<Problem> {
  const { handshake, description } = section;
  if (handshake === undefined) return;
  const { type, verifyToken } = handshake;
  const { token, mac, hasOrigins, hasPublicKey, parameter } = HANDSHAKES[type];
  yield* checkUnused(handshake, path);
  if (token === 'needed' && verifyToken === undefined) {
    const url =
      parameter === undefined ? '' : `, and append ?${handshake.parameter}=<token> to the URL that you configure at the sender`;
    const hint = `handshake: { verifyToken: { file: PATH } }${url}; or handshake: off if the app responds on another route`;
    yield warning(path, 'the sender cannot be authenticated, so its handshake is rejected', hint);
  }
  if (hasOrigins === true && handshake.allowedOrigins.length === 0)
    yield error(path, 'no origin is allowed to send events', 'allowedOrigins: [eventgrid.azure.net]');
  if (hasPublicKey === true && handshake.publicKey === undefined)
    yield warning(
      path,
      'the response contains the public key, so without it the handshake is rejected',
      'handshake: { publicKey: … }; or handshake: off if the URL is verified already',
    );
  const hasAlgorithm = description.signature?.forms.some(({ algorithm }) => algorithm === mac) === true;
  if (mac !== undefined && !hasAlgorithm)
    yield error(path, `${type} requires an ${MACS[mac]} with the route's key, but ${description.name} does not use one`);
  else yield* checkTokenSigning(type, description, path);
  if (hasTokenInUrl(handshake)) yield* checkQuery(section, path);
}

/** Deliveries have the token of the URL in their query too. */
function checkQuery({ description, allowQuery, methods = [] }: HandshakeSection, path: Path): Problem[] {
  if (allowQuery)
    return [
      warning(path, 'with allowQuery, deliveries are accepted with any query, even without the token', 'remove allowQuery'),
    ];
  if (!readsQuery(description) && !methods.some((method) => coversQueryOf(description, method))) return [];
  const message = `deliveries of ${description.name} have parameters in the query, which could then only be the token`;
  return [error([...path, 'verifyToken'], message, 'remove verifyToken')];
}

/** That a caller gets any token signed is safe only if deliveries sign a plain body, which cannot be mistaken for a token. */
function* checkTokenSigning(type: HandshakeName, description: SchemeDescription, path: Path): Iterable<Problem> {
  const { signsAnyToken } = HANDSHAKES[type];
  if (signsAnyToken === undefined) return;
  const [wording, hint, isSafe] = FORMS[signsAnyToken];
  if (!signsRawBody(description, isSafe))
    yield error(
      [...path, 'type'],
      `the handshake of ${TITLES[type] ?? type} signs any token with the key, so the scheme must sign ${wording}`,
      `${hint}, without jwt and contentField`,
    );
}

/** The handshake compares the raw body with a token, so deliveries must sign it, not a decoded field or the text of a JSON Web Token. */
function signsRawBody({ signed, jwt, contentField }: SchemeDescription, isSafe: (piece: Piece) => boolean): boolean {
  return jwt === undefined && contentField === undefined && signed.every(isSafe) && !signed.every(isText);
}

const MACS = { 'hmac-sha1': 'HMAC-SHA1', 'hmac-sha256': 'HMAC-SHA256' } as const;
const TITLES: Readonly<Record<string, string>> = { x: 'X', linkedin: 'LinkedIn', braintree: 'Braintree' };

type TokenWording = readonly [wording: string, hint: string, isSafe: (piece: Piece) => boolean];

const FORMS: Readonly<Record<'body' | 'text-and-body' | 'payload', TokenWording>> = {
  body: ['the raw body alone', 'signed: [body]', (piece) => piece === 'body'],
  'text-and-body': [
    'the raw body, alone or after fixed text',
    'signed: [{ text: "hmacsha256=" }, body]',
    (piece) => piece === 'body' || isText(piece),
  ],
  payload: [
    'the form field bt_payload alone',
    'signed: [{ form: bt_payload }]',
    (piece) => isFieldPiece(piece) && 'form' in piece && piece.form === 'bt_payload' && piece.path === undefined,
  ],
};

function isText(piece: Piece): boolean {
  return typeof piece === 'object' && 'text' in piece;
}

/** A setting that this type ignores would suggest a check that never happens. */
function checkUnused(handshake: CheckedHandshake, path: Path): Problem[] {
  const { type, verifyToken, parameter, allowedOrigins, allowedRate, publicKey } = handshake;
  const rules = HANDSHAKES[type];
  const unused = [
    ...(verifyToken !== undefined && rules.token === undefined ? ['verifyToken'] : []),
    ...(parameter !== undefined && rules.parameter === undefined ? ['parameter'] : []),
    ...(allowedOrigins.length > 0 && rules.hasOrigins === undefined ? ['allowedOrigins'] : []),
    ...(allowedRate !== undefined && rules.hasOrigins === undefined ? ['allowedRate'] : []),
    ...(publicKey !== undefined && rules.hasPublicKey === undefined ? ['publicKey'] : []),
  ];
  return unused.map((name) => error([...path, name], `the ${type} handshake does not use ${name}`, `remove ${name}`));
}
