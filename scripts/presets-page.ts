/** Writes docs/presets.md from the catalogue, so that the page cannot say anything else than the gate does. */
import { PRESETS } from '../src/schemes/catalogue.ts';
import type { Algorithm, SchemeDescription, Tolerance } from '../src/schemes/description.ts';
import { toConfirming } from '../test/support/confirming.ts';

const HEAD = `# Presets

\`scheme: NAME\` in a route's \`webhook\` section. Each preset is data (\`src/schemes/presets\`), written in the fields that \`scheme: custom\` takes
as well, and none is shipped that its sender's own values or library do not confirm. An unknown name is an error. This page is written from that data
(\`npm run docs\`); statuses are in [refusals.md](refusals.md) and, by sender, in [senders.md](senders.md), handshakes in [handshakes.md](handshakes.md), all keys in [config.md](config.md).

## What is signed

\`·\` joins pieces with nothing between them. *time* is the timestamp's own text, *form* the parameters of form content, sorted. Tolerance is how far the time
may lie in the past and in the future; retries that keep their first time are within it. Where no time is signed, a captured delivery can be replayed once
its id is forgotten: \`dedup.retention\` is 30 days for these senders if the store is Redis (3 days in memory), and \`sidegate check\` warns until you set it. Redis needs about
150 bytes for each key, and a delivery has two keys: a million deliveries in 30 days take about 300 MB. An id that the signature covers is taken as it is; beside one that it does not cover, what was signed is remembered as well, so that
nobody replays a delivery under a new id; where there is none, what was signed stands for it.

| scheme | sender | signature | signed | time, tolerance | id | content |
| --- | --- | --- | --- | --- | --- | --- |
`;

const KEYS = `
## Keys, and what confirms the presets

| scheme | key | confirmed by | document |
| --- | --- | --- | --- |
`;

const TAIL = `
\`bearer\`, \`api-key\` and \`unsigned\` are for senders that sign nothing: a token in \`Authorization\` or \`X-API-Key\`, or, with the route's \`basic\` or
\`clientCertificate\`, none (Postmark, Chargebee). Such a route names the id itself, for example \`id: { json: $.id }\`.

## What to know of some senders

- **Adyen**: webhooks for payments are signed field by field in their content; only those for platforms, banking and issuing have a signature of the whole.
- **GitLab** signs webhooks that have a signing token as Standard Webhooks has it: \`scheme: standard-webhooks\`. The older secret token proves who sends, but
  nothing about the content.
- **Retries that are signed anew** are known by their id. Zoom, HubSpot, Webflow and ElevenLabs give none that is safe to use: a retry with a new time
  reaches the app again, as it would without the gate. Where your events have an id in their content, name it: \`id: { json: $.payload.object.uuid }\`.
- **Batches** (LINE, SendGrid, Microsoft Graph): one delivery holds several events, so all their ids together stand for it (\`[*]\`).
- **Square, HubSpot, Twilio** sign the URL. \`publicUrl\` is what they call the gate by; a proxy before it must not rewrite path or query.
- **Twilio** puts nothing between the URL and the parameters of a form, nor between their names and values. Anyone who captured a delivery can move the first parameters into the
  query, or text from one parameter to the next, under the same signature. The route therefore needs an exact \`path\`: under a \`pathPrefix\` the path could take parameters as well, so that is an
  error. Configure a URL without a query at Twilio, and let the app ignore parameters that it does not know. What was signed stays the same, so a changed copy and the
  original are repeats of each other: if the copy arrives first, the app gets only the copy. JSON is bound by \`bodySHA256\`, which counts at the end of the query only.
- **Shopify and WooCommerce** may send the same content for several topics, and sign only the content. So each topic counts as an event of its own: a repeat of one
  topic is a duplicate, in whatever spelling (\`orders/create\`, \`ORDERS_CREATE\`), and the same content under another topic is not. As anyone who captured a delivery can invent topics, the same
  content reaches the app under at most \`dedup.maxKinds\` topics, 2 by default. Further ones are answered 200 with the reason \`replayed_under_new_id\`: raise the limit if one route
  receives more topics that can have the same content, such as \`orders/create\`, \`orders/paid\` and \`orders/updated\`.
- **Amazon SNS** does not sign \`MessageAttributes\`. An app must not decide by them: anyone who captured a message can change them, as long as that message was not handled yet.
- **Twilio** signs no time, and its voice calls wait for the app's answer: where a caller may press the same key twice, the second request is a repeat to the gate,
  and is answered without the app. Give such a route \`dedup: off\`, or let the URLs differ.
- **WooCommerce** sends an unsigned form when a webhook is saved, which is refused (415), so that it cannot be saved as active while the gate stands before the app: save it with the route on
  \`mode: observe\`. Deliveries are signed. Its delivery id changes with each attempt.
- **Content-Type** is signed by nobody, so where the content is signed the gate binds it: UTF-8 only, no ambiguous parameters, and content that looks like what it is called. JSON must not begin with a
  byte order mark; a form must not begin like JSON; multipart content must begin with its boundary. Anything else is 415. See [ADR 0009](adr/0009-schemes-as-data.md).
- **X** answers its own check by signing any token with the same key, so that only a JSON object is taken as an event.

## Without a preset

Only a document tells how **Vercel** signs, so there is no preset; this is what the document says:

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

/** The page as it should be. */
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

function toSignature({ signature }: SchemeDescription): string {
  if (signature === undefined) return 'in the content';
  if (signature.content !== undefined) return `\`${signature.content}\`: ${ALGORITHMS.token}`;
  const forms = signature.forms.map(({ prefix, algorithm }) => {
    const encoding = signature.encoding === 'text' ? '' : ` in ${signature.encoding}`;
    return `${prefix === '' ? '' : `\`${prefix}\` and `}${ALGORITHMS[algorithm]}${encoding}`;
  });
  const list = signature.list === undefined ? '' : `, several by ${signature.list === ' ' ? 'a space' : `\`${signature.list}\``}`;
  return `\`${signature.header}\`: ${forms.join(', or ')}${list}`;
}

function toSigned({ signed, separator, contentDigestParameter, signature, contentShape }: SchemeDescription): string {
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

const UNITS = { s: 'seconds', ms: 'milliseconds', rfc3339: 'RFC 3339' } as const;

function toTime({ timestamp, tolerance }: SchemeDescription): string {
  if (timestamp === undefined) return 'none';
  const { from } = timestamp;
  const place =
    'header' in from ? `\`${from.header}\`` : 'entry' in from ? `\`${from.entry}\` beside the signature` : `\`${from.json}\``;
  return `${place}, ${UNITS[timestamp.unit]}; ${toTolerance(tolerance)}`;
}

function toTolerance({ past, future }: Tolerance): string {
  const toText = (milliseconds: number): string => {
    const minutes = milliseconds / 60_000;
    return minutes % 60 === 0 ? `${minutes / 60}h` : `${minutes}m`;
  };
  return past === future ? toText(past) : `${toText(past)} and ${toText(future)}`;
}

function toId({ id, signed, signature }: SchemeDescription): string {
  if (id === undefined) return 'none';
  if ('header' in id) return `\`${id.header}\`, ${signed.includes('id') ? 'signed' : 'not signed'}`;
  if ('json' in id) return `\`${id.json}\`, ${signature !== undefined && signed.length === 0 ? 'not signed' : 'signed'}`;
  return 'none';
}
