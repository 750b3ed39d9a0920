/** Writes docs/presets.md from the catalogue, so that docs and code always agree. */
import { PRESETS } from '../src/verify/presets/catalogue.ts';
import { coversBody } from '../src/verify/schemes/coverage.ts';
import type { Algorithm, Piece, SchemeDescription, SignatureDescription, Tolerance } from '../src/verify/schemes/description.ts';
import type { JwtDescription } from '../src/verify/schemes/key-description.ts';
import { JWS_NAMES } from '../src/verify/schemes/public-keys.ts';
import { MAX_SIGNATURE_ENTRIES } from '../src/verify/schemes/signature-entries.ts';
import { TIMESTAMP_FORMATS } from '../src/verify/schemes/timestamp.ts';
import { toConfirming } from '../test/support/confirming.ts';
import { COMMERCE_NOTES } from './commerce-notes.ts';
import { TOOL_NOTES, TOOL_RECIPES } from './presets-notes.ts';

const HEAD = `# Presets

A route selects a preset with \`scheme: NAME\` in its \`webhook\` section. Presets are data, in the terms of \`scheme: custom\` (\`sidegate scheme NAME\` prints them so), and every preset is verified: against the sender's published test vectors, its official library, or
signers in two languages that were written from its document. The [table of sources](#keys-and-sources) says which. An unknown name is an
error. This page is generated from that data (\`npm run docs\`). See also [refusals](refusals.md), [sender behavior](senders.md), [handshakes](handshakes.md) and [all config keys](config.md).

## Signed parts

- \`·\` joins parts with nothing between them. *time* is the timestamp as text, *form* the sorted parameters of a form.
- **Tolerance** is how old, and how far in the future, a timestamp may be. Retries that keep their first timestamp are within it.
- **No signed time:** a captured delivery can be replayed once its ID is forgotten. For these senders, \`dedup.retention\` is 30 days with Redis (3 days in memory), and \`sidegate check\` warns until you set it. Redis needs about 150 bytes per key, and
  a delivery has two keys: a million deliveries in 30 days take about 300 MB.
- **IDs:** a signed ID is used as it is. If the ID is not signed, a digest of the signed bytes is remembered as well, so that nobody can replay a delivery under a new ID. If there is no ID, the digest is used alone.
- **The rest of the body is not signed:** anyone who captured a delivery that the app has not handled yet can change what is not listed. If the app handled the changed one, the valid one gets 503 \`event_conflict\`. \`sidegate check\` warns of these
  presets; \`dedup\` cannot be off. Let the app fetch from the sender's API what matters.
- **Several signatures:** a header may have up to ${MAX_SIGNATURE_ENTRIES} entries, including that of the timestamp; with more it is malformed (401), because each costs a comparison before anyone is verified. Senders use two during a rotation.

| scheme | sender | signature | signed | time, tolerance | id | content |
| --- | --- | --- | --- | --- | --- | --- |
`;

const KEYS = `
## Keys and sources

| scheme | key | confirmed by | document |
| --- | --- | --- | --- |
`;

