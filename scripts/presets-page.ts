/** Writes docs/presets.md from the catalogue, so that docs and code always agree. */
import { PRESETS } from '../src/auth/schemes/catalogue.ts';
import type { Algorithm, SchemeDescription, Tolerance } from '../src/auth/schemes/description.ts';
import { MAX_SIGNATURE_ENTRIES } from '../src/auth/schemes/head.ts';
import { TIMESTAMP_FORMATS } from '../src/auth/schemes/timestamp.ts';
import { toConfirming } from '../test/support/confirming.ts';

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

- **Adyen**: payment webhooks are signed field by field in their body. Only webhooks for platforms, banking and issuing have a signature over the whole body, and only these have a preset.
- **GitLab** signs webhooks that have a signing token by Standard Webhooks: \`scheme: standard-webhooks\`. The older secret token authenticates the sender but not the body.
- **Retries with a new signature** are recognized by their ID. Zoom, HubSpot, Webflow and ElevenLabs send no ID that is safe to use: a retry with a new timestamp reaches the app again. If your events have an ID in the body, name it:
  \`id: { json: $.payload.object.uuid }\`.
- **Batches** (LINE, SendGrid, Microsoft Graph): a delivery contains several events, and all their IDs together identify it (\`[*]\`).
- **Square, HubSpot, Twilio** sign the URL. \`publicUrl\` is the URL that the sender uses; a proxy in front must not rewrite the path or query.
- **Svix** uses the header names of Standard Webhooks if your sender configures that. \`svix\` accepts \`Svix-…\` or \`Webhook-…\`, but no mixture; \`standard-webhooks\` accepts only \`Webhook-…\`. If a request has both, all values must
  be equal, because the app may read either.
- **Twilio** signs the URL and the form's parameters without separators. Anyone who captured a delivery can move the first parameters into the query, or text from one parameter to the next, under the same signature. The route therefore
  needs an exact \`path\`; a \`pathPrefix\` is an error, because the path could then absorb parameters as well. Configure a URL without a query at Twilio, and let the app ignore unknown parameters. A changed copy and the original are repeats of
  each other, because the signed bytes are the same: if the copy arrives first, the app gets only the copy. JSON bodies are bound by \`bodySHA256\`, which counts only at the end of the query.
- **Twilio** signs no time, and its voice calls wait for the app's response. If a caller may press the same key twice, the second request is a repeat, and sidegate responds without the app. Set \`dedup: off\` on such a route, or let the URLs differ.
- **Shopify and WooCommerce** can send the same body for several topics, and sign only the body. So each topic counts as its own event: a repeat of one topic is a duplicate in any spelling (\`orders/create\`, \`ORDERS_CREATE\`), and the same
  body under another topic is not. Anyone who captured a delivery can invent topics, so the same body reaches the app under at most \`dedup.maxKinds\` topics, 2 by default. Further ones get 200 with the reason \`replayed_under_new_id\`. Raise the limit
  if one route receives more topics that can have the same body, such as \`orders/create\`, \`orders/paid\` and \`orders/updated\`.
- **Amazon SNS** does not sign \`MessageAttributes\`. An app must not rely on them: anyone who captured a message can change them, as long as that message was not handled yet.
- **WooCommerce** sends an unsigned form when a webhook is saved. sidegate rejects it (415), so the webhook cannot be saved as active: save it while the route has \`mode: observe\`. Deliveries are signed. The delivery ID changes with
  each attempt.
- **Content-Type** is never signed, so sidegate ties it to the signed body: UTF-8 only, no ambiguous parameters, and a body that looks like its type. JSON must not begin with a byte order mark, a form must not begin like JSON, and
  multipart content must begin with its boundary. Anything else gets 415. See [ADR 0009](adr/0009-schemes-as-data.md).
- **X** signs any token in its handshake with the same key, so only a JSON object is accepted as an event.

## Without a preset

**Vercel** publishes only a description of its signature, without test vectors, so there is no preset. This config follows the description:

\`\`\`yaml
routes:
  - name: vercel
    match: { path: /hooks/vercel }
    upstream: http://127.0.0.1:3000
    webhook:
      scheme: custom
      custom:
        signature: { header: X-Vercel-Signature, encoding: hex, forms: [{ algorithm: hmac-sha1 }] }
        signed: [body]
        id: { json: $.id }
      keys: [{ name: current, secret: { env: VERCEL_SECRET } }]
\`\`\`

The same fields describe any sender that signs by HMAC, Ed25519 or ECDSA P-256 over the content, alone or with id, time, method, URL or fixed text.
The signed string must have one reading: if bytes could move from one piece to the next under one signature, \`sidegate check\` reports an error that names the two pieces. A separator
that the pieces cannot contain resolves it, and so does \`contentShape\` for a sender of JSON, because no JSON object or array is a proper beginning or end of another.
`;

