/** The schema of keys: those that senders sign with, the one that the gate signs identity tokens with, and JSON Web Tokens. */

import * as z from 'zod';
import { parseJsonPath } from '../../core/json-path.ts';
import { MIN_LIFETIME_MS, MIN_REFRESH_MS } from '../../verify/keys/key-set.ts';
import { type SchemeDescription, withReceiverId } from '../../verify/schemes/description.ts';
import { DEFAULT_CLOCK_TOLERANCE_MS } from '../../verify/schemes/key-description.ts';
import { duration, envName, filePath, instant, NAME, timeLimit } from './scalars.ts';

const NOT_INLINE = 'expected { env: NAME } or { file: PATH }; secrets cannot be written in the config itself';
const keyName = z.string().regex(NAME, 'a key name is 1 to 64 letters, digits, dots, dashes and underscores');

const fromEnv = envName.describe('Environment variable that contains it.');
const fromFile = filePath.describe('File that contains it; watched for changes.');

/** `fallback` describes the encoding that is used if none is configured. */
function secretSource(fallback: string) {
  const encoding = z.enum(['utf8', 'base64', 'hex']).optional().describe(`Encoding of the secret. Default: ${fallback}`);
  return z
    .union([z.strictObject({ env: fromEnv, encoding }), z.strictObject({ file: fromFile, encoding })], { error: NOT_INLINE })
    .describe('Source of the secret: { env: NAME } or { file: PATH }.');
}

/** A secret that is used as plain text. */
export const textSource = z.union([z.strictObject({ env: fromEnv }), z.strictObject({ file: fromFile })], { error: NOT_INLINE });

/** A key that verifies deliveries. */
export const webhookKey = z.strictObject({
  name: keyName.describe('Name of the key in logs, metrics and the Sidegate-Key header.'),
  secret: secretSource(
    'the encoding of the scheme; for standard-webhooks whsec_ and base64, or whpk_ and base64 for a public key.',
  ),
  notBefore: instant().optional().describe('The key is accepted from this instant on. Default: immediately.'),
  notAfter: instant().optional().describe('The key is rejected from this instant on. Default: no expiry.'),
});

/** Public keys that the sender publishes as a JWK Set (RFC 7517 §5). */
export const remoteKeys = z.strictObject({
  name: keyName.describe('Name of the key set in logs, metrics and the Sidegate-Key header, whichever of its keys verified.'),
  url: z
    .string()
    .refine((text) => URL.canParse(text) && new URL(text).protocol === 'https:' && new URL(text).username === '', {
      error: (issue) => `"${issue.input}" is not an https URL; write for example https://keys.example.com/jwks.json`,
    })
    .meta({ examples: ['https://keys.example.com/jwks.json'] })
    .describe('URL of the JWK Set. Redirects are not followed.'),
  refresh: timeLimit(MIN_REFRESH_MS)
    .meta({ examples: ['1h'] })
    .prefault('1h')
    .describe('How often the keys are fetched, at least 1m. They are also fetched if no known key matches a signature.'),
  keepFor: timeLimit(MIN_LIFETIME_MS)
    .meta({ examples: ['4h'] })
    .prefault('4h')
    .describe(
      'How long the keys stay valid if they cannot be fetched again, at least 5m. If routes share the URL, the shortest values apply. Cache-Control in the response can shorten this, so that a revoked key expires with the cache.',
    ),
});

/** The key set that the sender publishes, for routes without keys. */
export function toPublishedKeys({ name, jwksUrl }: SchemeDescription): z.output<typeof remoteKeys>[] {
  return jwksUrl === undefined ? [] : [remoteKeys.parse({ name, url: jwksUrl })];
}

/** The bearer token of the admin port. */
export const adminToken = z.strictObject({
  secret: textSource.describe('Source of the token: { env: NAME } or { file: PATH }.'),
});

/** The token that the gate adds to forwarded requests. */
export const identity = z.strictObject({
  audience: z
    .string()
    .regex(/^[\x21-\x7e]{1,253}$/, 'expected 1 to 253 visible ASCII characters that name the app, for example "billing"')
    .meta({ examples: ['billing'] })
    .describe(
      'Name of the app, sent as the `aud` of the tokens. Each app must reject tokens with another audience, so that apps that share a key cannot replay tokens to each other.',
    ),
  algorithm: z
    .enum(['hmac-sha256', 'ed25519'])
    .default('hmac-sha256')
    .describe(
      'Signature algorithm: `hmac-sha256` uses a secret that gate and app share; `ed25519` uses a private key, whose public key is served at /identity/jwks.json on the admin port.',
    ),
  key: z
    .strictObject({
      name: keyName.describe('The `kid` of tokens with `hmac-sha256`. With `ed25519` the `kid` is the thumbprint of the key.'),
      secret: secretSource('`utf8` for hmac-sha256; for ed25519 the secret is a private key in PEM.'),
    })
    .meta({ examples: [{ name: 'current', secret: { file: '/etc/sidegate/identity-key' } }] })
    .describe('The signing key. A file is watched and reloaded when it changes.'),
  ttl: timeLimit(1_000).prefault('60s').describe('How long a token is valid.'),
});

// The schema of JSON Web Tokens: how the tokens of a custom scheme look, and which of them a route accepts.

