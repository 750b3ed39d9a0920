/** Whether a route's scheme can be relied on: what is not signed proves nothing. */
import { ALGORITHMS } from '../../auth/schemes/algorithms.ts';
import { findPreset } from '../../auth/schemes/catalogue.ts';
import type { SchemeDescription } from '../../auth/schemes/description.ts';
import { findAmbiguity } from '../../auth/schemes/layout.ts';
import type { RouteConfig, WebhookConfig } from '../schema/config.ts';
import { error, type Path, type Rating, warning } from './rating.ts';
import { findPresetOfHeader } from './suggest-preset.ts';

/** Everything wrong with the scheme, or with how the route uses it. */
export function checkScheme(webhook: WebhookConfig, route: RouteConfig, path: Path): Rating[] {
  const { description, scheme } = webhook;
  return [
    ...(scheme === 'custom' ? checkDescription(description, [...path, 'custom']) : []),
    ...checkUrl(webhook, path),
    ...checkPieces(webhook, route, path),
    ...checkSender(webhook, route, path),
    ...checkRemoteKeys(webhook, [...path, 'jwks']),
    ...checkId(webhook, path),
    ...checkIdHeader(webhook, path),
  ];
}

function checkUrl({ description, publicUrl, scheme }: WebhookConfig, path: Path): Rating[] {
  const signsUrl = description.signed.includes('url');
  if (signsUrl && publicUrl === undefined) {
    const message = `${scheme} signs the URL, and the gate cannot know by what name the sender called it`;
    return [error(path, message, 'publicUrl: https://hooks.example.com')];
  }
  if (!signsUrl && publicUrl !== undefined)
    return [warning([...path, 'publicUrl'], `${scheme} does not sign the URL`, 'leave publicUrl out')];
  return [];
}

/** Without a signature of the sender's own, something else must tell who it is. */
function checkSender({ description, scheme, sns }: WebhookConfig, route: RouteConfig, path: Path): Rating[] {
  if (description.isSignedInContent === true) {
    const hint = 'name your topics: sns: { topics: [arn:aws:sns:...] }';
    return sns === undefined ? [error(path, `${scheme} signs for whoever has an account there`, hint)] : [];
  }
  const found = sns === undefined ? [] : [error([...path, 'sns'], `${scheme} has no topics`, 'scheme: aws-sns')];
  if (description.signature === undefined && route.basic === undefined && route.clientCertificate === undefined)
    found.push(error([...path, 'scheme'], `with ${scheme} anybody could send`, 'give the route basic or clientCertificate'));
  return found;
}

/** Only public keys may lie where everybody can fetch them. */
function checkRemoteKeys({ jwks, description, scheme }: WebhookConfig, path: Path): Rating[] {
  if (jwks.length === 0) return [];
  const isByKeyPair = description.signature?.forms.some(({ algorithm }) => ALGORITHMS[algorithm].isAsymmetric) === true;
  const found = isByKeyPair ? [] : [error(path, `${scheme} does not sign by a key pair`, 'give the secret under keys')];
  for (const [index, { name }] of jwks.entries())
    if (jwks.findIndex((other) => other.name === name) < index)
      found.push(error([...path, index, 'name'], `two key sets are named ${name}`, 'names tell them apart in logs and metrics'));
  return found;
}

function checkId({ description, dedup, scheme }: WebhookConfig, path: Path): Rating[] {
  const { id, signed } = description;
  if (signed.includes('id') && (id === undefined || !('header' in id)))
    return [error([...path, 'id'], 'the id is signed as a header has it', 'id: { header: NAME }')];
  if (signed.length > 0 || id !== undefined || dedup === 'off') return [];
  const hint = 'say where it stands, id: { json: $.id } or id: { header: NAME }, or dedup: off';
  return [error(path, `${scheme} has no id to tell repeats by`, hint)];
}

