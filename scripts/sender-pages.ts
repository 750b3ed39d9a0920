/** Writes docs/senders/: one page for each sender with a preset, from the catalogue and from docs/senders/notes.yaml. */
import { readFileSync } from 'node:fs';
import { parse, stringify } from 'yaml';
import { toNeededSettings } from '../src/cli/scheme.ts';
import { HANDSHAKES } from '../src/verify/handshakes/catalogue.ts';
import { PRESETS } from '../src/verify/presets/catalogue.ts';
import { SENDERS } from '../src/verify/presets/senders.ts';
import { ALGORITHMS } from '../src/verify/schemes/algorithms.ts';
import { coversQuery, signsUrl } from '../src/verify/schemes/coverage.ts';
import { isToken, type SchemeDescription } from '../src/verify/schemes/description.ts';
import type { JwtDescription } from '../src/verify/schemes/key-description.ts';
import { toConfirming } from '../test/support/confirming.ts';
import { toId, toSignature, toSigned, toTime } from './presets-page.ts';
import { RETRIES, toAccepted, toChanges } from './senders-page.ts';

/** A preset of a sender, unlike `bearer` and others that many senders use. */
type SenderPreset = SchemeDescription & { readonly from: NonNullable<SchemeDescription['from']> };

/** Facts that no preset contains: docs/senders/notes.yaml. */
interface SenderNotes {
  /** Where the secret is at the sender; default: `from.key` of the preset alone. */
  readonly where?: string;
  /** Settings of `webhook` that the example needs besides the scheme and the key. */
  readonly webhook?: object;
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

const FOLDER = new URL('../docs/senders/', import.meta.url);
const NOTES = parse(readFileSync(new URL('notes.yaml', FOLDER), 'utf8')) as Readonly<Record<string, SenderNotes>>;

/** The names that have notes; each must be a preset. */
export const NOTED_NAMES: readonly string[] = Object.keys(NOTES);

/** All senders, by title. */
export const SENDER_PRESETS: readonly SenderPreset[] = PRESETS.filter(
  (preset): preset is SenderPreset => preset.from !== undefined,
).toSorted((a, b) => (a.from.title.toLowerCase() < b.from.title.toLowerCase() ? -1 : 1));

/** The index, and the page of each sender, by their paths. */
export const SENDER_PAGES: Readonly<Record<string, () => string>> = Object.fromEntries([
  ['docs/senders/README.md', renderIndex],
  ...SENDER_PRESETS.map((preset) => [`docs/senders/${preset.name}.md`, () => renderSenderPage(preset)] as const),
]);

function renderIndex(): string {
  const rows = SENDER_PRESETS.map(({ name, from }) => `| [${from.title}](${name}.md) | \`${name}\` |\n`);
  return `# Senders

One page for each sender with a preset: where the secret is, the config, what is verified, how the sender behaves, and how to test it. The
pages are generated (\`npm run docs\`) from the [presets](../presets.md) and \`notes.yaml\` in this folder.
[Sources of other gateways](../source-coverage.md) lists senders without a preset.

| sender | scheme |
| --- | --- |
${rows.join('')}`;
}

function renderSenderPage(preset: SenderPreset): string {
  const { name, from } = preset;
  const notes = NOTES[name] ?? {};
  const parts = [
    `# ${from.title}`,
    `\`scheme: ${name}\`. The sender documents its signature [here](${from.docs}).${toGuide(notes)}`,
    '## Set it up',
    toSecret(preset, notes),
    `\`\`\`yaml\n${stringify(toConfig(preset, notes), { lineWidth: 0 })}\`\`\``,
    ...toSettings(preset),
    '## Verified parts',
    toVerified(preset),
    toUnsigned(preset, notes),
    '## How the sender behaves',
    toBehavior(preset, notes),
    ...(notes.problems === undefined ? [] : ['## Known problems', notes.problems.map((text) => `- ${text.trim()}`).join('\n')]),
    '## Test it',
    toTest(preset, notes),
  ];
  return `${parts.join('\n\n')}\n`;
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
function toConfig(preset: SenderPreset, { webhook }: SenderNotes): object {
  const { name, handshake, signature, certificate, jwksUrl } = preset;
  const variable = name.toUpperCase().replaceAll('-', '_');
  const needsToken = handshake !== undefined && HANDSHAKES[handshake].token === 'needed';
  const key = { name: 'current', secret: { env: `${variable}_${isByKeyPair(preset) ? 'PUBLIC_KEY' : 'SECRET'}` } };
  const route = {
    name,
    match: { path: `/hooks/${name}` },
    upstream: 'http://127.0.0.1:3000',
    webhook: {
      scheme: name,
      ...(signsUrl(preset) && { publicUrl: 'https://hooks.example.com' }),
      ...toNeededSettings(preset),
      ...(signature !== undefined && certificate === undefined && jwksUrl === undefined && { keys: [key] }),
      ...(needsToken && { handshake: { verifyToken: { env: `${variable}_VERIFY_TOKEN` } } }),
      ...webhook,
    },
  };
  return { routes: [route] };
}

function isByKeyPair({ signature }: SenderPreset): boolean {
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
    ['confirmed by', toConfirming(preset).join('; ')],
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
      'Its documentation does not say how it interprets responses. sidegate assumes that a 2xx counts as delivered, and that everything else is retried.',
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
      ? `\`${file}\` is the body of an event as the sender sends it, with the signed fields of the table above, if it has any.`
      : toTokenTest(jwt),
    sign,
    `\`sidegate verify\` checks a captured delivery, and [\`sidegate explain\`](../explain.md) says why one fails.`,
  ].join('\n\n');
}
