/** Compiles a scheme's description when the config is loaded, so that requests make no decisions about it. */
import { SidegateError } from '../../core/errors.ts';
import type { SignedHead } from '../../core/event.ts';
import type { Secret } from '../../core/secret.ts';
import { ALGORITHMS, type AlgorithmEntry, type Chunks } from './algorithms.ts';
import { compileContentTokens } from './content-token.ts';
import type { SchemeDescription, SecretEncoding, SignatureEncoding } from './description.ts';
import { MAX_PARAMETERS, toFormText } from './form.ts';
import { compileHead, toHeaderNames } from './head.ts';
import { compileIdentity } from './identity.ts';
import { parseValidity } from './jwk-validity.ts';
import { Material, readJwk, readMaterial } from './keys.ts';
import { compilePieces } from './pieces.ts';
import type { KeyParsed, KeyProblem, Message, Scheme, SignRequest, VerifyKey } from './scheme.ts';
import { TIMESTAMP_FORMATS } from './timestamp.ts';
import { compileUrlForms } from './url.ts';

/** Shorter secrets can be guessed with any scheme. */
const MIN_SECRET_BYTES = 16;

/** Compiles a description. */
export function compileScheme(description: SchemeDescription): Scheme {
  const assemble = compilePieces(description);
  const toUrls = compileUrlForms(description);
  const identify = compileIdentity(description);
  const verifyContent = compileContentTokens(description.signature?.content);
  const { signed, contentDigestParameter } = description;
  const signsUrl = signed.includes('url') || contentDigestParameter !== undefined;
  return {
    description,
    name: description.name,
    headerNames: toHeaderNames(description),
    signsUrl,
    parseKey: (name, secret, encoding, notAfter) => parseKey(description, { name, secret, encoding, notAfter }),
    parseJwk(name, jwk) {
      const material = readJwk(jwk, description);
      const validity = parseValidity(jwk);
      return material === undefined || validity === undefined ? undefined : { name, material, ...validity };
    },
    readHead: compileHead(description),
    verify(head, message, keys) {
      if (verifyContent !== undefined) return verifyContent(message.body, keys);
      if (!signsUrl) return findKey(head, assemble(head, message)(''), keys);
      let match: VerifyKey | undefined;
      const toChunks = assemble(head, message);
      for (const url of toUrls(message.url)) match ??= findKey(head, toChunks(url), keys);
      return match;
    },
    identify: (head, message) => identify(head, message, () => assemble(head, message)(toUrls(message.url)[0] ?? '') ?? []),
    sign: (request, secret, encoding) => sign(description, request, secret, encoding),
  };
}

/** Never returns early: the time must not reveal which key or signature matched. */
function findKey(head: SignedHead, chunks: Chunks | undefined, keys: readonly VerifyKey[]): VerifyKey | undefined {
  if (chunks === undefined) return undefined;
  let match: VerifyKey | undefined;
  for (const key of keys) if (isSignedBy(key.material as Material, head, chunks)) match ??= key;
  return match;
}

function isSignedBy({ algorithm, key }: Material, { signatures }: SignedHead, chunks: Chunks): boolean {
  let check: ReturnType<AlgorithmEntry['checker']> | undefined;
  let isMatch = false;
  for (const signature of signatures) {
    if (signature.algorithm !== algorithm) continue;
    check ??= ALGORITHMS[algorithm].checker(key, chunks);
    if (check(signature.bytes)) isMatch = true;
  }
  return isMatch;
}

interface KeyText {
  readonly name: string;
  readonly secret: Secret;
  readonly encoding: SecretEncoding | undefined;
  readonly notAfter: number | undefined;
}

function parseKey(description: SchemeDescription, { name, secret, encoding, notAfter }: KeyText): KeyParsed | KeyProblem {
  const material = readMaterial(secret, { description, encoding, purpose: 'verify' });
  if (!(material instanceof Material)) return material;
  const key = { name, material, notAfter };
  const warning = findWeakness(description, secret, material.key.symmetricKeySize);
  return warning === undefined ? { key } : { key, warning };
}

/** `length` is undefined for public keys. */
function findWeakness(description: SchemeDescription, secret: Secret, length: number | undefined): string | undefined {
  if (length === undefined) return undefined;
  const { usualStart = '' } = description.secret;
  if (!secret.expose().toString('latin1').startsWith(usualStart))
    return `the secret does not start with ${usualStart}: this key should be ${description.from?.key ?? 'one that does'}`;
  const min = description.leastSecretBytes ?? MIN_SECRET_BYTES;
  return length < min ? `the secret has ${length} bytes; it should have at least ${min}` : undefined;
}

const ENCODERS: Readonly<Record<SignatureEncoding, (bytes: Buffer) => string>> = {
  hex: (bytes) => bytes.toString('hex'),
  base64: (bytes) => bytes.toString('base64'),
  base64url: (bytes) => bytes.toString('base64url'),
  text: (bytes) => bytes.toString('latin1'),
};

function sign(
  description: SchemeDescription,
  request: SignRequest,
  secret: Secret,
  encoding: SecretEncoding | undefined,
): [string, string][] {
  const { signature, id, timestamp } = description;
  if (signature === undefined) return [];
  if (signature.content !== undefined)
    throw new SidegateError(
      'user',
      'secret_cannot_sign',
      `this scheme has no signature header: put the secret into the body at ${signature.content}`,
    );
  const material = readMaterial(secret, { description, encoding, purpose: 'sign' });
  if (!(material instanceof Material))
    throw new SidegateError('user', 'secret_cannot_sign', `${material.problem}: ${material.hint}`);
  const timestampText = timestamp === undefined ? undefined : TIMESTAMP_FORMATS[timestamp.unit].format(request.timestamp);
  const message: Message = { method: 'POST', url: '', ...request };
  const [url = ''] = compileUrlForms(description)(message.url);
  const chunks = compilePieces(description)({ id: request.id, timestampText }, message)(url);
  if (chunks === undefined)
    throw new SidegateError(
      'user',
      'secret_cannot_sign',
      toFormText(message.body) === undefined
        ? `the form has more than ${MAX_PARAMETERS} parameters, which the gate rejects: send fewer`
        : 'the URL contains the digest of another body: remove the parameter',
    );
  const bytes = ALGORITHMS[material.algorithm].sign(material.key, chunks);
  const form = signature.forms.find(({ algorithm }) => algorithm === material.algorithm);
  const entry = `${form?.prefix}${ENCODERS[signature.encoding](bytes)}`;
  const headers: [string, string][] = [];
  if (id !== undefined && 'header' in id) headers.push([id.header, request.id]);
  if (timestamp !== undefined && 'header' in timestamp.from) headers.push([timestamp.from.header, timestampText ?? '']);
  const isInEntry = timestamp !== undefined && 'entry' in timestamp.from;
  const time = isInEntry && 'entry' in timestamp.from ? `${timestamp.from.entry}${timestampText}${signature.list}` : '';
  headers.push([signature.header, `${time}${entry}`]);
  return headers;
}