/** A header of another sender: the route would reject all that this sender delivers. */
function checkIdHeader({ scheme, description }: WebhookConfig, path: Path): Rating[] {
  const { id } = description;
  const base = findPreset(scheme);
  if (base === undefined || id === undefined || !('header' in id)) return [];
  const preset = findPresetOfHeader(id.header, base);
  if (preset === undefined) return [];
  const message = `${id.header} is a header of ${preset.from?.title ?? preset.name}, which does not sign as ${scheme}`;
  return [warning([...path, 'id'], message, `scheme: ${preset.name}`)];
}

function checkDescription(description: SchemeDescription, path: Path): Rating[] {
  const found: Rating[] = [];
  const { signed, signature, timestamp } = description;
  const isToken = signature?.forms.some(({ algorithm }) => algorithm === 'token') === true;
  const isContentSigned = signed.includes('body') || signed.includes('form');
  if (isToken !== (signature?.encoding === 'text'))
    found.push(
      error([...path, 'signature', 'encoding'], 'a token is text, and only a token is', 'encoding: text, with algorithm: token'),
    );
  if (isToken && signed.length > 0) found.push(error([...path, 'signed'], 'a token signs nothing', 'signed: []'));
  if (!isToken && !isContentSigned)
    found.push(error([...path, 'signed'], 'the content is not signed, so anybody could change it', 'signed: [..., body]'));
  if (signed.includes('timestamp') && (timestamp === undefined || 'json' in timestamp.from))
    found.push(
      error(
        [...path, 'signed'],
        'a timestamp is signed that no header holds',
        'timestamp: { header: NAME } or { entry: PREFIX }',
      ),
    );
  if (timestamp !== undefined && !('json' in timestamp.from ? isContentSigned : signed.includes('timestamp')))
    found.push(
      error([...path, 'timestamp'], 'the timestamp is not signed, so a replay could carry a new one', 'leave timestamp out'),
    );
  if (timestamp !== undefined && 'entry' in timestamp.from && signature?.list === undefined)
    found.push(error([...path, 'signature', 'list'], 'the timestamp is an entry of a header that is no list', 'list: ","'));
  return [...found, ...checkKinds(description, [...path, 'signature', 'forms'])];
}

/** Bytes that can move between two pieces give one signature to two messages: another id, another URL, another body. */
function checkPieces({ description, scheme }: WebhookConfig, { match }: RouteConfig, path: Path): Rating[] {
  const ambiguity = findAmbiguity(description);
  if (ambiguity === undefined) return [];
  const { before, after } = ambiguity;
  // Twilio's own form. An exact path leaves only the query to move bytes to and from (docs/presets.md).
  if (before === 'url' && after === 'form') {
    if (match.path !== undefined) return [];
    const message = `${scheme} puts nothing between the URL and the parameters of a form, so that under a pathPrefix a replay can move parameters into the path`;
    return [error(path, message, 'match: { path: … }, the exact path that the sender calls')];
  }
  const message = `the ${before} and the ${after} cannot be told apart in what is signed: bytes can move from one to the other under one signature`;
  return [error([...path, 'custom', 'signed'], message, toPiecesHint(description))];
}

function toPiecesHint({ signed }: SchemeDescription): string {
  return signed.includes('body')
    ? 'contentShape: json-object (or json-array, json-object-or-array), if the sender sends nothing else; otherwise this signature cannot be relied on'
    : 'a separator that none of the pieces can contain; where the sender has none, this signature cannot be relied on';
}

/** Keys are told by what they are, so one scheme has one algorithm for secrets and one for key pairs at most. */
function checkKinds({ signature }: SchemeDescription, path: Path): Rating[] {
  const algorithms = new Set(signature?.forms.map(({ algorithm }) => algorithm) ?? []);
  const asymmetric = [...algorithms].filter((algorithm) => ALGORITHMS[algorithm].isAsymmetric);
  if (asymmetric.length <= 1 && algorithms.size - asymmetric.length <= 1) return [];
  return [error(path, 'two algorithms take the same kind of key', 'one for secrets and one for key pairs at most')];
}
