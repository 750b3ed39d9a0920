/** The schema of a route's webhook section; what is left out comes from the scheme. */
import * as z from 'zod';
import { toTopicRegion } from '../../auth/schemes/aws-sns.ts';
import { findPreset, PRESETS } from '../../auth/schemes/catalogue.ts';
import type { SchemeDescription, Tolerance } from '../../auth/schemes/description.ts';
import { handshake, resolveHandshake } from './handshake-schema.ts';
import { remoteKeys, webhookKey } from './key-schema.ts';
import { order } from './order-schema.ts';
import { DEFAULT_RETENTION_MS } from './retention.ts';
import { duration, publicUrl, size } from './scalars.ts';
import { customScheme, idSource } from './scheme-schema.ts';

const MEDIA_TYPE = /^[a-z0-9!#$&^_.+-]+\/[a-z0-9!#$&^_.+-]+$/;

const dedup = z
  .strictObject({
    retention: duration()
      .optional()
      .describe(
        'How long a handled id is remembered: at least the tolerance of both sides and limits.bodyTimeout, and as long as the sender may retry. If omitted: 3d; 30d where the sender signs the content but no timestamp and the store is Redis.',
      ),
    lease: duration()
      .prefault('60s')
      .describe('How long a claim holds if the gate dies; must be above timeout + connectTimeout.'),
    inProgress: z
      .enum(['wait', 'reject'])
      .default('wait')
      .describe('What a delivery gets whose id is being handled right now: wait for the outcome, or 503 at once.'),
    waitAtMost: duration().prefault('4s').describe('How long `wait` waits.'),
    onStoreError: z
      .enum(['refuse', 'forward'])
      .default('refuse')
      .describe(
        'What happens while the store is down: 503, or let deliveries through unchecked for duplicates, with `Sidegate-Unchecked: true` for the app and `unchecked` in log and journal.',
      ),
    unsignedId: z
      .enum(['check', 'trust'])
      .default('check')
      .describe(
        'Where the signature does not cover the id (GitHub, Shopify and others): hold what was signed against earlier deliveries as well, so that nobody replays one under a new id; or go by the id alone.',
      ),
    maxKinds: z
      .int()
      .min(1)
      .max(16)
      .default(2)
      .describe(
        'Where headers that are not signed tell kinds of event apart (Shopify, WooCommerce, `kind`): under how many kinds the same content may reach the app; a further kind counts as a duplicate.',
      ),
  })
  .prefault({});

/** Amazon SNS signs with keys of its own, for everybody: what counts is the topic. */
const sns = z.strictObject({
  topics: z
    .array(
      z.string().refine((text) => toTopicRegion(text) !== undefined, {
        error: (issue) => `"${issue.input}" is no topic; write its ARN, for example arn:aws:sns:eu-central-1:123456789012:orders`,
      }),
    )
    .min(1)
    .meta({ examples: [['arn:aws:sns:eu-central-1:123456789012:orders']] })
    .describe('ARNs of the topics whose messages are taken.'),
  confirm: z
    .boolean()
    .default(true)
    .describe('Confirm a subscription to one of the topics, by the URL in its genuine SubscriptionConfirmation.'),
});

const NAMES = [...PRESETS.map(({ name }) => name), 'custom'];

const written = z.strictObject({
  scheme: z
    .enum(NAMES)
    .default('standard-webhooks')
    .describe('Who signs: the name of a preset, or `custom` with a scheme of your own.'),
  custom: customScheme.optional().describe('The scheme, where no preset has it.'),
  keys: z.array(webhookKey).default([]).describe('Tried in order; for a rotation list the new and the old one.'),
  sns: sns.optional().describe('For the scheme aws-sns.'),
  jwks: z.array(remoteKeys).max(8).default([]).describe('Public keys behind URLs, for schemes that sign by key pairs.'),
  publicUrl: publicUrl()
    .optional()
    .describe(
      'What the sender calls this gate by, for schemes that sign the URL: scheme and host, and the path that a proxy cut off.',
    ),
  id: idSource.optional().describe('Where the id stands, where it is not where the scheme has it.'),
  tolerance: z
    .union(
      [
        duration().transform((both): Tolerance => ({ past: both, future: both })),
        z.strictObject({
          past: duration().describe('How old it may be.'),
          future: duration().describe('How far ahead it may be.'),
        }),
      ],
      { error: 'expected a duration such as 5m, or { past: 5m, future: 1m }' },
    )
    .optional()
    .describe('How far the timestamp may lie in the past or the future. Left out: what suits the sender, 5m for most.'),
  maxBody: size().prefault('1Mi').describe('Largest content.'),
  contentTypes: z
    .array(z.string().regex(MEDIA_TYPE, 'a media type is type/subtype in lower case, without parameters'))
    .min(1)
    .optional()
    .describe('Media types that are taken. Left out: those that the sender sends.'),
  handshake,
  envelope: z
    .strictObject({
      requireMatchingId: z
        .boolean()
        .default(false)
        .describe('Require JSON content {type, id, created, data} whose id is the Webhook-Id.'),
    })
    .prefault({}),
  dedup: z
    .union([z.literal('off'), z.literal(false).transform(() => 'off' as const), dedup], {
      error: 'expected off, or a mapping with retention, lease, inProgress, waitAtMost, onStoreError, unsignedId, maxKinds',
    })
    .prefault({})
    .describe('Let each event through once; `off` forwards repeats.'),
  order: order
    .optional()
    .describe(
      'Keep events that are older than one handled already from the app, by resource. Left out: events pass as they come.',
    ),
  allowQuery: z
    .boolean()
    .default(false)
    .describe('Let a query string through that the signature does not cover; where it covers the URL, one may always come.'),
  allowContentEncoding: z
    .boolean()
    .default(false)
    .describe('Let a Content-Encoding through, which the signature does not cover.'),
  allowDotInId: z
    .boolean()
    .default(false)
    .describe('Let a dot stand in the id, which lets bytes move between id, timestamp and body.'),
});

/** The section, with its scheme resolved. */
export const webhook = written.transform((values, context) => {
  const { custom, id, tolerance, contentTypes, ...rest } = values;
  const base = findPreset(rest.scheme) ?? custom;
  if (base === undefined) {
    context.addIssue({
      code: 'custom',
      path: ['scheme'],
      message: 'a custom scheme is described under custom:, for example { signature: { header: X-Signature }, signed: [body] }',
    });
    return z.NEVER;
  }
  if (rest.scheme !== 'custom' && custom !== undefined)
    context.addIssue({
      code: 'custom',
      path: ['custom'],
      message: `the scheme is ${rest.scheme}; for this one write scheme: custom`,
    });
  const description: SchemeDescription = id === undefined ? base : { ...base, id };
  if (base.timestamp === undefined && tolerance !== undefined)
    context.addIssue({
      code: 'custom',
      path: ['tolerance'],
      message: `${base.name} signs no time, so nothing can be too old; repeats are found for as long as dedup.retention says`,
    });
  const shake = resolveHandshake(rest.handshake, base);
  if (shake !== undefined && 'problem' in shake) {
    context.addIssue({ code: 'custom', path: ['handshake'], message: shake.problem });
    return z.NEVER;
  }
  return {
    ...rest,
    dedup:
      rest.dedup === 'off'
        ? rest.dedup
        : {
            ...rest.dedup,
            retention: rest.dedup.retention ?? DEFAULT_RETENTION_MS,
            isRetentionDefault: rest.dedup.retention === undefined,
          },
    handshake: shake,
    description,
    tolerance: base.timestamp === undefined ? undefined : (tolerance ?? base.tolerance),
    contentTypes: contentTypes ?? base.contentTypes,
  };
});
