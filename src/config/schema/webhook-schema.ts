/** The schema of a route's webhook section. Defaults come from the scheme. */
import * as z from 'zod';
import { isExactValue, MEDIA_TYPE } from '../../core/head.ts';
import { type JsonPattern, parseJsonPattern } from '../../core/json-path.ts';
import { HANDSHAKE_NAMES, HANDSHAKES } from '../../verify/handshakes/catalogue.ts';
import { findPreset, PRESETS } from '../../verify/presets/catalogue.ts';
import { findAlias } from '../../verify/schemes/aliases.ts';
import { toTopicRegion } from '../../verify/schemes/aws-sns.ts';
import type { HandshakeName, SchemeDescription, Tolerance } from '../../verify/schemes/description.ts';
import { parseKinds } from '../../verify/schemes/head.ts';
import { completeDescription, jwtOptions, remoteKeys, textSource, toPublishedKeys, webhookKey } from './key-schema.ts';
import { DEFAULT_RETENTION_MS } from './retention.ts';
import { count, duration, jsonPath, publicUrl, scalar, size, timeLimit } from './scalars.ts';
import { customScheme, idSource } from './scheme-schema.ts';

// The schema of a route's handshake. Defaults come from the scheme.

/** DNS names, which are case-insensitive (RFC 4343 §3). */
const origin = z
  .string()
  .regex(/^[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/, 'an origin must be a host name such as eventgrid.azure.net')
  .transform((name) => name.toLowerCase());

const writtenHandshake = z.strictObject({
  type: z.enum(HANDSHAKE_NAMES).optional().describe('Type of handshake. Default: the handshake of the scheme, if it has one.'),
  verifyToken: textSource
    .optional()
    .describe(
      'Token that the sender must present in its handshake: `meta` and `strava` in hub.verify_token, `oura` in verification_token, other types in the query parameter `parameter`. Configure the same token at the sender.',
    ),
  parameter: z
    .string()
    .regex(/^[A-Za-z0-9_.-]{1,64}$/, 'a parameter name is 1 to 64 letters, digits, dots, dashes and underscores')
    .optional()
    .describe('Query parameter that contains the token. Default: `access_token` for cloudevents, otherwise `token`.'),
  allowedOrigins: z
    .array(origin)
    .default([])
    .describe('For cloudevents: origins that are allowed to send events, such as eventgrid.azure.net.'),
  allowedRate: count
    .optional()
    .describe('For cloudevents: number of requests per minute that the sender may make. Default: no limit.'),
  publicKey: z
    .string()
    .regex(/^[A-Za-z0-9_]{1,64}$/, 'a public key of Braintree is 1 to 64 letters, digits and underscores')
    .optional()
    .describe('For braintree: the public key that belongs to the private key of the route; it is part of the response.'),
});

/** The `handshake` section. */
const handshake = z
  .union([z.literal('off'), z.literal(false).transform(() => 'off' as const), writtenHandshake], {
    error: 'expected off, or an object with type, verifyToken, parameter, allowedOrigins, allowedRate, publicKey',
  })
  .optional()
  .describe(
    'How the sender verifies that this URL belongs to its receiver; sidegate responds instead of the app. Default: the handshake of the scheme; `off` leaves it to the app.',
  );

/** A handshake with its type resolved. */
type ResolvedHandshake = Omit<z.output<typeof writtenHandshake>, 'type'> & { readonly type: HandshakeName };

/** Combines the section with the scheme's handshake; undefined if the route has none. */
function resolveHandshake(
  section: z.output<typeof handshake>,
  { name, handshake: own, isSignedInContent }: SchemeDescription,
): ResolvedHandshake | undefined | { readonly problem: string } {
  if (section !== undefined && isSignedInContent === true)
    return { problem: `${name} has a built-in handshake; remove handshake` };
  if (section === 'off') return undefined;
  const type = section?.type ?? own;
  if (type === undefined)
    return section === undefined ? undefined : { problem: `${name} has no handshake by default; set handshake.type` };
  if (own !== undefined && type !== own) return { problem: `the handshake of ${name} is ${own}, not ${type}` };
  const { parameter } = HANDSHAKES[type];
  return { allowedOrigins: [], ...(parameter === undefined ? undefined : { parameter }), ...section, type };
}

// Stored bodies, order, deduplication, and the topics of Amazon SNS.

const MAX_PATHS = 32;
/** Which bodies of a route the journal stores, and without which values. */
const storeBody = z.strictObject({
  maxBytes: size()
    .prefault('8Ki')
    .describe(
      'Maximum size of a stored body, at most 64Ki. Of a larger one the beginning is stored if nothing has to be redacted, otherwise nothing.',
    ),
  retention: duration().prefault('1h').describe('How long a body is stored, at most 1d; less if `journal` has no room for it.'),
  redact: z
    .array(scalar<JsonPattern>(parseJsonPattern, '$.customers[*].email'), {
      error: 'expected the list of JSON paths whose values must not be stored; [] stores bodies as they are',
    })
    .max(MAX_PATHS, `expected at most ${MAX_PATHS} paths`)
    .meta({ examples: [['$.card.number', '$.customers[*].email']] })
    .describe(
      'JSON paths of values that are replaced by "[redacted]"; [*] stands for every member or element. If the list is not empty, only JSON is stored. Credentials that the scheme puts into the body are always replaced. Required: write [] if nothing must be redacted.',
    ),
});

/** How a route prevents that an older event reaches the app after a newer one. */
const order = z.strictObject({
  key: jsonPath().describe('JSON path of the resource that the event belongs to; its value must be a string or a number.'),
  version: jsonPath().describe(
    "JSON path of the resource's version: a number, a string of up to 50 digits, or a time (RFC 3339). Events without key or version are forwarded without ordering.",
  ),
  onStale: z
    .enum(['acknowledge', 'forward'])
    .default('acknowledge')
    .describe(
      'Policy for an event that is older than the newest handled one: `acknowledge` responds with 200 without forwarding it; `forward` forwards it with `Sidegate-Stale: true`.',
    ),
  retention: duration()
    .prefault('3d')
    .describe(
      'How long the newest version of a resource is remembered. Set it at least as long as the sender retries older events.',
    ),
  lease: duration()
    .prefault('60s')
    .describe(
      'How long a resource stays reserved for one event if no response of the app settles it; must be longer than timeout + connectTimeout, and should also cover limits.queueTimeout + timeout, for the waits before that.',
    ),
  maxWait: duration()
    .prefault('4s')
    .describe('Maximum time that an event waits while the app handles another one of the same resource; then it gets 503.'),
  onStoreError: z
    .enum(['refuse', 'forward'])
    .default('refuse')
    .describe('Policy while the store is down: `refuse` rejects events with 503; `forward` forwards them in order of arrival.'),
});

/** Shopify sends one body for up to six topics of an order. */
const DEFAULT_MAX_KINDS = 8;
const UTF_8_VALUE = /^=(?:utf-8|utf8|"utf-8")(?:[ ;]|$)/;

/** An exact value must not change how the body is parsed: it may have no other charset, and no boundary. */
function isSafeValue(text: string): boolean {
  if (!isExactValue(text)) return true;
  if (text.startsWith('multipart/') || text.includes('*')) return false;
  const [, ...charsets] = text.split('charset');
  return charsets.every((rest) => UTF_8_VALUE.test(rest));
}

const dedup = z
  .strictObject({
    retention: duration()
      .optional()
      .describe(
        'How long a handled ID is remembered. It must be at least tolerance.past + tolerance.future + limits.bodyTimeout, and should cover all retries of the sender. Default: 3d; 30d if the sender signs no timestamp and the store is Redis.',
      ),
    lease: duration()
      .prefault('60s')
      .describe(
        'How long the claim of an ID lasts if no response of the app settles it; must be longer than timeout + connectTimeout, and should also cover limits.queueTimeout + timeout, for the waits before that.',
      ),
    inProgress: z
      .enum(['wait', 'reject'])
      .default('wait')
      .describe(
        'Policy for a delivery whose ID is being handled: `wait` waits for the outcome; `reject` responds with 503 at once.',
      ),
    maxWait: duration().prefault('4s').describe('Maximum time to wait with `inProgress: wait`; then the delivery gets 503.'),
    onStoreError: z
      .enum(['refuse', 'forward'])
      .default('refuse')
      .describe(
        'Policy while the store is down: `refuse` rejects deliveries with 503; `forward` forwards them without a check for duplicates, with `Sidegate-Unchecked: true` for the app and `unchecked` in log and journal.',
      ),
    unsignedId: z
      .enum(['check', 'trust'])
      .default('check')
      .describe(
        'For senders whose signature does not cover the ID (GitHub, Shopify and others): `check` also compares the signed bytes with earlier deliveries, so that a delivery cannot be replayed with a new ID. `trust` takes deliveries with other IDs for other events, also if their bytes are the same. With `trust`, anyone who has a captured delivery can repeat it under invented IDs: forever if no timestamp is signed. Either way an ID that was handled with other content gets 503.',
      ),
    maxKinds: z
      .int()
      .min(1)
      .max(16)
      .optional()
      .describe(
        'For senders whose unsigned headers distinguish kinds of events (Shopify, WooCommerce, `custom.kind`), if the route does not list them in `kinds`: number of kinds for which the same body is forwarded; further kinds get 503. Default: 8.',
      ),
  })
  .prefault({});

/** Amazon SNS signs with the same keys for all its customers, so the topic decides whether a message is accepted. */
const sns = z.strictObject({
  topics: z
    .array(
      z.string().refine((text) => toTopicRegion(text) !== undefined, {
        error: (issue) =>
          `"${issue.input}" is not the ARN of a topic; write for example arn:aws:sns:eu-central-1:123456789012:orders`,
      }),
    )
    .min(1)
    .meta({ examples: [['arn:aws:sns:eu-central-1:123456789012:orders']] })
    .describe('ARNs of the topics whose messages are accepted.'),
  confirm: z
    .boolean()
    .default(true)
    .describe('Confirms subscriptions to these topics by calling the URL in a verified SubscriptionConfirmation message.'),
});

// The webhook section.

const NAMES = [...PRESETS.map(({ name }) => name), 'custom'];

/** The message for a sender's other name; undefined for the usual message. */
function describeAlias(input: unknown): string | undefined {
  const preset = typeof input === 'string' ? findAlias(input) : undefined;
  return preset === undefined ? undefined : `unknown scheme "${String(input)}". Did you mean "${preset}"?`;
}

const written = z.strictObject({
  scheme: z
    .enum(NAMES, { error: ({ input }) => describeAlias(input) })
    .default('standard-webhooks')
    .describe('Signature scheme: the name of a preset, or `custom`; `sidegate scheme` lists the presets.'),
  custom: customScheme.optional().describe('Description of the scheme, for `scheme: custom`.'),
  keys: z
    .array(webhookKey)
    .default([])
    .describe('Keys that verify deliveries, tried in order. During a rotation, list the new and the old key.'),
  sns: sns.optional().describe('Settings for `scheme: aws-sns`.'),
  jwks: z
    .array(remoteKeys)
    .max(8)
    .default([])
    .describe(
      'Public keys that the sender publishes at URLs, for schemes that sign with key pairs. A key is used only between its `nbf` and its `exp`, if it has them.',
    ),
  publicUrl: publicUrl()
    .optional()
    .describe(
      'URL under which the sender reaches sidegate, for schemes that sign the URL: scheme and host, and the path prefix if a proxy strips one.',
    ),
  urlCredentials: textSource
    .optional()
    .describe(
      'User and password that the URL at the sender has before the host (https://user:password@hooks.example.com), for senders that sign them, such as `twilio` and `mandrill`: the secret is the text between // and @.',
    ),
  receiverId: z
    .string()
    .regex(/^[\x21-\x7e]{1,128}$/, 'must be 1 to 128 visible ASCII characters')
    .optional()
    .describe('ID under which the sender knows this receiver, for schemes that sign it: the webhook ID of `paypal`.'),
  jwt: jwtOptions.optional().describe('Which tokens are accepted, for schemes with JSON Web Tokens.'),
  id: idSource.optional().describe('Where the ID of a delivery is. Default: as defined by the scheme.'),
  tolerance: z
    .union(
      [
        timeLimit(0, Number.POSITIVE_INFINITY).transform((both): Tolerance => ({ past: both, future: both })),
        z.strictObject({
          past: timeLimit(0, Number.POSITIVE_INFINITY).describe('Maximum age of the timestamp.'),
          future: duration().describe('Maximum time by which the timestamp may be ahead.'),
        }),
      ],
      { error: 'expected a duration such as 5m, or { past: 5m, future: 1m }' },
    )
    .optional()
    .describe(
      'Maximum difference between the timestamp and the current time, in either direction. Default: as defined by the scheme, usually 5m.',
    ),
  maxBody: size({ min: 16 }).prefault('1Mi').describe('Maximum size of a body; larger ones get 413.'),
  kinds: z
    .array(z.string().min(1))
    .min(1, 'the list is empty, so every delivery would get 422; remove kinds to accept all')
    .optional()
    .meta({ examples: [['orders/create', 'orders/paid']] })
    .describe(
      "Accepted kinds of events, for senders that name them only in unsigned headers (Shopify, WooCommerce, `custom.kind`); others get 422. Without the list, anyone who captured a delivery can invent kinds and use up `dedup.maxKinds`. Spelling is compared as the sender's libraries do; commas separate the values of several headers.",
    ),
  contentTypes: z
    .array(
      z
        .string()
        .regex(MEDIA_TYPE, 'a media type must be type/subtype in lower case, or such a value with parameters, or `none`')
        .refine((text) => isSafeValue(text), {
          error: 'parameters must not name another charset than utf-8, or a boundary; write type/subtype without parameters',
        }),
    )
    .min(1, 'the list is empty, so every delivery would get 415; remove contentTypes for the media types of the scheme')
    .optional()
    .describe(
      'Accepted media types; others get 415. An entry with parameters is the exact value of the header, also if it breaks the grammar of media types, as that of `alipay` does. `none` also accepts requests without Content-Type, which must be empty, as those by GET, HEAD and DELETE may be if the sender uses the method. Default: those of the scheme.',
    ),
  handshake,
  envelope: z
    .strictObject({
      requireMatchingId: z
        .boolean()
        .default(false)
        .describe('Requires a JSON body {type, id, created, data} whose id equals the Webhook-Id header.'),
    })
    .prefault({}),
  dedup: z
    .union([z.literal('off'), z.literal(false).transform(() => 'off' as const), dedup], {
      error: 'expected off, or an object with retention, lease, inProgress, maxWait, onStoreError, unsignedId, maxKinds',
    })
    .prefault({})
    .describe('Forwards each event only once; `off` also forwards duplicates.'),
  order: order
    .optional()
    .describe(
      'Does not forward events that are older than an already handled event of the same resource. Default: events are forwarded in order of arrival.',
    ),
  ack: z
    .enum(['onResponse', 'onAccept'])
    .default('onResponse')
    .describe(
      'When a delivery is acknowledged: `onResponse` returns the response of the app; `onAccept` returns 202, or what the sender counts as delivered, once the delivery is stored in the queue of `provider`, which then sends it to the app with retries. A change back to `onResponse` does not stop what was stored.',
    ),
  allowQuery: z
    .boolean()
    .default(false)
    .describe('Accepts query strings although the signature does not cover them. Not needed for schemes that sign the URL.'),
  allowContentEncoding: z
    .boolean()
    .default(false)
    .describe('Accepts the Content-Encoding header although the signature does not cover it.'),
  allowWeakDigest: z
    .boolean()
    .default(false)
    .describe(
      'Accepts a signature over a CRC-32 of the body (`paypal`). Insecure: anyone who has a signed delivery that was not handled yet can write another body with the same CRC-32.',
    ),
  allowDotInId: z
    .boolean()
    .default(false)
    .describe(
      'Accepts IDs with a dot. Insecure: an attacker can then move bytes between ID, timestamp and body under one signature.',
    ),
  capture: z
    .union([z.enum(['off', 'failures']), z.literal(false).transform(() => 'off' as const)], { error: 'expected off or failures' })
    .prefault('off')
    .describe(
      '`failures` keeps the latest rejected deliveries in memory, without credentials, so that authorized callers of the admin port can run `sidegate explain` on them. They may contain personal data.',
    ),
  storeBody: storeBody
    .meta({ examples: [{ redact: ['$.customer.email'] }] })
    .optional()
    .describe('Stores the bodies of forwarded events in memory, for the detail view of the console. Default: no body is stored.'),
});

/** The `webhook` section, with its scheme resolved. */
export const webhook = written.transform((values, context) => {
  const { custom, id, receiverId, jwt, tolerance, contentTypes, ...rest } = values;
  const base = findPreset(rest.scheme) ?? custom;
  if (base === undefined) {
    context.addIssue({
      code: 'custom',
      path: ['scheme'],
      message:
        'scheme: custom needs a description under custom:, for example { signature: { header: X-Signature }, signed: [body] }',
    });
    return z.NEVER;
  }
  if (rest.scheme !== 'custom' && custom !== undefined)
    context.addIssue({
      code: 'custom',
      path: ['custom'],
      message: `custom is ignored, because the scheme is ${rest.scheme}; set scheme: custom, or remove custom`,
    });
  const description: SchemeDescription = completeDescription(base, { id, receiverId, jwt });
  const kinds = toKinds(base, values);
  if (kinds !== undefined && 'problem' in kinds) {
    context.addIssue({ code: 'custom', path: ['kinds'], message: kinds.problem });
    return z.NEVER;
  }
  for (const [setting, message] of listUnused(base, values)) context.addIssue({ code: 'custom', path: [setting], message });
  const resolved = resolveHandshake(rest.handshake, base);
  if (resolved !== undefined && 'problem' in resolved) {
    context.addIssue({ code: 'custom', path: ['handshake'], message: resolved.problem });
    return z.NEVER;
  }
  return {
    ...rest,
    kinds,
    jwks: rest.keys.length + rest.jwks.length === 0 ? toPublishedKeys(base) : rest.jwks,
    dedup: resolveDedup(values),
    handshake: resolved,
    description,
    tolerance: base.timestamp === undefined ? undefined : (tolerance ?? base.tolerance),
    contentTypes: contentTypes ?? base.contentTypes,
  };
});

/** The list replaces the limit: invented kinds are rejected, and each listed one is forwarded. */
function toKinds(
  { name, kind }: SchemeDescription,
  { kinds, dedup }: z.output<typeof written>,
): ReturnType<typeof parseKinds> | undefined {
  if (kinds === undefined) return undefined;
  if (kind === undefined)
    return { problem: `${name} has no kinds of events in unsigned headers; remove kinds, or name the headers in custom.kind` };
  if (dedup !== 'off' && dedup.maxKinds !== undefined) return { problem: 'kinds replaces dedup.maxKinds; remove dedup.maxKinds' };
  return parseKinds(kind, kinds);
}

function resolveDedup({ dedup, kinds }: z.output<typeof written>) {
  if (dedup === 'off') return dedup;
  const { retention, maxKinds } = dedup;
  return {
    ...dedup,
    maxKinds: maxKinds ?? (kinds === undefined ? DEFAULT_MAX_KINDS : undefined),
    retention: retention ?? DEFAULT_RETENTION_MS,
    isRetentionDefault: retention === undefined,
  };
}

/** Settings that have no meaning for the scheme, and what is wrong with them. */
function listUnused(
  { name, timestamp, signed, jwt }: SchemeDescription,
  given: z.output<typeof written>,
): [setting: string, message: string][] {
  const found: [string, string][] = [];
  if (timestamp === undefined && given.tolerance !== undefined)
    found.push([
      'tolerance',
      `${name} has no signed timestamp, so its age cannot be checked; remove tolerance. Duplicates are detected for dedup.retention`,
    ]);
  if (!signed.includes('receiverId') && given.receiverId !== undefined)
    found.push(['receiverId', `${name} signs no receiver ID; remove receiverId`]);
  if (jwt === undefined && given.jwt !== undefined) found.push(['jwt', `${name} does not sign with JSON Web Tokens; remove jwt`]);
  return found;
}