const value = z.string().min(1, 'the value is empty').max(512, 'the value is longer than 512 characters');
const CLAIM_NAME = /^[A-Za-z0-9_-]{1,64}$/;

/** A JSON path, or the name of a claim. */
export const claimPath = z
  .string()
  .meta({ examples: ['$.jti'] })
  .transform((text) => (CLAIM_NAME.test(text) ? `$.${text}` : text))
  .superRefine((text, context) => {
    const path = parseJsonPath(text);
    if ('problem' in path) context.addIssue({ code: 'custom', message: path.problem });
  });

/** Which tokens a route accepts. */
export const jwtOptions = z.strictObject({
  audience: z
    .array(value)
    .min(1)
    .max(16)
    .meta({ examples: [['https://hooks.example.com/pubsub']] })
    .optional()
    .describe('Accepted audiences. Default: the audience is not checked; some presets require it.'),
  claims: z
    .record(
      claimPath,
      z
        .array(z.union([value, z.boolean()]))
        .min(1)
        .max(16),
    )
    .meta({ examples: [{ email: ['push@my-project.iam.gserviceaccount.com'] }] })
    .optional()
    .describe('Claims, by name or JSON path, and their accepted values.'),
  clockTolerance: duration()
    .prefault(`${DEFAULT_CLOCK_TOLERANCE_MS / 1_000}s`)
    .describe('How far the clocks of the sender and sidegate may differ when `exp` and `nbf` are checked.'),
});

/** The tokens of a custom scheme. */
export const customJwt = z
  .strictObject({
    content: z
      .string()
      .regex(
        /^\$(?:\.[A-Za-z0-9_-]{1,64})?$/,
        'expected $ for the whole body, or the path of its only member such as $.signedPayload',
      )
      .optional()
      .describe('If the token is in the body: `$` if it is the whole body, or the path of the only member of a JSON object.'),
    issuers: z.array(value).min(1).max(8).optional().describe('Accepted values of `iss`. Default: any, or none.'),
    audienceAt: z.array(claimPath).min(1).max(8).optional().describe('Claims that may name the audience. Default: `$.aud`.'),
    bodyHash: z
      .strictObject({
        claim: claimPath.describe('The claim with the digest.'),
        digest: z.enum(['sha256', 'sha512']).default('sha256').describe('Hash function.'),
        encoding: z.enum(['hex', 'base64', 'base64url']).default('hex').describe('Encoding of the digest.'),
        query: z
          .literal('json')
          .optional()
          .describe('Requests by GET have the digest of their parameters instead, as one JSON object of strings in their order.'),
      })
      .optional()
      .describe('The claim with the digest of the body. Without it, a token in a header does not sign the body.'),
    requiresExpiry: z.literal(true).optional().describe('Rejects tokens without `exp`.'),
    chain: z
      .strictObject({
        extensions: z
          .array(
            z
              .string()
              .regex(/^[0-2](?:\.(?:0|[1-9]\d{0,9})){2,16}$/, 'expected an object identifier such as 1.2.840.113635.100.6.11.1'),
          )
          .min(1)
          .max(4)
          .describe(
            'One extension for each certificate below the root, from the signer upwards, which marks the certificates of this sender.',
          ),
      })
      .optional()
      .describe(
        'The header of the token contains the chain of certificates of the signer (`x5c`). The keys of the route are the roots, in PEM.',
      ),
  })
  .describe('JSON Web Token (RFC 7519), with `signature.encoding: jwt`.');

/** Certificates at URLs that deliveries name. */
export const certificate = z
  .strictObject({
    header: z
      .string()
      .regex(/^[A-Za-z0-9-]{1,64}$/, 'expected the name of a header')
      .describe('Header with the URL of the certificate.'),
    hosts: z
      .array(z.string().regex(/^[a-z0-9-]+(?:\.[a-z0-9-]+)+$/, 'expected the name of a host in lower case'))
      .min(1)
      .max(8)
      .describe('Hosts that the URL may have. It must be https, without port, query and redirects.'),
    path: z
      .string()
      .regex(/^\/(?:[A-Za-z0-9_-]+\/)*$/, 'expected a path that ends with /, such as /v1/certs/')
      .describe('Folder of the certificates: only one further part may follow.'),
    names: z
      .array(z.string().regex(/^[A-Za-z0-9.*-]{1,253}$/, 'expected a name such as signing.example.com'))
      .min(1)
      .max(8)
      .describe('Common names or DNS names, one of which the certificate must have.'),
  })
  .describe('Certificates of the sender at URLs that a header names. Used if the route has no keys.');

/** The description with the settings of the route. */
export function completeDescription(
  base: SchemeDescription,
  {
    id,
    receiverId,
    jwt,
  }: {
    readonly id: SchemeDescription['id'];
    readonly receiverId: string | undefined;
    readonly jwt: z.output<typeof jwtOptions> | undefined;
  },
): SchemeDescription {
  let description = id === undefined ? base : { ...base, id };
  if (receiverId !== undefined) description = withReceiverId(description, receiverId);
  if (jwt === undefined || base.jwt === undefined) return description;
  const { audience, claims, clockTolerance } = jwt;
  return {
    ...description,
    jwt: {
      ...base.jwt,
      clockTolerance,
      ...(audience === undefined ? undefined : { audience }),
      ...(claims === undefined ? undefined : { claims: { ...base.jwt.claims, ...claims } }),
    },
  };
}
