/** The rules of signature schemes: whether the signature protects everything that the gate relies on. */

import { error, type Path, type Problem, warning } from '../../core/problem.ts';
import { findPreset, PRESETS } from '../../verify/presets/catalogue.ts';
import { ALGORITHMS } from '../../verify/schemes/algorithms.ts';
import { signsUrl } from '../../verify/schemes/coverage.ts';
import type { SchemeDescription } from '../../verify/schemes/description.ts';
import type { JwtDescription } from '../../verify/schemes/key-description.ts';
import { findAmbiguity, toPieceTitle } from '../../verify/schemes/layout.ts';
import { JWS_NAMES } from '../../verify/schemes/public-keys.ts';
import type { RouteConfig, WebhookConfig } from '../schema/config.ts';
import { checkCoverage, checkDescription, checkId, checkWeakDigest } from './validate-places.ts';

/** Everything wrong with the scheme, or with how the route uses it. */
export function checkScheme(webhook: WebhookConfig, route: RouteConfig, path: Path): Problem[] {
  const { description, scheme } = webhook;
  return [
    ...(scheme === 'custom' ? checkDescription(description, [...path, 'custom']) : []),
    ...checkUrl(webhook, path),
    ...checkCredentials(webhook, [...path, 'urlCredentials']),
    ...checkPieces(webhook, route, path),
    ...checkCoverage(webhook, path),
    ...checkSender(webhook, route, path),
    ...checkRemoteKeys(webhook, [...path, 'jwks']),
    ...checkJwt(webhook, path),
    ...checkWeakDigest(webhook, path),
    ...checkId(webhook, path),
    ...checkOwnId(webhook, path),
    ...checkIdHeader(webhook, path),
    ...checkKinds(webhook, path),
  ];
}

/** Anyone with a captured delivery can send its content under other kinds; the gate cannot know which of them the sender uses. */
function checkKinds({ description, kinds, scheme }: WebhookConfig, path: Path): Problem[] {
  const { kind } = description;
  if (kind === undefined || kinds !== undefined) return [];
  const message = `${scheme} does not sign the kind of event (${kind.join(', ')}): with a captured delivery, anyone can invent kinds, until the real ones of its content get 503`;
  return [warning([...path, 'kinds'], message, 'list the kinds that you subscribed to, such as kinds: [orders/create]')];
}

function checkUrl({ description, publicUrl, scheme }: WebhookConfig, path: Path): Problem[] {
  const isUrlSigned = signsUrl(description);
  if (isUrlSigned && publicUrl === undefined) {
    const message = `${scheme} signs the URL, and sidegate cannot know which URL the sender used`;
    return [error(path, message, 'publicUrl: https://hooks.example.com')];
  }
  if (!isUrlSigned && !description.signed.includes('target') && publicUrl !== undefined)
    return [warning([...path, 'publicUrl'], `${scheme} does not sign the URL`, 'remove publicUrl')];
  return [];
}

function checkCredentials({ description, urlCredentials, scheme }: WebhookConfig, path: Path): Problem[] {
  if (urlCredentials === undefined || signsUrl(description)) return [];
  return [error(path, `${scheme} does not sign the URL, so nothing would use them`, 'remove urlCredentials')];
}

/** If the signature does not identify the sender, something else must. */
function* checkSender({ description, scheme, sns, dedup }: WebhookConfig, route: RouteConfig, path: Path): Iterable<Problem> {
  if (description.isSignedInContent === true) {
    const hint = 'list your topics: sns: { topics: [arn:aws:sns:...] }';
    if (sns === undefined) yield error(path, `${scheme} signs messages of every AWS account with the same keys`, hint);
    return;
  }
  if (sns !== undefined)
    yield error([...path, 'sns'], `sns applies only to the scheme aws-sns, not ${scheme}`, 'scheme: aws-sns');
  const { basic, clientCertificate } = route;
  if (description.signature !== undefined || basic !== undefined) return;
  if (clientCertificate === undefined) {
    const hint = 'add basic or clientCertificate to the route';
    yield error([...path, 'scheme'], `${scheme} has no signature, so anyone could send events`, hint);
  } else if (dedup !== 'off' && clientCertificate.names?.length !== 1) {
    const hint = 'use a route for each client, with one name in clientCertificate.names';
    yield warning(path, 'all clients that have a certificate share the IDs of events: one can use up those of another', hint);
  }
}

