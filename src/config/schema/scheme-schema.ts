/** The schema of a custom signature scheme, with the same fields as the presets. */
import * as z from 'zod';
import type { SchemeDescription } from '../../auth/schemes/description.ts';
import { MAX_SIGNATURE_ENTRIES } from '../../auth/schemes/head.ts';
import { JSON_ONLY, minutes } from '../../auth/schemes/presets/defaults.ts';
import { TIMESTAMP_UNITS } from '../../auth/schemes/timestamp.ts';
import { parseJsonListPath, parseJsonPath } from '../../core/json-path.ts';

/** Header fields are tokens (RFC 9110 §5.6.2). */
const headerName = z.string().regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/, 'a header name must be a token (RFC 9110 §5.6.2)');
const visible = z.string().regex(/^[\x20-\x7e]{0,32}$/, 'must be up to 32 visible ASCII characters');
/** Without a prefix, an attacker's entry could be the timestamp as well as the sender's. */
const entryPrefix = visible.min(1, 'the prefix is empty, so any entry could be the timestamp; write for example t=');
const ALGORITHMS = ['hmac-sha1', 'hmac-sha256', 'hmac-sha512', 'ed25519', 'ecdsa-p256', 'token'] as const;
/** Algorithms that a sender may use, but custom schemes do not know: a similar name would be another algorithm, not a correction. */
const OTHER_ALGORITHM = /rsa|^[rpe]s\d|p-?(?:384|521)|sha-?(?:224|384)|sha-?3|md5|ed448/i;

const parameterName = z
  .string()
  .regex(/^[A-Za-z0-9_.-]{1,64}$/, 'a parameter name is 1 to 64 letters, digits, dots, dashes and underscores');

const jsonPath = z
  .string()
  .meta({ examples: ['$.data.id'] })
  .superRefine((text, context) => {
    const path = parseJsonPath(text);
    if ('problem' in path) context.addIssue({ code: 'custom', message: path.problem });
  });

/** If a delivery contains several events, all their IDs together identify it. */
const idPath = z
  .string()
  .meta({ examples: ['$.data.id'] })
  .superRefine((text, context) => {
    const path = parseJsonListPath(text) ?? parseJsonPath(text);
    if ('problem' in path) context.addIssue({ code: 'custom', message: path.problem });
  });

const inHeader = z.strictObject({ header: headerName.describe('Name of the header.') });
const inBody = z.strictObject({ json: jsonPath.describe('Path in the JSON body.') });

/** Where the ID of a delivery is. */
export const idSource = z.union(
  [inHeader, z.strictObject({ json: idPath.describe('Path in the JSON body; [*] stands for each item of a list.') })],
  { error: 'expected { header: NAME } or { json: PATH }' },
);

const unit = z
  .enum(TIMESTAMP_UNITS)
  .default('s')
  .describe(
    'Format: Unix time in seconds (`s`) or milliseconds (`ms`), `rfc3339` such as 2026-12-31T00:00:00Z, or `http-date` such as Thu, 31 Dec 2026 00:00:00 GMT.',
  );

const timestamp = z
  .union(
    [
      inHeader.extend({ unit }),
      z.strictObject({ entry: entryPrefix.describe('Prefix of the entry in the signature header, such as `t=`.'), unit }),
      inBody.extend({ unit }),
    ],
    { error: 'expected { header: NAME }, { entry: PREFIX } or { json: PATH }, each with unit: s, ms, rfc3339 or http-date' },
  )
  .transform(({ unit: written, ...from }) => ({ from, unit: written }));

const form = z.strictObject({
  prefix: visible.default('').describe('Prefix of the signature, such as `v1=`.'),
  algorithm: z
    .enum(ALGORITHMS, {
      error: ({ input }) =>
        OTHER_ALGORITHM.test(String(input))
          ? `"${input}" is not supported by custom schemes; they verify ${ALGORITHMS.join(', ')}`
          : undefined,
    })
    .default('hmac-sha256')
    .describe('Signature algorithm; `token` means that the header contains the secret itself.'),
});

