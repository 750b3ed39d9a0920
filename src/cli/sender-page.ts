/** The page of a sender with a preset, in Markdown: where its secret is, the config, what is verified, how it behaves, how to test it. */
import { stringify } from 'yaml';
import { repeatsBytes } from '../config/schema/retention.ts';
import { REFUSALS, type RefusalCode } from '../core/refusal.ts';
import { HANDSHAKES } from '../verify/handshakes/catalogue.ts';
import { SENDERS, type SenderProfile, toStatuses } from '../verify/presets/senders.ts';
import { ALGORITHMS } from '../verify/schemes/algorithms.ts';
import { coversBody, coversQuery, signsUrl, TIMESTAMP_FORMATS } from '../verify/schemes/coverage.ts';
import {
  type Algorithm,
  isToken,
  type Piece,
  type SchemeDescription,
  type SignatureDescription,
  type Tolerance,
} from '../verify/schemes/description.ts';
import type { JwtDescription } from '../verify/schemes/key-description.ts';
import { JWS_NAMES } from '../verify/schemes/public-keys.ts';
import notes from './sender-notes.json' with { type: 'json' };

/** A preset of a sender, unlike `bearer` and others that many senders use. */
type SenderPreset = SchemeDescription & { readonly from: NonNullable<SchemeDescription['from']> };

export function isOfSender(preset: SchemeDescription): preset is SenderPreset {
  return preset.from !== undefined;
}

/** Facts that no preset contains. */
interface SenderNotes {
  /** Where the secret is at the sender; default: `from.key` of the preset alone. */
  readonly where?: string;
  /** The example has a token for the handshake, which the sender does not need. */
  readonly hasVerifyToken?: boolean;
  /** Settings of `webhook` that the example needs besides the scheme and the key. */
  readonly webhook?: object;
  /** The same, with values to replace: each text is one. */
  readonly example?: object;
  /** Unsigned parts that the preset does not mention. */
  readonly unsigned?: string;
  readonly problems?: readonly string[];
  /** Statements about retries that no document of the sender was found for. */
  readonly unconfirmed?: string;
  /** How the sender itself sends a test. */
  readonly test?: string;
  /** A how-to guide, relative to docs/. */
  readonly guide?: string;
}

/** How a preset says that its sender has no secret, and why. */
const NO_SECRET = /^none: (.*)$/;

/** By the name of the preset. */
export const SENDER_NOTES: Readonly<Record<string, SenderNotes>> = notes;

const toTexts = (value: unknown): string[] => (typeof value === 'string' ? [value] : Object.values(value ?? {}).flatMap(toTexts));
const [PUBLIC_URL, RECEIVER_ID, VALUE] = ['https://hooks.example.com', 'ID-OF-THE-WEBHOOK', 'VALUE'];
/** A route contains them where only its user knows the value. */
export const PLACEHOLDERS: ReadonlySet<string> = new Set([
  PUBLIC_URL,
  RECEIVER_ID,
  VALUE,
  ...Object.values(SENDER_NOTES).flatMap(({ example }) => toTexts(example)),
]);

const ALGORITHM_TITLES: Readonly<Record<Algorithm, string>> = {
  'hmac-sha1': 'HMAC-SHA1',
  'hmac-sha256': 'HMAC-SHA256',
  'hmac-sha384': 'HMAC-SHA384',
  'hmac-sha512': 'HMAC-SHA512',
  'sha256-secret-first': 'SHA-256 of secret and message',
  'sha256-secret-last': 'SHA-256 of message and secret',
  ed25519: 'Ed25519',
  'ecdsa-p256': 'ECDSA P-256',
  'rsa-sha256': 'RSA (PKCS #1 v1.5) with SHA-256',
  'rsa-sha512': 'RSA (PKCS #1 v1.5) with SHA-512',
  'rsa-pss-sha256': 'RSA-PSS with SHA-256',
  'rsa-pss-sha512': 'RSA-PSS with SHA-512',
  token: 'the token itself',
};

/** Parts whose names are not the words of the page. */
const PIECES: Readonly<Record<string, string>> = { timestamp: 'time', crc32: 'CRC-32 of the body', receiverId: 'receiverId' };

