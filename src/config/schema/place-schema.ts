/** The schemas of places in a request, and of the values there that a sender signs. */
import * as z from 'zod';
import { parseJsonListPath, parseJsonPath } from '../../core/json-path.ts';
import { XML_PATH } from '../../verify/schemes/xml-path.ts';
import { claimPath } from './jwt-schema.ts';

/** Header fields are tokens (RFC 9110 §5.6.2). */
export const headerName = z.string().regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/, 'a header name must be a token (RFC 9110 §5.6.2)');
export const visible = z.string().regex(/^[\x20-\x7e]{0,32}$/, 'must be up to 32 visible ASCII characters');
export const literal = z
  .string()
  .regex(/^[\x20-\x7e\t\r\n]{0,64}$/, 'must be up to 64 visible ASCII characters, spaces, tabs and line ends ("\\n")');

export const parameterName = z
  .string()
  .regex(/^[A-Za-z0-9_.-]{1,64}$/, 'a parameter name is 1 to 64 letters, digits, dots, dashes and underscores');

export const jsonPath = z
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

export const fieldName = z
  .string()
  .regex(/^[A-Za-z0-9_.[\]-]{1,64}$/, 'a form field is 1 to 64 letters, digits, dots, dashes, underscores and brackets');
export const separator = literal.min(1, 'the separator is empty');
export const index = z.int().min(0).max(15);

export const inHeader = z.strictObject({ header: headerName.describe('Name of the header.') });
export const inQuery = z.strictObject({ query: parameterName.describe('Name of the query parameter.') });
export const inSignature = z.strictObject({
  signaturePart: index.describe('Position in the parts of the signature, counted from 0 (`signature.parts`).'),
});
export const inBody = z.strictObject({ json: jsonPath.describe('Path in the JSON body.') });
export const inForm = z.strictObject({
  form: fieldName.describe('Name of the form field.'),
  path: jsonPath.optional().describe('Path in the field, if its value is JSON.'),
});

export const inToken = z.strictObject({ claim: claimPath.describe('Claim of the JSON Web Token: its name, or a JSON path.') });

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
  type: z.enum(['string', 'integer', 'boolean']).optional().describe('Required type of a value in JSON. Default: string.'),
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

export const piece = z.union(
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
    inBody.extend(fieldOptions),
    inForm.extend(fieldOptions),
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
