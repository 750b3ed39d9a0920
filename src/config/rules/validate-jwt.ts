/** The rules of schemes with weak or partial signatures: JSON Web Tokens, and checksums in place of the body. */

import { error, type Path, type Problem, warning } from '../../core/problem.ts';
import type { SchemeDescription } from '../../verify/schemes/description.ts';
import type { JwtDescription } from '../../verify/schemes/key-description.ts';
import { JWS_NAMES } from '../../verify/schemes/public-keys.ts';
import type { WebhookConfig } from '../schema/config.ts';

/** Everything wrong with a token, or with how the route uses it. */
export function checkJwt(webhook: WebhookConfig, path: Path): Problem[] {
  const { description, scheme } = webhook;
  const found = scheme === 'custom' ? checkCustom(description, [...path, 'custom']) : [];
  const { jwt } = description;
  if (jwt === undefined) return found;
  found.push(...checkMustSet(jwt, scheme, path));
  if (jwt.chain !== undefined && webhook.jwks.length > 0)
    found.push(
      error(
        [...path, 'jwks'],
        'the key of a token is that of the certificate in its header',
        'remove jwks, and configure the root certificate under keys',
      ),
    );
  if (description.signed.length === 0)
    found.push(
      warning(
        [...path, 'scheme'],
        `the tokens of ${scheme} do not sign the body: anyone who has seen a request can send any body with its token until that expires`,
        'let the app read what it acts on from the API of the sender, and use the route only over TLS',
      ),
    );
  return found;
}

function checkMustSet({ mustSet = [], audience, claims = {} }: JwtDescription, scheme: string, path: Path): Problem[] {
  return mustSet.flatMap((needed) => {
    const isSet = needed === 'audience' ? audience !== undefined : Object.hasOwn(claims, needed);
    if (isSet) return [];
    const message = `${scheme} signs tokens of all customers of the sender with the same keys`;
    const hint =
      needed === 'audience' ? 'jwt: { audience: [VALUE] }' : `jwt: { claims: { ${needed.replace('$.', '')}: [VALUE] } }`;
    return [error([...path, 'jwt'], message, `say which of them is yours: ${hint}`)];
  });
}

function checkCustom({ signature, jwt, id, timestamp, signed }: SchemeDescription, path: Path): Problem[] {
  const found: Problem[] = [];
  const isToken = signature?.encoding === 'jwt';
  if (isToken !== (jwt !== undefined))
    found.push(
      error([...path, 'signature', 'encoding'], 'encoding: jwt and jwt require each other', 'encoding: jwt, with jwt: {}'),
    );
  const readsClaim = (id !== undefined && 'claim' in id) || (timestamp !== undefined && 'claim' in timestamp.from);
  if (readsClaim && jwt === undefined)
    found.push(error(path, 'only a JSON Web Token has claims', 'use { header: NAME } or { json: PATH }'));
  if (jwt === undefined) return found;
  if (timestamp !== undefined && !('claim' in timestamp.from))
    found.push(error([...path, 'timestamp'], 'the time of a JSON Web Token must be a claim', 'timestamp: { claim: iat }'));
  const forms = signature?.forms ?? [];
  const unknown = forms.find(({ algorithm }) => JWS_NAMES[algorithm] === undefined);
  if (unknown !== undefined)
    found.push(
      error(
        [...path, 'signature', 'forms'],
        `JSON Web Tokens are not signed by ${unknown.algorithm}`,
        'use hmac-sha256 for HS256, rsa-sha256 for RS256',
      ),
    );
  if (forms.some(({ prefix }) => prefix !== forms[0]?.prefix) || signature?.list !== undefined)
    found.push(
      error(
        [...path, 'signature'],
        'a header has one token, after one prefix',
        'remove list, and use the same prefix in all forms',
      ),
    );
  if (signed.length === 0 && jwt.requiresExpiry === undefined)
    found.push(
      error(
        [...path, 'jwt', 'requiresExpiry'],
        'a token that signs neither the body nor its expiry is a password that everyone who saw it can use',
        'requiresExpiry: true, or bodyHash if the token has a digest of the body',
      ),
    );
  return found;
}

/** A CRC-32 is not a digest: four chosen bytes anywhere in another body give it the same one. Only the ID then stops a changed copy. */
export function checkWeakDigest({ description, scheme, allowWeakDigest, dedup }: WebhookConfig, path: Path): Problem[] {
  const { signed, timestamp } = description;
  if (signed.includes('receiverId')) {
    const message = `${scheme} signs the ID under which the sender knows the receiver`;
    return [error([...path, 'receiverId'], message, 'receiverId: the ID of the webhook at the sender')];
  }
  const at = [...path, 'allowWeakDigest'];
  const isWeak = signed.includes('crc32') && !signed.includes('body');
  if (!isWeak) return allowWeakDigest ? [warning(at, `${scheme} does not sign a CRC-32`, 'remove allowWeakDigest')] : [];
  const message = `${scheme} signs only a CRC-32 of the body, so anyone who has a signed delivery can send another body with its signature`;
  if (!allowWeakDigest)
    return [error(at, message, 'allowWeakDigest: true, if the app reads the event from the API of the sender by its ID')];
  const found = [warning(at, `${message} until the delivery is handled`)];
  if (dedup === 'off' || dedup.onStoreError === 'forward')
    found.push(
      error(
        [...path, 'dedup'],
        `${scheme} is safe only if each ID is accepted once`,
        'remove dedup: off and onStoreError: forward',
      ),
    );
  if (!signed.includes('id') || timestamp === undefined || !signed.includes('timestamp'))
    found.push(
      error(
        [...path, 'custom', 'signed'],
        'a CRC-32 is accepted only beside a signed ID and time',
        'signed: [id, timestamp, crc32]',
      ),
    );
  return found;
}