/** Renders the page; `docs`: the path of docs/, for its links. */
export function renderSenderPage(preset: SenderPreset, docs: string): string {
  const { name, from } = preset;
  const own = SENDER_NOTES[name] ?? {};
  const parts = [
    `# ${from.title}`,
    `\`scheme: ${name}\`. The sender documents its signature [here](${from.docs}).${toGuide(own)}`,
    '## Set it up',
    toSecret(preset, own),
    `\`\`\`yaml\n${stringify(toConfig(preset), { lineWidth: 0 })}\`\`\``,
    ...toSettings(preset),
    '## Verified parts',
    toVerified(preset),
    toUnsigned(preset, own),
    '## How the sender behaves',
    toBehavior(preset, own),
    ...(own.problems === undefined ? [] : ['## Known problems', own.problems.map((text) => `- ${text.trim()}`).join('\n')]),
    '## Test it',
    toTest(preset, own),
  ];
  return `${parts.join('\n\n')}\n`.replaceAll('](../', `](${docs}`);
}

function toGuide({ guide }: SenderNotes): string {
  return guide === undefined ? '' : ` A [guide](../${guide}) shows each step.`;
}

function toSecret({ from }: SenderPreset, { where }: SenderNotes): string {
  const [, reason] = NO_SECRET.exec(from.key) ?? [];
  const text = reason === undefined ? `The key is ${from.key}.` : `No secret is needed: ${reason}.`;
  return where === undefined ? text : `${text} ${where.trim()}`;
}

/** The config that the page shows; a test loads it. */
function toConfig(preset: SenderPreset): object {
  const toVariable = (what: SenderSecret): string => `${preset.name}-${what}`.toUpperCase().replaceAll('-', '_');
  return { routes: [toSenderRoute(preset, (what) => ({ env: toVariable(what) }), 'http://127.0.0.1:3000')] };
}

/** A route reads it from a file or a variable: the secret, the public key of a key pair, or the token of a handshake. */
export type SenderSecret = 'secret' | 'public-key' | 'verify-token';

/** A route of a config. */
interface SenderRoute {
  readonly name: string;
  readonly match: { readonly path: string };
  readonly upstream: string | undefined;
  readonly webhook: object;
}

/** A route for a sender, with values to replace; `toSource`: where its secrets are. */
export function toSenderRoute(
  preset: SchemeDescription,
  toSource: (what: SenderSecret) => object,
  upstream?: string,
): SenderRoute {
  const { name, handshake, signature, certificate, jwksUrl } = preset;
  const {
    hasVerifyToken = handshake !== undefined && HANDSHAKES[handshake].token === 'needed',
    webhook,
    example,
  } = SENDER_NOTES[name] ?? {};
  const hasKeys = signature !== undefined && certificate === undefined && jwksUrl === undefined;
  return {
    name,
    match: { path: `/hooks/${name}` },
    upstream,
    webhook: {
      scheme: name,
      ...(signsUrl(preset) && { publicUrl: PUBLIC_URL }),
      ...toNeededSettings(preset),
      ...(hasKeys && { keys: [{ name: 'current', secret: toSource(isByKeyPair(preset) ? 'public-key' : 'secret') }] }),
      ...(hasVerifyToken && { handshake: { verifyToken: toSource('verify-token') } }),
      ...example,
      ...webhook,
    },
  };
}

/** The settings that a route with the scheme must have beside its keys, with values to replace. */
export function toNeededSettings(description: SchemeDescription): object {
  const { signed, jwt } = description;
  return {
    ...(signed.includes('receiverId') && { receiverId: RECEIVER_ID }),
    ...(signed.includes('crc32') && { allowWeakDigest: true }),
    ...(jwt !== undefined && toAcceptedTokens(jwt)),
    ...(repeatsBytes({ description }) && { dedup: 'off' }),
  };
}

/** Which tokens a route accepts. */
function toAcceptedTokens({ mustSet = [], claims = {} }: JwtDescription): object {
  const needed = mustSet.filter((each) => each !== 'audience').map((path) => [path, [VALUE]]);
  const accepted = { ...claims, ...Object.fromEntries(needed) };
  const hasClaims = Object.keys(accepted).length > 0;
  const hasAudience = mustSet.includes('audience');
  if (!hasClaims && !hasAudience) return {};
  return { jwt: { ...(hasAudience && { audience: [VALUE] }), ...(hasClaims && { claims: accepted }) } };
}

function isByKeyPair({ signature }: SchemeDescription): boolean {
  return signature?.forms.every(({ algorithm }) => ALGORITHMS[algorithm].isAsymmetric) === true;
}

