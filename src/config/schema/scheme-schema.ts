/** The schema of a custom signature scheme, with the same fields as the presets. */
import * as z from 'zod';
import { FORMS, JSON_ONLY, JSON_OR_FORM, minutes, URL_ENCODED } from '../../verify/presets/defaults.ts';
import type { SchemeDescription } from '../../verify/schemes/description.ts';
import { MAX_SIGNATURE_ENTRIES } from '../../verify/schemes/signature-entries.ts';
import { TIMESTAMP_UNITS } from '../../verify/schemes/timestamp.ts';
import { certificate, customJwt } from './jwt-schema.ts';
import {
  fieldName,
  headerName,
  idSource,
  inBody,
  index,
  inForm,
  inHeader,
  inQuery,
  inSignature,
  inToken,
  jsonPath,
  literal,
  parameterName,
  piece,
  separator,
  visible,
} from './place-schema.ts';

/** Without a prefix, an attacker's entry could be the timestamp as well as the sender's. */
const entryPrefix = visible.min(1, 'the prefix is empty, so any entry could be the timestamp; write for example t=');
const ALGORITHMS = [
  'hmac-sha1',
  'hmac-sha256',
  'hmac-sha384',
  'hmac-sha512',
  'sha256-secret-first',
  'sha256-secret-last',
  'ed25519',
  'ecdsa-p256',
  'rsa-sha256',
  'rsa-sha512',
  'rsa-pss-sha256',
  'rsa-pss-sha512',
  'token',
] as const;
/** Algorithms that a sender may use, but custom schemes do not know: a similar name would be another algorithm, not a correction. */
const OTHER_ALGORITHM = /rsa|^[rpe]s\d|p-?(?:384|521)|sha-?224|sha-?3(?!84)|^sha-?384|md5|ed448/i;

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
      z.strictObject({
        entry: visible.describe('Prefix of the entry in the signature header; with `first` it can be empty.'),
        first: z
          .literal(true)
          .describe('The timestamp is the first entry in the signature header, and the others are signatures.'),
        unit,
      }),
      inBody.extend({ unit }),
      inQuery.extend({ unit }),
      inSignature.extend({ unit }),
      inForm.extend({ unit }),
      inToken.extend({ unit }),
    ],
    {
      error:
        'expected { header: NAME }, { entry: PREFIX }, { json: PATH }, { query: NAME }, { form: NAME }, { claim: NAME } or { signaturePart: INDEX }, each with unit: s, ms, rfc3339 or http-date',
    },
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
    .describe(
      'Signature algorithm; `token` stands for the secret itself. `sha256-secret-first` and `sha256-secret-last` are the SHA-256 of the secret and the signed bytes; the first is secure only with a body that must be JSON (`contentShape`).',
    ),
});

const signature = z.strictObject({
  header: headerName.default('').describe('Header that contains the signature.'),
  moreHeaders: z
    .array(headerName)
    .min(1)
    .max(MAX_SIGNATURE_ENTRIES - 1)
    .optional()
    .describe('Further headers that may contain a signature; at least one of all must be present.'),
  query: parameterName.optional().describe('Query parameter that contains the signature, instead of a header.'),
  json: jsonPath.optional().describe('Path of the signature in the JSON body, instead of a header.'),
  form: fieldName.optional().describe('Form field that contains the signature, instead of a header.'),
  path: jsonPath.optional().describe('Path of the signature in that form field, if its value is JSON.'),
  encoding: z
    .enum(['hex', 'base64', 'base64url', 'text', 'jwt'])
    .default('hex')
    .describe('Encoding of the signature; `text` is for tokens only, `jwt` for JSON Web Tokens.'),
  list: z
    .enum([',', ';', ' ', '&', '|', ':'])
    .optional()
    .describe(
      `Separator of the entries in the header, at most ${MAX_SIGNATURE_ENTRIES}. Default: the header contains one entry.`,
    ),
  parts: z
    .strictObject({
      separator: separator.describe('Separator of the parts of an entry.'),
      count: z.int().min(2).max(16).describe('Number of parts; entries with another number are ignored.'),
      signature: index.describe('Which part is the signature, counted from 0.'),
    })
    .optional()
    .describe('If each entry consists of several parts, such as a public key and the signature.'),
  forms: z
    .array(form)
    .min(1)
    .max(4)
    .default([{ prefix: '', algorithm: 'hmac-sha256' }])
    .describe('Accepted kinds of entries; other entries are ignored.'),
});

