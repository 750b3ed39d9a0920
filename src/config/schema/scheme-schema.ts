/** The schema of a custom signature scheme, with the same fields as the presets. */
import * as z from 'zod';
import { parseJsonListPath, parseJsonPath } from '../../core/json-path.ts';
import { FORMS, JSON_ONLY, JSON_OR_FORM, minutes, URL_ENCODED } from '../../verify/presets/shapes.ts';
import { needsForm, needsUrlEncoded, TIMESTAMP_UNITS } from '../../verify/schemes/coverage.ts';
import type { SchemeDescription } from '../../verify/schemes/description.ts';
import { MAX_SIGNATURE_ENTRIES } from '../../verify/schemes/head.ts';
import { XML_PATH } from '../../verify/schemes/xml-path.ts';
import { certificate, claimPath, customJwt } from './key-schema.ts';

// The schemas of places in a request, and of the values there that a sender signs.

/** Header fields are tokens (RFC 9110 §5.6.2). */
const headerName = z.string().regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/, 'a header name must be a token (RFC 9110 §5.6.2)');
const visible = z.string().regex(/^[\x20-\x7e]{0,32}$/, 'must be up to 32 visible ASCII characters');
const literal = z
  .string()
  .regex(/^[\x20-\x7e\t\r\n]{0,64}$/, 'must be up to 64 visible ASCII characters, spaces, tabs and line ends ("\\n")');

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

const fieldName = z
  .string()
  .regex(/^[A-Za-z0-9_.[\]-]{1,64}$/, 'a form field is 1 to 64 letters, digits, dots, dashes, underscores and brackets');
const separator = literal.min(1, 'the separator is empty');
const index = z.int().min(0).max(15);

const inHeader = z.strictObject({ header: headerName.describe('Name of the header.') });
const inQuery = z.strictObject({ query: parameterName.describe('Name of the query parameter.') });
const inSignature = z.strictObject({
  signaturePart: index.describe('Position in the parts of the signature, counted from 0 (`signature.parts`).'),
});
const inBody = z.strictObject({ json: jsonPath.describe('Path in the JSON body.') });
const inForm = z.strictObject({
  form: fieldName.describe('Name of the form field.'),
  path: jsonPath.optional().describe('Path in the field, if its value is JSON.'),
});

const inToken = z.strictObject({ claim: claimPath.describe('Claim of the JSON Web Token: its name, or a JSON path.') });

const headerPart = z
  .strictObject({
    separator: separator.describe('Separator of the parts.'),
    index: index.describe('Position of the part, counted from 0.'),
  })
  .optional()
  .describe('If only a part of the header is the ID.');
const xmlPath = z
  .string()
  .regex(XML_PATH, 'a path in XML consists of element names with / between them, such as notification/id')
  .meta({ examples: ['notification/id'] });

/** Where the ID of a delivery is. */
export const idSource = z.union(
  [
    inHeader.extend({ part: headerPart }),
    z.strictObject({ json: idPath.describe('Path in the JSON body; [*] stands for each item of a list.') }),
    inQuery,
    inSignature,
    inForm,
    inToken,
    z.strictObject({ xml: xmlPath.describe('Path of the element in the XML body.') }),
  ],
  {
    error:
      'expected { header: NAME }, { json: PATH }, { query: NAME }, { form: NAME }, { xml: PATH }, { claim: NAME } or { signaturePart: INDEX }',
  },
);

/** How a signed value becomes text. */
const fieldOptions = {
  optional: z.literal(true).optional().describe('Signs a missing value as empty text.'),
  mayContainSeparator: z
    .literal(true)
    .optional()
    .describe('Accepts a value that contains the text between the signed parts. At most one part can have this.'),
  escape: z
    .literal('backslash')
    .optional()
    .describe('Writes a backslash before each backslash, and before each first character of the separator.'),
};

const type = z.enum(['string', 'integer', 'boolean']).optional().describe('Required type of a value in JSON. Default: string.');

const piece = z.union(
  [
    z.enum([
      'id',
      'timestamp',
      'body',
      'bodyWithoutSignature',
      'method',
      'url',
      'urlWithoutSignature',
      'target',
      'form',
      'crc32',
      'receiverId',
    ]),
    z.strictObject({ text: literal.describe('A literal string.') }),
    inHeader.extend(fieldOptions),
    inQuery.extend(fieldOptions),
    inBody.extend({ type, ...fieldOptions }),
    inForm
      .extend({ type, ...fieldOptions })
      .refine((place) => place.type === undefined || place.path !== undefined, 'only a value in JSON has a type: remove type'),
    inSignature.extend(fieldOptions),
    z.strictObject({
      headersIn: headerName.describe(
        'Header that lists, with commas, the headers that are signed: sorted, each as `name:value`, separated by semicolons.',
      ),
    }),
    z.strictObject({
      sortedForm: z
        .record(fieldName, z.string().max(64))
        .describe(
          'All fields of a URL-encoded form but the signature, sorted by name, each as `name=value`, with `&` between them. The fields that are listed here are not signed, and must have these values.',
        ),
    }),
    z.strictObject({ bodySha256: z.enum(['hex', 'base64']).describe('Encoding of the SHA-256 of the body.') }),
  ],
  {
    error:
      'expected id, timestamp, body, bodyWithoutSignature, method, url, urlWithoutSignature, target, form, crc32, receiverId, { text: … }, { header: … }, { query: … }, { json: … }, { form: … }, { signaturePart: … }, { headersIn: … }, { sortedForm: { … } } or { bodySha256: … }',
  },
);

/** Without a prefix, an attacker's entry could be the timestamp as well as the sender's. */
const entryPrefix = visible.min(1, 'the prefix is empty, so any entry could be the timestamp; write for example t=');
// The signature, what it covers, and the whole scheme.

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
        prefix: visible
          .optional()
          .describe(
            'Prefix of public keys; distinguishes them from secrets if a scheme has both, and is then required for raw keys.',
          ),
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
      .regex(
        /^[!"$'-*,-/:;<>?@[-`{-~]{1,32}$/,
        'must be up to 32 punctuation marks without & = + % and #, which change what a URL means',
      )
      .optional()
      .describe('Characters whose percent-encoding in the URL is decoded before signing.'),
  })
  .transform((written): SchemeDescription => {
    const description: Omit<SchemeDescription, 'contentTypes'> = {
      ...withoutAbsent(written),
      ...(written.jwt === undefined ? undefined : { signed: signsBody(written.jwt) ? ['body'] : [] }),
      name: 'custom',
      tolerance: minutes(5),
    };
    return { ...description, contentTypes: toContentTypes(description) };
  });

/** Whether a token signs the body: it is in the body, or contains its digest. */
function signsBody({ content, bodyHash }: z.output<typeof customJwt>): boolean {
  return content !== undefined || bodyHash !== undefined;
}

/** A scheme that reads form fields gets forms, others JSON. */
function toContentTypes(description: Omit<SchemeDescription, 'contentTypes'>): readonly string[] {
  if (needsUrlEncoded(description)) return URL_ENCODED;
  if (needsForm(description)) return FORMS;
  return description.contentField !== undefined || description.signed.includes('form') ? JSON_OR_FORM : JSON_ONLY;
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