function toSettings(preset: SenderPreset): string[] {
  const { handshake, name, jwt, certificate } = preset;
  const lines = [
    ...(signsUrl(preset)
      ? [
          '`publicUrl` is the URL that the sender calls, without the path of the request. A proxy in front must not rewrite the path or the query.',
        ]
      : []),
    ...(jwt === undefined && certificate === undefined
      ? []
      : ['[RSA keys, certificates and JSON Web Tokens](../key-pairs.md) explains what is verified, and what is not.']),
    ...(handshake === undefined
      ? []
      : [`sidegate answers the sender's verification of the URL itself: [handshake \`${handshake}\`](../handshakes.md).`]),
    ...(SENDERS[name]?.disabledBy === undefined ? [] : ['sidegate never sends a status that disables the endpoint.']),
  ];
  return lines.length === 0 ? [] : [lines.join(' ')];
}

function toVerified(preset: SenderPreset): string {
  const rows = [
    ['signature', toSignature(preset)],
    ['signed', toSigned(preset)],
    ['time, tolerance', toTime(preset)],
    ['ID', preset.id === undefined ? 'none; the digest of the signed bytes identifies the event' : toId(preset)],
    ['content types', preset.contentTypes.map((type) => `\`${type}\``).join(', ')],
    ...(preset.methods === undefined
      ? []
      : [['methods', `${preset.methods.join(', ')}; a route accepts POST, and others if \`match.methods\` lists them`]]),
  ];
  return `| what | how |\n| --- | --- |\n${rows.map((cells) => `| ${cells.join(' | ')} |`).join('\n')}`;
}

function toUnsigned(preset: SenderPreset, { unsigned }: SenderNotes): string {
  const { signature, kind = [], timestamp, unsignedBody } = preset;
  const isBodyUnsigned = signature !== undefined && isToken(signature);
  const lines = [
    isBodyUnsigned
      ? 'Nothing is signed: anyone who knows the secret can send any body.'
      : unsignedBody === true
        ? 'Only the parts of the body in the table are signed. Anyone who captured a delivery that the app has not handled yet can change the rest, so the app should ask the sender for what matters. Headers are not signed.'
        : 'Headers are not signed, except where the table says so. An app must not rely on the others: anyone who captured a delivery can change them.',
    ...(coversQuery(preset) ? [] : [toQueryRule(preset)]),
    ...(kind.length === 0
      ? []
      : [
          `${kind.map((name) => `\`${name}\``).join(', ')} distinguishes kinds of events and is not signed. List the kinds that you subscribed to in \`kinds\`; see [Configuration](../config.md).`,
        ]),
    ...(timestamp === undefined && !isBodyUnsigned
      ? ['No time is signed: a captured delivery can be repeated once its ID is forgotten (`dedup.retention`).']
      : []),
    ...(unsigned === undefined ? [] : [unsigned.trim()]),
  ];
  return lines.map((line) => `- ${line}`).join('\n');
}

function toQueryRule({ handshake, jwt }: SenderPreset): string {
  if (jwt?.bodyHash?.query !== undefined) return 'Only requests by GET may have a query, which is then signed.';
  return handshake !== undefined && HANDSHAKES[handshake].parameter !== undefined
    ? 'The URL is not signed. A delivery may have the token of the handshake as its query, and no other.'
    : 'The URL is not signed, so a delivery with a query is rejected (`allowQuery`).';
}

function toBehavior({ name }: SenderPreset, { unconfirmed }: SenderNotes): string {
  const profile = SENDERS[name];
  const doubts = unconfirmed === undefined ? [] : [`**Not confirmed** by a public document of the sender: ${unconfirmed.trim()}`];
  if (profile === undefined)
    return [
      'Its documentation does not say how it interprets responses. sidegate assumes that a 2xx counts as delivered, and that everything else is retried. With `ack: onAccept` it responds with 200, which is the safest.',
      ...doubts,
    ].join('\n\n');
  const { retries, givesUpOn = [], disabledBy = [], waitsSeconds, schedule } = profile;
  const changes = toChanges(name);
  const lines = [
    `Counts as delivered: ${toAccepted(profile) || 'any 2xx'}.`,
    ...(retries === undefined ? [] : [`Retries: ${RETRIES[retries]}.`]),
    ...(schedule === undefined ? [] : [`Schedule: ${schedule}.`]),
    ...(givesUpOn.length === 0 ? [] : [`Never retries after ${givesUpOn.join(', ')}.`]),
    ...(disabledBy.length === 0 ? [] : [`Disables the endpoint after ${disabledBy.join(', ')}.`]),
    ...(waitsSeconds === undefined ? [] : [`Waits ${waitsSeconds} seconds for the response.`]),
    ...doubts,
    ...(changes === '' ? [] : [`sidegate sends it other statuses than the catalogue: ${changes} ([why](../senders.md)).`]),
  ];
  return lines.map((line) => `- ${line}`).join('\n');
}

