/** Signs requests of schemes with ID, timestamp and signature in headers; others: sign-anywhere.ts. */
import { SidegateError } from '../../core/errors.ts';
import type { Chunks } from '../../core/hmac.ts';
import type { Secret } from '../../core/secret.ts';
import { ALGORITHMS } from './algorithms.ts';
import { TIMESTAMP_FORMATS } from './coverage.ts';
import type { SchemeDescription, SecretEncoding, SignatureDescription, SignatureEncoding } from './description.ts';
import { Material, readMaterial } from './keys.ts';
import { compilePieces } from './layout.ts';
import type { Message, Scheme, SignedRequest, SignRequest } from './scheme.ts';
import { MAX_PARAMETERS, toFormText } from './strict-form.ts';
import { compileUrlForms } from './url.ts';

/** A secret's text, and how it is decoded. */
export interface EncodedKey {
  readonly secret: Secret;
  readonly encoding: SecretEncoding | undefined;
}

const ENCODERS: Readonly<Record<SignatureEncoding, (bytes: Buffer) => string>> = {
  hex: (bytes) => bytes.toString('hex'),
  base64: (bytes) => bytes.toString('base64'),
  base64url: (bytes) => bytes.toString('base64url'),
  text: (bytes) => bytes.toString('latin1'),
  // Tokens are signed by token.ts.
  jwt: () => '',
};

/** Compiles the function that signs a request by headers. */
export function compileSigner(description: SchemeDescription): Scheme['signRequest'] {
  const { signature } = description;
  return (request, secret, encoding) => {
    const { url = '', body } = request;
    const headers = signature === undefined ? [] : sign({ ...description, signature }, request, { secret, encoding });
    return { headers, url, body };
  };
}

/** The headers of a signed request; throws SidegateError('user') if signing changed the body or the URL. */
export function toHeaders({ url = '', body }: SignRequest, signed: SignedRequest): SignedRequest['headers'] {
  if (signed.url === url && signed.body.equals(body)) return signed.headers;
  throw cannotSign('this scheme has its signature in the body or the query, not in a header');
}

/** The key that signs; throws SidegateError('user') if it cannot. */
export function readSigningMaterial(description: SchemeDescription, { secret, encoding }: EncodedKey): Material {
  const { content } = description.signature ?? {};
  if (content !== undefined) throw cannotSign(`this scheme has no signature header: put the secret into the body at ${content}`);
  const material = readMaterial(secret, { description, encoding, purpose: 'sign' });
  if (!(material instanceof Material)) throw cannotSign(`${material.problem}: ${material.hint}`);
  return material;
}

/** The entry with the signature of these bytes. */
export function toEntry({ forms, encoding }: SignatureDescription, { algorithm, key }: Material, chunks: Chunks): string {
  const form = forms.find((each) => each.algorithm === algorithm);
  return `${form?.prefix}${ENCODERS[encoding](ALGORITHMS[algorithm].sign(key, chunks))}`;
}

/** The error for a secret or a request that cannot be signed. */
export function cannotSign(message: string): SidegateError {
  return new SidegateError('user', 'secret_cannot_sign', message);
}

function sign(
  description: SchemeDescription & { readonly signature: SignatureDescription },
  request: SignRequest,
  key: EncodedKey,
): [string, string][] {
  const { signature, id, timestamp } = description;
  const material = readSigningMaterial(description, key);
  const timestampText = timestamp === undefined ? undefined : TIMESTAMP_FORMATS[timestamp.unit].format(request.timestamp);
  const message: Message = { method: 'POST', url: '', ...request };
  const [url = ''] = compileUrlForms(description)(message.url);
  const chunks = compilePieces(description)({ id: request.id, timestampText }, message)(url);
  if (chunks === undefined) throw cannotSign(toUnsignable(description, message.body));
  const entry = toEntry(signature, material, chunks);
  const headers: [string, string][] = [];
  if (id !== undefined && 'header' in id) headers.push([id.header, request.id]);
  if (timestamp !== undefined && 'header' in timestamp.from) headers.push([timestamp.from.header, timestampText ?? '']);
  const isInEntry = timestamp !== undefined && 'entry' in timestamp.from;
  const time = isInEntry && 'entry' in timestamp.from ? `${timestamp.from.entry}${timestampText}${signature.list}` : '';
  headers.push([signature.header, `${time}${entry}`]);
  return headers;
}

/** Why no signature can be valid for a message. */
function toUnsignable({ name, signed }: SchemeDescription, body: Buffer): string {
  if (signed.includes('receiverId')) return `${name} signs the ID of the receiver: name a config whose route has receiverId`;
  return toFormText(body) === undefined
    ? `the body is not a form of at most ${MAX_PARAMETERS} parameters, which alone can be signed: correct it`
    : 'the URL contains the digest of another body: remove the parameter';
}