/** A whole scheme. */
export const customScheme = z
  .strictObject({
    signature: signature.meta({ examples: [{ header: 'X-Signature' }] }).describe('Where the signature is, and its format.'),
    signed: z
      .array(piece)
      .max(24)
      .default(['body'])
      .describe(
        'The parts that are signed, in order; [] for tokens. With `jwt` it follows from `jwt`. `target` is path and query, `url` also the origin (`publicUrl`); `…WithoutSignature` omits the field or parameter with the signature.',
      ),
    separator: literal.default('').describe('Separator between the signed parts.'),
    unsignedBody: z
      .literal(true)
      .optional()
      .describe(
        'Accepts a signature that does not cover the whole body: anyone who captured a delivery before the app handled it can change the rest.',
      ),
    onlySignedFields: z
      .literal(true)
      .optional()
      .describe('Rejects forms with other fields than those that are signed and the one with the signature.'),
    contentField: fieldName
      .optional()
      .describe('The only field of a form, whose value is signed in place of the body. JSON bodies are signed as they are.'),
    timestamp: timestamp.optional().describe('Where the signed timestamp is. Default: no timestamp.'),
    kind: z
      .array(headerName)
      .min(1)
      .max(4)
      .optional()
      .describe(
        'Unsigned headers that distinguish kinds of events with possibly identical bodies; each kind counts as a separate event.',
      ),
    perAttempt: z
      .array(z.union([inHeader, inQuery, inSignature, inBody, inForm]))
      .min(1)
      .max(8)
      .optional()
      .describe(
        'Values that are new in each attempt to deliver an event and mean nothing to the app, such as a signed nonce: a retry is recognized without them. The signature and a signed timestamp need not be listed. Anyone can change one that is not signed; it can then be missing, or be a list or an object.',
      ),
    comparedHeaders: z
      .array(headerName)
      .min(1)
      .max(8)
      .optional()
      .describe(
        'Unsigned headers that the app reads: a delivery with other values than the one that was handled gets 503. Names that end in `-Event`, `-Topic`, `-Type` and similar words need no entry.',
      ),
    id: idSource.optional().describe('Where the ID is. Default: the digest of the signed bytes serves as the ID.'),
    secret: z
      .strictObject({
        encoding: z.enum(['utf8', 'base64', 'hex']).default('utf8').describe('Encoding of the secrets that the sender issues.'),
        prefix: visible.optional().describe('Prefix of these secrets.'),
        digest: z.enum(['sha1', 'sha256']).optional().describe('If the key is this digest of the secret.'),
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
      .describe('Format of public keys, for ed25519, ecdsa-p256 and rsa-*.'),
    certificate: certificate.optional(),
    jwt: customJwt.optional(),
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
      ...(written.jwt === undefined ? undefined : { signed: signsBody(written.jwt) ? ['body'] : [] }),
      name: 'custom',
      tolerance: minutes(5),
      contentTypes: toContentTypes(written),
    }),
  );

/** Whether a token signs the body: it is in the body, or contains its digest. */
function signsBody({ content, bodyHash }: z.output<typeof customJwt>): boolean {
  return content !== undefined || bodyHash !== undefined;
}

interface WrittenContent {
  readonly signature: object;
  readonly signed: readonly unknown[];
  readonly contentField?: string | undefined;
}

/** A scheme that reads form fields gets forms, others JSON. */
function toContentTypes({ signature, signed, contentField }: WrittenContent): readonly string[] {
  if (contentField !== undefined) return JSON_OR_FORM;
  if (signed.some((piece) => typeof piece === 'object' && piece !== null && 'sortedForm' in piece)) return URL_ENCODED;
  const hasField = [signature, ...signed].some(
    (place) => typeof place === 'object' && place !== null && 'form' in place && place.form !== undefined,
  );
  return hasField ? FORMS : JSON_ONLY;
}

/** Removes undefined fields at any depth, so that a description has exactly the fields that the scheme uses. */
function withoutAbsent<T>(value: T): Present<T> {
  if (Array.isArray(value)) return value.map(withoutAbsent) as Present<T>;
  if (typeof value !== 'object' || value === null) return value as Present<T>;
  const fields = Object.entries(value).filter(([, field]) => field !== undefined);
  return Object.fromEntries(fields.map(([name, field]) => [name, withoutAbsent(field)])) as Present<T>;
}

type Present<T> = T extends readonly (infer Item)[]
  ? Present<Item>[]
  : T extends object
    ? { [Key in keyof T]: Present<Exclude<T[Key], undefined>> }
    : T;
