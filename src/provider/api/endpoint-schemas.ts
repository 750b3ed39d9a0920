/** The schemas of endpoints; the settings are those of the config. */
import * as z from 'zod';
import { ENDPOINT_NAME, endpointSettings, ONE_TENANT_RULE } from '../../config/schema/provider-schema.ts';
import { duration } from '../../config/schema/scalars.ts';
import { DISABLED_REASONS } from '../endpoints/endpoint.ts';
import { attempt, toPageSchema } from './delivery-schemas.ts';

const MAX_SECRET_LENGTH = 256;
const secret = z.string().max(MAX_SECRET_LENGTH);

/** Settings that follow the config if they are absent or null. */
const OPTIONAL: ReadonlySet<string> = new Set(['timeout', 'concurrency', 'rateLimit', 'schedule', 'orderBy', 'tenant']);

const headers = endpointSettings.headers.unwrap();

/** In a PATCH, an absent member keeps its value: defaults must not fill it in, and null removes it. */
function toPatchShape(): Record<string, z.ZodType> {
  return Object.fromEntries(
    Object.entries(endpointSettings).map(([name, schema]) => {
      let inner: z.ZodType = schema;
      while (inner instanceof z.ZodDefault || inner instanceof z.ZodPrefault || inner instanceof z.ZodOptional)
        inner = inner.unwrap() as z.ZodType;
      const described = inner.describe(schema.description ?? '');
      return [name, OPTIONAL.has(name) ? described.nullable().optional() : described.optional()];
    }),
  );
}

/** The settings alone, in their parsed form. */
export const settings = z.strictObject(endpointSettings);
export type ParsedSettings = z.output<typeof settings>;

export const newEndpoint = z
  .strictObject({
    id: z
      .string()
      .regex(
        ENDPOINT_NAME,
        'an ID is 1 to 63 lower-case letters, digits, dashes and underscores, with a letter or digit at both ends',
      )
      .optional()
      .describe('Default: random.'),
    ...endpointSettings,
    secret: secret.optional().describe('Signing secret (whsec_… or whsk_…). Default: a new random one.'),
  })
  .refine(...ONE_TENANT_RULE)
  .describe('A new endpoint.');

export const endpointReplacement = z
  .strictObject({
    ...endpointSettings,
    allTenants: endpointSettings.allTenants.unwrap().optional().describe('Cannot be changed.'),
    tenant: endpointSettings.tenant.describe('Cannot be changed.'),
    headers: headers.optional().describe('Headers that are sent in addition. Default: unchanged, as they cannot be read back.'),
  })
  .describe('All settings of an endpoint: absent ones get their default, except `headers`, `tenant` and `allTenants`.');

export const endpointPatch = z
  .strictObject({
    ...toPatchShape(),
    headers: z
      .record(headers.keyType, headers.valueType.nullable())
      .optional()
      .describe('Headers to set, or to remove (`null`). The others are kept.'),
  })
  .describe('Settings to change (JSON merge patch, RFC 7396), except `tenant` and `allTenants`. `null` stands for the default.');
/** Durations in milliseconds. */
export type EndpointPatch = { readonly [Name in keyof Omit<ParsedSettings, 'headers'>]?: ParsedSettings[Name] | null } & {
  readonly headers?: HeaderPatch | undefined;
};
/** A name with null is removed. */
export type HeaderPatch = Readonly<Record<string, string | null>>;

export const rotation = z
  .strictObject({
    secret: secret.optional().describe('The new secret (whsec_… or whsk_…). Default: a random one.'),
    grace: duration()
      .optional()
      .describe(
        'How long deliveries are also signed with the old secrets; 0s if they leaked. Default: `provider.rotationGrace`.',
      ),
  })
  .describe('A rotation of the secret.');

export const testEvent = z
  .strictObject({
    data: z.record(z.string(), z.unknown()).optional().describe('Payload. Default: a short text.'),
  })
  .describe('A test event.');

export const endpoint = z
  .strictObject({
    id: z.string(),
    source: z.enum(['config', 'api']).describe('Endpoints of the config can only be enabled, disabled and tested here.'),
    url: z.string(),
    description: z.string(),
    events: z.array(z.string()),
    tenant: z.string().optional(),
    allTenants: z.boolean(),
    headerNames: z.array(z.string()).describe('Names of the additional headers. Their values are never shown.'),
    timeout: z.string(),
    concurrency: z.int(),
    rateLimit: z.number().optional(),
    schedule: z.array(z.string()),
    retryClientErrors: z.union([z.literal('all'), z.array(z.int())]),
    orderBy: z.string().optional(),
    operational: z.boolean(),
    signatures: z
      .array(
        z.strictObject({
          version: z.enum(['v1', 'v1a']),
          publicKey: z.string().optional().describe('Verifies `v1a` signatures (whpk_…).'),
          expiresAt: z.iso.datetime().optional().describe('Absent for the current secret.'),
        }),
      )
      .describe('Signatures that deliveries have: the current secret, and those that were rotated.'),
    disabled: z
      .strictObject({ at: z.iso.datetime(), reason: z.enum(DISABLED_REASONS) })
      .optional()
      .describe('Since when and why it is disabled; absent if it is enabled.'),
    createdAt: z.iso.datetime().optional(),
    updatedAt: z.iso.datetime().optional(),
  })
  .describe('An endpoint.');

export const createdEndpoint = z
  .strictObject({ ...endpoint.shape, secret: z.string().describe('The signing secret. It is never shown again.') })
  .describe('A new endpoint, with its secret.');

export const rotatedSecret = z
  .strictObject({ secret: z.string().describe('The new signing secret. It is never shown again.') })
  .describe('The result of a rotation.');

export const endpointStats = z
  .strictObject({
    waiting: z.int().min(0).describe('Deliveries that are due now or later.'),
    oldestDue: z.iso.datetime().optional().describe('When the oldest overdue delivery became due; absent if none is overdue.'),
    failing: z
      .strictObject({
        failures: z.int().min(1).describe('Failed attempts in a row, without those of deliveries that were retried by hand.'),
        since: z.iso.datetime().describe('When the first of them ended.'),
        lastAttempt: attempt.optional().describe('The last of them.'),
        pausedUntil: z.iso.datetime().optional().describe('No attempt starts before.'),
      })
      .optional()
      .describe('Absent if the last attempt succeeded, or none was made since the endpoint was enabled.'),
  })
  .describe('The backlog of an endpoint, and its failures.');

export const endpointPage = toPageSchema(endpoint, ' although more follow: a page ends after 256 KiB.').describe(
  'Endpoints, sorted by ID.',
);
