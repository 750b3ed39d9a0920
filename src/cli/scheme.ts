/** `sidegate scheme`: prints the page of a sender, or its preset as a custom scheme, to copy and edit. */

import { stringify } from 'yaml';
import { formatDuration } from '../config/schema/scalars.ts';
import { usageError } from '../core/errors.ts';
import { PRESETS } from '../verify/presets/catalogue.ts';
import { toStatuses } from '../verify/presets/senders.ts';
import { ALGORITHMS } from '../verify/schemes/algorithms.ts';
import { signsUrl } from '../verify/schemes/coverage.ts';
import type { SchemeDescription, Tolerance } from '../verify/schemes/description.ts';
import type { JwtDescription } from '../verify/schemes/key-description.ts';
import { toScheme } from './input.ts';
import { EXIT, type Io } from './io.ts';
import { isOfSender, renderSenderPage, toNeededSettings } from './sender-page.ts';

/** Prints the page of the preset's sender; with `custom`, the preset as a custom scheme. Without a name, the names of all that can be printed so. */
export function printScheme(name: string | undefined, { custom = false }: { readonly custom?: boolean }, io: Io): number {
  if (name === undefined) {
    const known = PRESETS.filter((preset) => !custom || findHindrance(preset) === undefined);
    io.stdout(known.map((preset) => `${preset.name}\n`).join(''));
    return EXIT.ok;
  }
  const { description } = toScheme(name, name);
  if (!custom) {
    if (!isOfSender(description)) throw usageError(`${name} has no page, because no single sender uses it: add --custom`);
    io.stdout(renderSenderPage(description, 'docs/'));
    return EXIT.ok;
  }
  const hindrance = findHindrance(description);
  if (hindrance !== undefined) throw usageError(`${name} cannot be written as a custom scheme: ${hindrance}`);
  io.stdout(toYaml(description));
  return EXIT.ok;
}

/** Why a custom scheme cannot express the preset at all; undefined if it can. */
function findHindrance({ signature, isSignedInContent }: SchemeDescription): string | undefined {
  if (isSignedInContent === true) return 'the signature is in the body, and its certificate at a URL';
  if (signature === undefined) return 'nothing is signed';
  return signature.content === undefined ? undefined : 'the tokens are in the body';
}

function toYaml(description: SchemeDescription): string {
  const { name, from } = description;
  const lost = listLost(description);
  const comments = [
    ...(from === undefined
      ? [`The preset ${name}.`]
      : [`The preset ${name}: ${from.title}, ${from.docs}`, `The key is ${from.key}.`]),
    ...(lost.length === 0 ? [] : [`A custom scheme does not have ${lost.join('; ')}.`]),
    ...(description.signed.length === 0 && description.id === undefined
      ? ['Say where the ID is, such as id: { json: $.id }, or set dedup: off.']
      : []),
  ];
  return `${comments.map((line) => `# ${line}\n`).join('')}${stringify({ webhook: toWebhook(description) }, { lineWidth: 0 })}`;
}

/** Lists the parts of the preset that no field of a custom scheme expresses. */
function listLost(description: SchemeDescription): string[] {
  const { name, twins = {}, acceptsTwins, leastSecretBytes, secret } = description;
  const others = Object.values(twins).join(', ');
  return [
    ...(acceptsTwins === true ? [`the alternative headers ${others}`] : []),
    ...(others !== '' && acceptsTwins === undefined ? [`the comparison with ${others}, which must have the same values`] : []),
    ...(toStatuses(name).size > 0 ? ['the response statuses that this sender needs'] : []),
    ...(secret.transform !== undefined ? ['the transformation of its secret'] : []),
    ...(leastSecretBytes !== undefined || secret.usualStart !== undefined ? ['its warnings about unusual secrets'] : []),
  ];
}

/** The `webhook` section that verifies like the preset. */
function toWebhook(description: SchemeDescription): object {
  const { handshake, tolerance, timestamp, contentTypes } = description;
  return {
    scheme: 'custom',
    custom: toCustom(description),
    ...(timestamp !== undefined && { tolerance: toToleranceText(tolerance) }),
    contentTypes,
    ...(handshake !== undefined && { handshake: { type: handshake } }),
    ...(signsUrl(description) && { publicUrl: 'https://hooks.example.com' }),
    ...toNeededSettings(description),
    ...toKeys(description),
  };
}

/** The keys of a route, unless the sender publishes them. */
function toKeys({ name, certificate, jwksUrl }: SchemeDescription): object {
  if (certificate !== undefined) return {};
  if (jwksUrl !== undefined) return { jwks: [{ name, url: jwksUrl }] };
  return { keys: [{ name: 'current', secret: { env: `${name.toUpperCase().replaceAll('-', '_')}_SECRET` } }] };
}

/** The fields in the order in which a delivery is verified; fields that no custom scheme has are omitted. */
function toCustom(description: SchemeDescription): object {
  const { signature, signed, separator, timestamp, id, kind, secret, publicKey, jwt, unsignedBody, onlySignedFields } =
    description;
  const { encoding, prefix, digest } = secret;
  const { header, ...others } = signature ?? {};
  const isByKeyPair = signature?.forms.some(({ algorithm }) => ALGORITHMS[algorithm].isAsymmetric) === true;
  return {
    signature: header === '' ? others : signature,
    ...(jwt === undefined && { signed }),
    ...(unsignedBody !== undefined && { unsignedBody }),
    ...(onlySignedFields !== undefined && { onlySignedFields }),
    ...(separator !== '' && { separator }),
    ...(timestamp !== undefined && { timestamp: { ...timestamp.from, unit: timestamp.unit } }),
    ...(id !== undefined && { id }),
    ...(kind !== undefined && { kind }),
    secret: { encoding, ...(prefix !== undefined && { prefix }), ...(digest !== undefined && { digest }) },
    ...(isByKeyPair && publicKey !== undefined && { publicKey }),
    ...toUnusual(description),
  };
}

/** The fields that few schemes have; those that a scheme lacks are not printed. */
function toUnusual({
  perAttempt,
  comparedHeaders,
  certificate,
  jwt,
  contentShape,
  contentField,
  isPortOptional,
  contentDigestParameter,
  decodedInUrl,
}: SchemeDescription): object {
  const own = {
    perAttempt,
    comparedHeaders,
    certificate,
    contentShape,
    contentField,
    isPortOptional,
    contentDigestParameter,
    decodedInUrl,
  };
  return { ...own, jwt: jwt === undefined ? undefined : toCustomJwt(jwt) };
}

/** Without what a route sets. */
function toCustomJwt({ content, issuers, audienceAt, bodyHash, requiresExpiry, chain }: JwtDescription): object {
  return {
    ...(content !== undefined && { content }),
    ...(issuers !== undefined && { issuers }),
    ...(audienceAt !== undefined && { audienceAt }),
    ...(bodyHash !== undefined && { bodyHash }),
    ...(requiresExpiry !== undefined && { requiresExpiry }),
    ...(chain !== undefined && { chain }),
  };
}

function toToleranceText({ past, future }: Tolerance): object | string {
  return past === future ? formatDuration(past) : { past: formatDuration(past), future: formatDuration(future) };
}