/** Only public keys may be published at a URL. */
function* checkRemoteKeys({ jwks, description, scheme }: WebhookConfig, path: Path): Iterable<Problem> {
  if (jwks.length === 0) return;
  const isByKeyPair = description.signature?.forms.some(({ algorithm }) => ALGORITHMS[algorithm].isAsymmetric) === true;
  if (!isByKeyPair) yield error(path, `${scheme} does not sign with a key pair`, 'configure the secret under keys');
  for (const [index, { name }] of jwks.entries())
    if (jwks.findIndex((other) => other.name === name) < index)
      yield error(
        [...path, index, 'name'],
        `two key sets are named ${name}`,
        'use a unique name; logs and metrics identify keys by it',
      );
}

function checkOwnId({ description, scheme }: WebhookConfig, path: Path): Problem[] {
  const { id, signed } = description;
  const own = findPreset(scheme)?.id;
  if (!signed.includes('id') || own === undefined || id === undefined || hasSamePlace(own, id)) return [];
  return [error([...path, 'id'], `${scheme} signs the ID in another place, so no signature would match`, 'remove id')];
}

/** Whether both are in a header, in the query and so on; senders may let users choose the name. */
function hasSamePlace(one: object, other: object): boolean {
  return Object.keys(one).some((place) => place in other);
}

/** If the ID header belongs to another sender, the route would reject all deliveries of that sender. */
function checkIdHeader({ scheme, description }: WebhookConfig, path: Path): Problem[] {
  const { id } = description;
  const base = findPreset(scheme);
  if (base === undefined || id === undefined || !('header' in id)) return [];
  const preset = findPresetOfHeader(id.header, base);
  if (preset === undefined) return [];
  const message = `${id.header} is a header of ${preset.from?.title ?? preset.name}, which does not sign as ${scheme}`;
  return [warning([...path, 'id'], message, `scheme: ${preset.name}`)];
}

/** If bytes can move between two signed parts, one signature is valid for two messages with different IDs, URLs or bodies. */
function checkPieces({ description, scheme }: WebhookConfig, { match }: RouteConfig, path: Path): Problem[] {
  const ambiguity = findAmbiguity(description);
  if (ambiguity === undefined) return [];
  const { before, after } = ambiguity;
  // Twilio's format. With an exact path, bytes can move only from and to the query (docs/presets.md).
  if (before === 'url' && after === 'form') {
    if (match.path !== undefined) return [];
    const message = `${scheme} has no separator between the URL and the form parameters, so with a pathPrefix an attacker can replay a delivery with parameters moved into the path`;
    return [error(path, message, 'match: { path: … }, with the exact path that the sender calls')];
  }
  const message = `the boundary between ${toPieceTitle(before)} and ${toPieceTitle(after)} is ambiguous in the signed bytes: an attacker can move bytes from one to the other without changing the signature`;
  return [error([...path, 'custom', 'signed'], message, toPiecesHint(description))];
}

function toPiecesHint({ signed }: SchemeDescription): string {
  return signed.includes('body') || signed.includes('bodyWithoutSignature')
    ? 'contentShape: json-object (or json-array, json-object-or-array), if the sender sends nothing else; otherwise the signature is not secure'
    : 'set a separator that none of the signed parts can contain; if the sender uses none, the signature is not secure';
}