const signature = z.strictObject({
  header: headerName.describe('Header that contains the signature.'),
  encoding: z
    .enum(['hex', 'base64', 'base64url', 'text'])
    .default('hex')
    .describe('Encoding of the signature; `text` is for tokens only.'),
  list: z
    .enum([',', ';', ' '])
    .optional()
    .describe(
      `Separator of the entries in the header, at most ${MAX_SIGNATURE_ENTRIES}. Default: the header contains one entry.`,
    ),
  forms: z
    .array(form)
    .min(1)
    .max(4)
    .default([{ prefix: '', algorithm: 'hmac-sha256' }])
    .describe('Accepted kinds of entries; other entries are ignored.'),
});

const piece = z.union(
  [z.enum(['id', 'timestamp', 'body', 'method', 'url', 'form']), z.strictObject({ text: visible.describe('A literal string.') })],
  { error: 'expected id, timestamp, body, method, url, form or { text: … }' },
);

/** A whole scheme. */
export const customScheme = z
  .strictObject({
    signature: signature.meta({ examples: [{ header: 'X-Signature' }] }).describe('Where the signature is, and its format.'),
    signed: z.array(piece).max(12).default(['body']).describe('The parts that are signed, in order; [] for tokens.'),
    separator: visible.default('').describe('Separator between the signed parts.'),
    timestamp: timestamp.optional().describe('Where the signed timestamp is. Default: no timestamp.'),
    kind: z
      .array(headerName)
      .min(1)
      .max(4)
      .optional()
      .describe(
        'Unsigned headers that distinguish kinds of events with possibly identical bodies; each kind counts as a separate event.',
      ),
    id: idSource.optional().describe('Where the ID is. Default: the digest of the signed bytes serves as the ID.'),
    secret: z
      .strictObject({
        encoding: z.enum(['utf8', 'base64', 'hex']).default('utf8').describe('Encoding of the secrets that the sender issues.'),
        prefix: visible.optional().describe('Prefix of these secrets.'),
      })
      .prefault({}),
    publicKey: z
      .strictObject({
        encoding: z.enum(['hex', 'base64']).default('base64').describe('Encoding of the key, if it is not PEM.'),
        format: z.enum(['raw', 'spki']).default('spki').describe('Raw bytes (Ed25519), or SubjectPublicKeyInfo in DER.'),
        prefix: visible.optional().describe('Prefix of public keys; distinguishes them from secrets if a scheme has both.'),
        privatePrefix: visible.optional().describe('Prefix of private keys, which are used only to sign.'),
      })
      .prefault({})
      .describe('Format of public keys, for ed25519 and ecdsa-p256.'),
    contentShape: z
      .enum(['json-object', 'json-array', 'json-object-or-array'])
      .optional()
      .describe('Required JSON shape of a signed body; needed if nothing separates the body from the other signed parts.'),
    isPortOptional: z
      .literal(true)
      .optional()
      .describe('Whether the sender may include the default port of the URL scheme in the signed URL.'),
    contentDigestParameter: parameterName
      .optional()
      .describe('Query parameter with the hex SHA-256 of the body, used instead of the `form` part.'),
    decodedInUrl: z
      .string()
      .regex(/^[!-/:-@[-`{-~]{1,32}$/, 'must be up to 32 punctuation marks')
      .optional()
      .describe('Characters whose percent-encoding in the URL is decoded before signing.'),
  })
  .transform(
    (written): SchemeDescription => ({
      ...withoutAbsent(written),
      name: 'custom',
      tolerance: minutes(5),
      contentTypes: JSON_ONLY,
    }),
  );

/** Removes undefined fields at any depth, so that a description has exactly the fields that the scheme uses. */
function withoutAbsent<T>(value: T): Present<T> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value as Present<T>;
  const fields = Object.entries(value).filter(([, field]) => field !== undefined);
  return Object.fromEntries(fields.map(([name, field]) => [name, withoutAbsent(field)])) as Present<T>;
}

type Present<T> = T extends readonly unknown[]
  ? T
  : T extends object
    ? { [Key in keyof T]: Present<Exclude<T[Key], undefined>> }
    : T;
