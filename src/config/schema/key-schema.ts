/** The schema of keys: those that senders sign with, and the one that the gate signs identity tokens with. */
import * as z from 'zod';
import { duration, envName, filePath, instant, NAME } from './scalars.ts';

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
  refresh: duration()
    .prefault('1h')
    .describe('How often the keys are fetched. They are also fetched if no known key matches a signature.'),
  keepFor: duration()
    .prefault('4h')
    .describe(
      'How long the keys stay valid if they cannot be fetched again. Cache-Control in the response can shorten this, so that a revoked key expires with the cache.',
    ),
});

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
  ttl: duration().prefault('60s').describe('How long a token is valid.'),
});
