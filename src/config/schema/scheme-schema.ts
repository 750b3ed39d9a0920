/** The schema of a signature scheme that users describe themselves; the same fields that presets are written in. */
import * as z from 'zod';
import type { SchemeDescription } from '../../auth/schemes/description.ts';
import { JSON_ONLY, minutes } from '../../auth/schemes/presets/defaults.ts';
import { parseJsonListPath, parseJsonPath } from '../../core/json-path.ts';

/** Header fields are tokens (RFC 9110 §5.6.2). */
const headerName = z.string().regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/, 'a header name is a token');
const visible = z.string().regex(/^[\x20-\x7e]{0,32}$/, 'up to 32 visible ASCII characters');
const ALGORITHMS = ['hmac-sha1', 'hmac-sha256', 'hmac-sha512', 'ed25519', 'ecdsa-p256', 'token'] as const;

const parameterName = z
  .string()
  .regex(/^[A-Za-z0-9_.-]{1,64}$/, 'a parameter name is letters, digits, dots, dashes and underscores');

const jsonPath = z
  .string()
  .meta({ examples: ['$.data.id'] })
  .superRefine((text, context) => {
    const path = parseJsonPath(text);
    if ('problem' in path) context.addIssue({ code: 'custom', message: path.problem });
  });

/** Of several events in one delivery, all ids together tell a repeat. */
const idPath = z
  .string()
  .meta({ examples: ['$.data.id'] })
  .superRefine((text, context) => {
    const path = parseJsonListPath(text) ?? parseJsonPath(text);
    if ('problem' in path) context.addIssue({ code: 'custom', message: path.problem });
  });

const inHeader = z.strictObject({ header: headerName.describe('Name of the header.') });
const inContent = z.strictObject({ json: jsonPath.describe('Path in the JSON content.') });

/** Where a delivery's id stands. */
export const idSource = z.union(
  [inHeader, z.strictObject({ json: idPath.describe('Path in the JSON content; [*] for each item of a list.') })],
  { error: 'expected { header: NAME } or { json: PATH }' },
);

const unit = z
  .enum(['s', 'ms', 'rfc3339'])
  .default('s')
  .describe('Unix time in seconds or milliseconds, or an instant in UTC such as 2026-12-31T00:00:00Z.');

const timestamp = z
  .union(
    [
      inHeader.extend({ unit }),
      z.strictObject({ entry: visible.describe('Prefix of the entry in the signature header, such as `t=`.'), unit }),
      inContent.extend({ unit }),
    ],
    { error: 'expected { header: NAME }, { entry: PREFIX } or { json: PATH }, each with unit: s, ms or rfc3339' },
  )
  .transform(({ unit: written, ...from }) => ({ from, unit: written }));

const form = z.strictObject({
  prefix: visible.default('').describe('What stands before the signature, such as `v1=`.'),
  algorithm: z
    .enum(ALGORITHMS)
    .default('hmac-sha256')
    .describe('How it is computed; `token`: the header holds the secret itself.'),
});

const signature = z.strictObject({
  header: headerName.describe('The header with the signature.'),
  encoding: z
    .enum(['hex', 'base64', 'base64url', 'text'])
    .default('hex')
    .describe('How the signature is written; `text` is for tokens only.'),
  list: z.enum([',', ';', ' ']).optional().describe('What separates several entries in the one header.'),
  forms: z
    .array(form)
    .min(1)
    .max(4)
    .default([{ prefix: '', algorithm: 'hmac-sha256' }])
    .describe('Entries of other forms are skipped.'),
});

const piece = z.union(
  [z.enum(['id', 'timestamp', 'body', 'method', 'url', 'form']), z.strictObject({ text: visible.describe('This text itself.') })],
  { error: 'expected id, timestamp, body, method, url, form or { text: … }' },
);

/** A whole scheme. */
export const customScheme = z
  .strictObject({
    signature: signature
      .meta({ examples: [{ header: 'X-Signature' }] })
      .describe('Where signatures stand, and how they are written.'),
    signed: z.array(piece).max(12).default(['body']).describe('What is signed, in order. For tokens: [].'),
    separator: visible.default('').describe('What stands between two of them.'),
    timestamp: timestamp.optional().describe('Where the time stands that is signed. Left out: none.'),
    kind: z
      .array(headerName)
      .min(1)
      .max(4)
      .optional()
      .describe(
        'Unsigned headers that tell kinds of event apart which may have the same content: each kind is an event of its own.',
      ),
    id: idSource.optional().describe('Where the id stands. Left out: the digest of what was signed stands for it.'),
    secret: z
      .strictObject({
        encoding: z.enum(['utf8', 'base64', 'hex']).default('utf8').describe('How the sender writes its secrets.'),
        prefix: visible.optional().describe('What it puts before them.'),
      })
      .prefault({}),
    publicKey: z
      .strictObject({
        encoding: z.enum(['hex', 'base64']).default('base64').describe('How it is written, where it is not PEM.'),
        format: z.enum(['raw', 'spki']).default('spki').describe('Raw bytes (Ed25519), or SubjectPublicKeyInfo in DER.'),
        prefix: visible.optional().describe('What the sender puts before it; tells it from a secret, where a scheme has both.'),
        privatePrefix: visible.optional().describe('What stands before the private half, which only signs.'),
      })
      .prefault({})
      .describe('How public keys are written, for ed25519 and ecdsa-p256.'),
    contentShape: z
      .enum(['json-object', 'json-array', 'json-object-or-array'])
      .optional()
      .describe('What signed content must be; needed where nothing stands between it and what is signed beside it.'),
    isPortOptional: z
      .literal(true)
      .optional()
      .describe("The sender may sign the URL with its scheme's own port written out, or without."),
    contentDigestParameter: parameterName
      .optional()
      .describe('The query parameter that holds the SHA-256 of the content in hex, in place of the `form` piece.'),
    decodedInUrl: z
      .string()
      .regex(/^[!-/:-@[-`{-~]{1,32}$/, 'up to 32 punctuation marks')
      .optional()
      .describe('Escapes of these characters in the URL are signed decoded.'),
  })
  .transform(
    (written): SchemeDescription => ({
      ...withoutAbsent(written),
      name: 'custom',
      tolerance: minutes(5),
      contentTypes: JSON_ONLY,
    }),
  );

/** Without the fields that are undefined, at any depth: a description has what the scheme has, and nothing else. */
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