/** The files for a sender whose token is the body. */
function toTokenTest({ chain }: JwtDescription): string {
  const secret =
    chain === undefined
      ? ''
      : ' The certificates of the chain follow the private key in its file, that of the signer first; the key of the route is the root of that chain.';
  return `\`event.json\` has the claims of the token, which \`sidegate send\` signs and sends in place of the file.${secret}`;
}

function toTest(preset: SenderPreset, { test }: SenderNotes): string {
  const { name, signature, isSignedInContent, jwt, contentTypes } = preset;
  const own = test === undefined ? [] : [test.trim()];
  if (signature === undefined || isSignedInContent === true || signature.content !== undefined)
    return [
      ...own,
      'sidegate cannot sign for this sender. Run a captured request through the config with [`sidegate test`](../testing.md).',
    ].join('\n\n');
  const file = contentTypes.some((type) => type.endsWith('json')) ? 'event.json' : 'event.txt';
  const command = `sidegate send http://127.0.0.1:8080/hooks/${name} ${file} --config gate.yaml --route ${name}`;
  const sign = isByKeyPair(preset)
    ? `The sender alone has the private key. With a test key pair, whose public key is under \`keys\` of the route ([how](../key-pairs.md)), this sends a signed delivery:\n\n\`\`\`sh\n${command} --secret-file private-key\n\`\`\``
    : `This signs a delivery with the key of the route and sends it:\n\n\`\`\`sh\n${command}\n\`\`\``;
  return [
    ...own,
    jwt?.content === undefined
      ? `\`${file}\` is the body of an event as the sender sends it, including any signed fields listed above.`
      : toTokenTest(jwt),
    sign,
    `\`sidegate verify\` checks a captured delivery, and [\`sidegate explain\`](../explain.md) says why one fails.`,
  ].join('\n\n');
}

/** Which responses count as delivered; empty for any 2xx. */
export function toAccepted({ acknowledgedBy = [], acknowledgement }: SenderProfile): string {
  const statuses = acknowledgedBy.join(', ');
  if (acknowledgement === undefined) return statuses;
  const content = acknowledgement === '' ? 'without content' : `with the text \`${acknowledgement}\``;
  return `${statuses === '' ? '2xx' : statuses} ${content}`;
}

/** Which failures a sender retries, in words. */
export const RETRIES: Readonly<Record<NonNullable<SenderProfile['retries']>, string>> = {
  failures: 'after anything but a 2xx',
  'server-errors': 'after 429 and 5xx',
  nothing: 'never',
};

/** Grouped by status, because one sender often needs the same status for many codes. */
export function toChanges(name: string): string {
  const byChange = new Map<string, RefusalCode[]>();
  for (const [code, status] of toStatuses(name)) {
    // The status that the sender expects for its own verification request.
    if (code === 'handshake') continue;
    const change = `${REFUSALS[code].status} → ${status}`;
    byChange.set(change, [...(byChange.get(change) ?? []), code]);
  }
  return [...byChange].map(([change, codes]) => `${change} (${codes.map((code) => `\`${code}\``).join(', ')})`).join('; ');
}

/** Where the signature is, and its algorithms. */
export function toSignature({ signature, jwt }: SchemeDescription): string {
  if (signature === undefined) return 'in the content';
  if (jwt !== undefined) return toToken(signature, jwt);
  if (signature.content !== undefined) return `\`${signature.content}\`: ${ALGORITHM_TITLES.token}`;
  const forms = signature.forms.map(({ prefix, algorithm }) => {
    const encoding = signature.encoding === 'text' ? '' : ` in ${signature.encoding}`;
    return `${prefix === '' ? '' : `\`${prefix}\` and `}${ALGORITHM_TITLES[algorithm]}${encoding}`;
  });
  const list = signature.list === undefined ? '' : `, several by ${signature.list === ' ' ? 'a space' : `\`${signature.list}\``}`;
  return `${toSignaturePlace(signature)}: ${forms.join(', or ')}${list}`;
}

function toSignaturePlace({ header, moreHeaders = [], query, json, form, path }: SignatureDescription): string {
  const last = moreHeaders.at(-1);
  if (last !== undefined) return moreHeaders.length > 1 ? `\`${header}\` to \`${last}\`` : `\`${header}\`, \`${last}\``;
  if (header !== '') return `\`${header}\``;
  return toPlace({
    ...(query !== undefined && { query }),
    ...(json !== undefined && { json }),
    ...(form !== undefined && { form, path }),
  });
}