/** Everything wrong with a token, or with how the route uses it. */
function* checkJwt(webhook: WebhookConfig, path: Path): Iterable<Problem> {
  const { description, scheme } = webhook;
  if (scheme === 'custom') yield* checkCustom(description, [...path, 'custom']);
  const { jwt } = description;
  if (jwt === undefined) return;
  yield* checkMustSet(jwt, scheme, path);
  if (jwt.chain !== undefined && webhook.jwks.length > 0)
    yield error(
      [...path, 'jwks'],
      'the key of a token is that of the certificate in its header',
      'remove jwks, and configure the root certificate under keys',
    );
  if (description.signed.length === 0)
    yield warning(
      [...path, 'scheme'],
      `the tokens of ${scheme} do not sign the body: anyone who has seen a request can send any body with its token until that expires`,
      'let the app read what it acts on from the API of the sender, and use the route only over TLS',
    );
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

function* checkCustom({ signature, jwt, id, timestamp, signed }: SchemeDescription, path: Path): Iterable<Problem> {
  const isToken = signature?.encoding === 'jwt';
  if (isToken !== (jwt !== undefined))
    yield error([...path, 'signature', 'encoding'], 'encoding: jwt and jwt require each other', 'encoding: jwt, with jwt: {}');
  const readsClaim = (id !== undefined && 'claim' in id) || (timestamp !== undefined && 'claim' in timestamp.from);
  if (readsClaim && jwt === undefined)
    yield error(path, 'only a JSON Web Token has claims', 'use { header: NAME } or { json: PATH }');
  if (jwt === undefined) return;
  if (timestamp !== undefined && !('claim' in timestamp.from))
    yield error([...path, 'timestamp'], 'the time of a JSON Web Token must be a claim', 'timestamp: { claim: iat }');
  const forms = signature?.forms ?? [];
  const unknown = forms.find(({ algorithm }) => JWS_NAMES[algorithm] === undefined);
  if (unknown !== undefined)
    yield error(
      [...path, 'signature', 'forms'],
      `JSON Web Tokens are not signed by ${unknown.algorithm}`,
      'use hmac-sha256 for HS256, rsa-sha256 for RS256',
    );
  if (forms.some(({ prefix }) => prefix !== forms[0]?.prefix) || signature?.list !== undefined)
    yield error(
      [...path, 'signature'],
      'a header has one token, after one prefix',
      'remove list, and use the same prefix in all forms',
    );
  if (signed.length === 0 && jwt.requiresExpiry === undefined)
    yield error(
      [...path, 'jwt', 'requiresExpiry'],
      'a token that signs neither the body nor its expiry is a password that everyone who saw it can use',
      'requiresExpiry: true, or bodyHash if the token has a digest of the body',
    );
}

// Finds the preset that an operator probably wants, from the names and headers in the config.

/** Names that are too short or too common as words to identify a sender. */
const COMMON_WORDS: ReadonlySet<string> = new Set([
  'courier',
  'cursor',
  'front',
  'knock',
  'line',
  'meta',
  'persona',
  'render',
  'replicate',
  'segment',
  'tally',
  'x',
]);
/** Headers that many senders use, so that they identify none. */
const COMMON_HEADERS: ReadonlySet<string> = new Set(['request-id', 'x-webhook-id']);

/** The preset whose sender is mentioned in one of `texts`, such as `GITHUB_SECRET` or `/hooks/github`; the longest name wins. */
export function findNamedPreset(texts: readonly string[], current: string): SchemeDescription | undefined {
  const words = new Set(texts.flatMap((text) => text.toLowerCase().split(/[^a-z0-9]+/)));
  const named = PRESETS.filter(
    ({ name, from }) =>
      from !== undefined && name !== current && !COMMON_WORDS.has(name) && name.split('-').every((part) => words.has(part)),
  );
  return named.sort((a, b) => b.name.length - a.name.length)[0];
}

/** The first preset that reads its signature or ID from this header; undefined if the `current` scheme uses the header itself. */
export function findPresetOfHeader(header: string, current: SchemeDescription): SchemeDescription | undefined {
  const name = header.toLowerCase();
  if (COMMON_HEADERS.has(name) || toHeaders(current).includes(name)) return undefined;
  // The ID header first: GitHub and Meta use the same signature header.
  return (
    PRESETS.find((preset) => toHeaders(preset).at(-1) === name) ?? PRESETS.find((preset) => toHeaders(preset).includes(name))
  );
}

function toHeaders({ signature, id }: SchemeDescription): string[] {
  return [signature?.header, id !== undefined && 'header' in id ? id.header : undefined].flatMap((header) =>
    header === undefined ? [] : [header.toLowerCase()],
  );
}
