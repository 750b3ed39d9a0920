/** The schema of keys: those that senders sign with, and the one that the gate signs with. */
import * as z from 'zod';
import { duration, envName, filePath, instant, NAME } from './scalars.ts';

const NO_SECRET_HERE = 'expected { env: NAME } or { file: PATH }; a secret never stands in the config itself';
const keyName = z.string().regex(NAME, 'a key name is 1 to 64 letters, digits, dots, dashes and underscores');

/** `leftOut`: what a secret is whose encoding is not told. */
function secretSource(leftOut: string) {
  const encoding = z.enum(['utf8', 'base64', 'hex']).optional().describe(`How the secret is written. Left out: ${leftOut}`);
  return z
    .union(
      [
        z.strictObject({ env: envName.describe('Environment variable that holds the secret.'), encoding }),
        z.strictObject({
          file: filePath.describe('File that holds the secret, watched for changes. Relative paths count from the config file.'),
          encoding,
        }),
      ],
      { error: NO_SECRET_HERE },
    )
    .describe('Where the secret comes from: { env: NAME } or { file: PATH }.');
}

/** A secret that is text as it stands. */
export const tokenSource = z.union(
  [
    z.strictObject({ env: envName.describe('Environment variable that holds the token.') }),
    z.strictObject({ file: filePath.describe('File that holds the token, watched for changes.') }),
  ],
  { error: 'expected { env: NAME } or { file: PATH }; a secret never stands in the config itself' },
);

/** A key that deliveries are verified by. */
export const webhookKey = z.strictObject({
  name: keyName.describe('Shown in logs, metrics and the Sidegate-Key header.'),
  secret: secretSource('whsec_ and base64, or whpk_ and base64 for a public key.'),
  notBefore: instant().optional().describe('The key is accepted from this instant on.'),
  notAfter: instant().optional().describe('The key is not accepted from this instant on.'),
});

/** Public keys that the sender publishes as a JWK Set (RFC 7517 §5). */
export const remoteKeys = z.strictObject({
  name: keyName.describe('Shown in logs, metrics and the Sidegate-Key header, whichever of them verified.'),
  url: z
    .string()
    .refine((text) => URL.canParse(text) && new URL(text).protocol === 'https:' && new URL(text).username === '', {
      error: (issue) => `"${issue.input}" is no https URL; write for example https://keys.example.com/jwks.json`,
    })
    .meta({ examples: ['https://keys.example.com/jwks.json'] })
    .describe('Where they are. Only this host is asked, and no redirect is followed.'),
  refresh: duration().prefault('1h').describe('How often they are fetched; where no key fits a signature, earlier.'),
  keepFor: duration()
    .prefault('4h')
    .describe(
      'The longest that the keys count without being fetched again. They end earlier if the response says so (Cache-Control), so that a revoked key ends with the cache.',
    ),
});

/** What callers of the admin port show. */
export const adminToken = z.strictObject({
  secret: z
    .union(
      [
        z.strictObject({ env: envName.describe('Environment variable that holds the token.') }),
        z.strictObject({ file: filePath.describe('File that holds the token, watched for changes.') }),
      ],
      { error: NO_SECRET_HERE },
    )
    .describe('Where the token comes from: { env: NAME } or { file: PATH }.'),
});

/** How forwarded requests are signed. */
export const identity = z.strictObject({
  audience: z
    .string()
    .regex(/^[\x21-\x7e]{1,253}$/, 'expected 1 to 253 visible ASCII characters that name the app, for example "billing"')
    .meta({ examples: ['billing'] })
    .describe(
      'The app that the tokens are for: their `aud`. Each app rejects tokens with another one, so that apps behind one key cannot replay them to each other.',
    ),
  algorithm: z
    .enum(['hmac-sha256', 'ed25519'])
    .default('hmac-sha256')
    .describe(
      'A secret that gate and app share, or a private key whose public half /identity/jwks.json on the admin port gives out.',
    ),
  key: z
    .strictObject({
      name: keyName.describe('The `kid` of tokens by a shared secret; those of a private key have its thumbprint there.'),
      secret: secretSource('for HMAC its bytes as they are; Ed25519 takes a private key in PEM.'),
    })
    .meta({ examples: [{ name: 'current', secret: { file: '/etc/sidegate/identity-key' } }] })
    .describe('What signs; a file is watched, and taken up when it changes.'),
  ttl: duration().prefault('60s').describe('How long a token is good.'),
});