const ALGORITHMS: Readonly<Record<Algorithm, string>> = {
  'hmac-sha1': 'HMAC-SHA1',
  'hmac-sha256': 'HMAC-SHA256',
  'hmac-sha512': 'HMAC-SHA512',
  ed25519: 'Ed25519',
  'ecdsa-p256': 'ECDSA P-256',
  token: 'the token itself',
};

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
export function toSignature({ signature }: SchemeDescription): string {
  if (signature === undefined) return 'in the content';
  if (signature.content !== undefined) return `\`${signature.content}\`: ${ALGORITHMS.token}`;
  const forms = signature.forms.map(({ prefix, algorithm }) => {
    const encoding = signature.encoding === 'text' ? '' : ` in ${signature.encoding}`;
    return `${prefix === '' ? '' : `\`${prefix}\` and `}${ALGORITHMS[algorithm]}${encoding}`;
  });
  const list = signature.list === undefined ? '' : `, several by ${signature.list === ' ' ? 'a space' : `\`${signature.list}\``}`;
  return `\`${signature.header}\`: ${forms.join(', or ')}${list}`;
}

/** The signed parts, in order. */
export function toSigned({ signed, separator, contentDigestParameter, signature, contentShape }: SchemeDescription): string {
  if (signature === undefined) return 'fields of the content';
  if (signed.length === 0) return 'nothing';
  const names = signed.map((piece) =>
    typeof piece === 'object' ? `\`${piece.text}\`` : `*${piece === 'timestamp' ? 'time' : piece}*`,
  );
  const text = names.join(separator === '' ? ' · ' : ` \`${separator}\` `);
  const digest =
    contentDigestParameter === undefined ? '' : `, or *url* with the content's SHA-256 as \`${contentDigestParameter}\``;
  const shape = contentShape === undefined ? '' : `; the body a ${contentShape.replace('json-', 'JSON ').replaceAll('-', ' ')}`;
  return `${text}${digest}${shape}`;
}

/** Where the time is, and how old it may be. */
export function toTime({ timestamp, tolerance }: SchemeDescription): string {
  if (timestamp === undefined) return 'none';
  const { from } = timestamp;
  const place =
    'header' in from ? `\`${from.header}\`` : 'entry' in from ? `\`${from.entry}\` in the signature header` : `\`${from.json}\``;
  return `${place}, ${TIMESTAMP_FORMATS[timestamp.unit].title}; ${toTolerance(tolerance)}`;
}

function toTolerance({ past, future }: Tolerance): string {
  const toText = (milliseconds: number): string => {
    const minutes = milliseconds / 60_000;
    return minutes % 60 === 0 ? `${minutes / 60}h` : `${minutes}m`;
  };
  return past === future ? toText(past) : `${toText(past)} and ${toText(future)}`;
}

/** Where the ID is. */
export function toId({ id, signed, signature }: SchemeDescription): string {
  if (id === undefined) return 'none';
  if ('header' in id) return `\`${id.header}\`, ${signed.includes('id') ? 'signed' : 'not signed'}`;
  if ('json' in id) return `\`${id.json}\`, ${signature !== undefined && signed.length === 0 ? 'not signed' : 'signed'}`;
  return 'none';
}