const TAIL = `
\`bearer\`, \`api-key\` and \`unsigned\` are for senders that sign nothing. They use a token in \`Authorization\` or \`X-API-Key\`, or no token, if the route has \`basic\` or \`clientCertificate\` (Postmark, Chargebee). Such a
route must say where the ID is, for example \`id: { json: $.id }\`.

## Notes on senders

- **Adyen**: standard webhooks for payments (\`adyen-payments\`) sign eight fields of the item in their body: all others, such as \`reason\` and \`additionalData\`, can be changed. A notification in which only \`eventDate\`, \`reason\`, \`additionalData\`, \`operations\` or
  \`paymentMethod\` differ is a duplicate, so that the first one counts. A delivery with more than one item is rejected. Webhooks for platforms, banking and
  issuing (\`adyen-platforms\`) sign the whole body.
- **Alipay** joins the decoded fields as \`name=value\` with \`&\` between them, and escapes neither. A field that contains \`&\` with a later \`=\`, such as \`a&b=c\`, could be two fields, so its notification is rejected: keep \`&\` out of \`subject\`
  and \`body\`, and encode \`passback_params\` as Alipay requires. \`sign_type\` is not signed and must be \`RSA2\`. Notifications of the service market sign it as well; they need \`custom\` with \`signed: [{ sortedForm: {} }]\`. Only UTF-8 is accepted, not GBK. The app must respond with \`success\`; sidegate does so for a duplicate.
- **Box** and **Docusign** sign with several keys at a time, each in its own header. One valid signature is enough. Of Docusign's headers, the first ten are read.
- **Braintree** sends a form with two fields; a form with others is rejected. For its handshake (\`bt_challenge\`) set \`handshake.publicKey\`.
- **Contentful** lists the headers that it signs; others, also those that the app reads, are not protected. Configure a URL without a query and without percent-encoding.
- **Docusign** counts retries in its body, so a retry is a new event unless your events have an ID in the body.
- **Dropbox Sign** signs only the time, in seconds, and the type of an event. Two events of one type within one second have the same signature, so the second one gets 503. It expects the text \`Hello API Event Received\` in the response: the app must
  return it, and sidegate returns it for a duplicate.
- **Mailgun** signs only a time and a token. Inbound messages (routes) have the same fields in a form: use \`custom\` with \`{ form: token }\`, \`{ form: timestamp }\` and \`{ form: signature }\`.
- **GitLab** signs webhooks that have a signing token by Standard Webhooks: \`scheme: standard-webhooks\`. The older secret token authenticates the sender but not the body.
- **Retries with a new signature** are recognized by their ID. Zoom, HubSpot, Webflow and ElevenLabs send no ID that is safe to use: a retry with a new timestamp reaches the app again. The ID of Vonage is that of the token, so a retry with a new token does as well. If your events have an ID in the body, name it:
  \`id: { json: $.payload.object.uuid }\`.
- **Batches** (LINE, SendGrid, Microsoft Graph): a delivery contains several events, and all their IDs together identify it (\`[*]\`).
- **Square, HubSpot, Twilio** sign the URL. \`publicUrl\` is the URL that the sender uses; a proxy in front must not rewrite the path or query.
- **Svix** uses the header names of Standard Webhooks if your sender configures that. \`svix\` accepts \`Svix-…\` or \`Webhook-…\`, but no mixture; \`standard-webhooks\` accepts only \`Webhook-…\`. If a request has both, all values must
  be equal, because the app may read either.
- **Twilio** signs the URL and the form's parameters without separators. Anyone who captured a delivery can move the first parameters into the query, or text from one parameter to the next, under the same signature. The route therefore
  needs an exact \`path\`; a \`pathPrefix\` is an error, because the path could then absorb parameters as well. Configure a URL without a query at Twilio, and let the app ignore unknown parameters. If the app
  handled a changed copy, the original gets 503 \`event_conflict\`, because nothing proves which of them is valid. JSON bodies are bound by \`bodySHA256\`, which counts only at the end of the query.
- **Twilio** signs no time, and its voice calls wait for the app's response. If a caller may press the same key twice, the second request is a repeat, and sidegate responds without the app. Set \`dedup: off\` on such a route, or let the URLs differ.
- **Shopify and WooCommerce** can send the same body for several topics, and sign only the body. So each topic counts as its own event: a repeat of one topic is a duplicate, and the same body
  under another topic is not. The same topic in another spelling (\`ORDERS_CREATE\`) gets 503. Anyone who captured a delivery can invent topics, so list the topics of the route in \`kinds\`: others get 422. Without the list, the same body reaches the app under at most \`dedup.maxKinds\` topics, 8 by default, and further ones get 503 with the reason
  \`kinds_exhausted\`, also valid ones such as \`orders/create\`, \`orders/paid\` and \`orders/updated\`.
- **Amazon SNS** does not sign \`MessageAttributes\`. An app must not rely on them: anyone who captured a message can change them, as long as that message was not handled yet. The valid message then gets 503.
- **WooCommerce** sends an unsigned form when a webhook is saved. sidegate responds with 200 itself ([handshakes](handshakes.md)), and the app does not see it. Deliveries are signed. The delivery ID changes with
  each attempt.
- **Content-Type** is never signed, so sidegate ties it to the signed body: UTF-8 only, no ambiguous parameters, and a body that looks like its type. JSON must not begin with a byte order mark, a form must not begin like JSON, and
  multipart content must begin with its boundary. Anything else gets 415. See [ADR 0009](adr/0009-schemes-as-data.md).
- **X** signs any token in its handshake with the same key, so only a JSON object is accepted as an event.
- **PayPal, Wise, Plaid, Google Pub/Sub, Azure Event Grid, Vonage, Netlify, monday.com, Wix and Apple** sign with a key pair or a token, and some of them less than the whole
  delivery: see [RSA keys, certificates and JSON Web Tokens](key-pairs.md).
${COMMERCE_NOTES}${TOOL_NOTES}
## Without a preset

${TOOL_RECIPES}
The same fields describe any sender that signs by HMAC, Ed25519, ECDSA P-256, RSA or a JSON Web Token over the content, alone or with id, time, method, URL, headers, parameters, fields or fixed text ([how-to](how-to/custom-sender.md)).
The signed string must have one reading: if bytes could move from one piece to the next under one signature, \`sidegate check\` reports an error that names the two pieces. A separator
that the pieces cannot contain resolves it, and so does \`contentShape\` for a sender of JSON, because no JSON object or array is a proper beginning or end of another.
`;

const ALGORITHMS: Readonly<Record<Algorithm, string>> = {
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

/** Renders the page. */
export function renderPresetsPage(): string {
  const known = PRESETS.filter(({ from }) => from !== undefined);
  const rows = known.map((preset) =>
    toRow([
      `\`${preset.name}\``,
      preset.from?.title ?? '',
      toSignature(preset),
      toSigned(preset),
      toTime(preset),
      toId(preset),
      preset.contentTypes.map((type) => `\`${type}\``).join(', '),
    ]),
  );
  const keys = known.map((preset) =>
    toRow([`\`${preset.name}\``, preset.from?.key ?? '', toConfirming(preset).join('; '), `[document](${preset.from?.docs})`]),
  );
  return HEAD + rows.join('') + KEYS + keys.join('') + TAIL;
}

function toRow(cells: readonly string[]): string {
  return `| ${cells.join(' | ')} |\n`;
}

/** Where the signature is, and its algorithms. */
export function toSignature({ signature, jwt }: SchemeDescription): string {
  if (signature === undefined) return 'in the content';
  if (jwt !== undefined) return toToken(signature, jwt);
  if (signature.content !== undefined) return `\`${signature.content}\`: ${ALGORITHMS.token}`;
  const forms = signature.forms.map(({ prefix, algorithm }) => {
    const encoding = signature.encoding === 'text' ? '' : ` in ${signature.encoding}`;
    return `${prefix === '' ? '' : `\`${prefix}\` and `}${ALGORITHMS[algorithm]}${encoding}`;
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