function toToken({ header, forms }: SignatureDescription, { content, chain }: JwtDescription): string {
  const names = forms
    .map(({ prefix, algorithm }) => `${prefix === '' ? '' : `\`${prefix}\` and `}${JWS_NAMES[algorithm]}`)
    .join(', or ');
  const place = content === undefined ? `\`${header}\`` : content === '$' ? 'the body' : `\`${content}\` in the body`;
  return `${place}: a JSON Web Token, ${names}${chain === undefined ? '' : ', with its chain of certificates'}`;
}

function toPlace(place: object): string {
  const { header, entry, query, json, form, path, xml, claim } = place as Readonly<Record<string, string | undefined>>;
  if ('first' in place) return 'the first entry in the signature header';
  if (entry !== undefined) return `\`${entry}\` in the signature header`;
  if (query !== undefined) return `the parameter \`${query}\``;
  if (claim !== undefined) return `the claim \`${claim}\``;
  if (form !== undefined) return path === undefined ? `the form field \`${form}\`` : `\`${path}\` in the form field \`${form}\``;
  return `\`${header ?? json ?? xml}\``;
}

function toPiece(piece: Piece): string {
  if (typeof piece === 'string') return `*${PIECES[piece] ?? piece}*`;
  if ('text' in piece) return `\`${piece.text}\``;
  if ('headersIn' in piece) return `the headers in \`${piece.headersIn}\``;
  if ('sortedForm' in piece) return toSortedForm(piece.sortedForm);
  return 'bodySha256' in piece ? 'the SHA-256 of the *body*' : toPlace(piece);
}

function toSortedForm(unsigned: Readonly<Record<string, string>>): string {
  const fixed = Object.entries(unsigned).map(([name, value]) => ` and \`${name}\` (which must be \`${value}\`)`);
  return `all form fields but the signature${fixed.join('')}, sorted by name, as \`name=value\` with \`&\` between them`;
}

function toHashed({ bodyHash }: JwtDescription): string {
  if (bodyHash === undefined) return '*body*';
  return `the digest of *body*${bodyHash.query === undefined ? '' : ', by GET of the parameters'}, in \`${bodyHash.claim}\``;
}

/** The signed parts, in order. */
export function toSigned(description: SchemeDescription): string {
  const { signed, separator, contentDigestParameter, contentField, signature, contentShape, unsignedBody, jwt } = description;
  if (signature === undefined) return 'fields of the content';
  if (signed.length === 0) return 'nothing';
  if (jwt !== undefined) return toHashed(jwt);
  // A bar would end the cell.
  const text = signed
    .map(toPiece)
    .join(separator === '' ? ' · ' : ` \`${separator.replaceAll('\n', '\\n').replaceAll('|', '\\|')}\` `);
  const digest =
    contentDigestParameter === undefined ? '' : `, or *url* with the content's SHA-256 as \`${contentDigestParameter}\``;
  const shape = contentShape === undefined ? '' : `; the body a ${contentShape.replace('json-', 'JSON ').replaceAll('-', ' ')}`;
  const field = contentField === undefined ? '' : `; of a form its only field, \`${contentField}\``;
  const rest = unsignedBody === undefined ? '' : '; **the rest of the body is not signed**';
  return `${text}${digest}${shape}${field}${rest}`;
}

/** Where the time is, and how old it may be. */
export function toTime({ timestamp, tolerance }: SchemeDescription): string {
  if (timestamp === undefined) return 'none';
  return `${toPlace(timestamp.from)}, ${TIMESTAMP_FORMATS[timestamp.unit].title}; ${toTolerance(tolerance)}`;
}

function toTolerance({ past, future }: Tolerance): string {
  const toText = (milliseconds: number): string => {
    const minutes = milliseconds / 60_000;
    return minutes % 60 === 0 ? `${minutes / 60}h` : `${minutes}m`;
  };
  return past === future ? toText(past) : `${toText(past)} and ${toText(future)}`;
}

/** Where the ID is. */
export function toId(description: SchemeDescription): string {
  const { id, signed } = description;
  if (id === undefined) return 'none';
  const isInBody = 'json' in id || 'form' in id || 'xml' in id;
  const isSigned = signed.includes('id') || 'claim' in id || (isInBody && coversBody(description));
  return `${toPlace(id)}, ${isSigned || description.signature === undefined ? 'signed' : 'not signed'}`;
}
