/** Schemes whose signature is a JSON Web Token: reads it from its header or the body, and turns what is wrong with it into refusals. */

import type { DecodedToken, SealedToken, SignedHead } from '../../core/event.ts';
import { isJsonObject } from '../../core/json-path.ts';
import { Refusal, refuse } from '../../core/refusal.ts';
import type { Secret } from '../../core/secret.ts';
import { coversQueryOf, TIMESTAMP_FORMATS } from './coverage.ts';
import type { SchemeDescription } from './description.ts';
import { compileFieldCheck, type ReadHead, VALID_ID } from './head.ts';
import { compileClaim, type Identify, toText } from './identity.ts';
import { compileJwt } from './jwt/jwt.ts';
import type { ChainDescription } from './key-description.ts';
import type { GivenToken, Jwt, Message, Scheme, TokenProblem, VerifyKey, VerifyToken } from './scheme.ts';
import { cannotSign, readSigningMaterial } from './sign.ts';
import { parseStrictQuery } from './strict-form.ts';
import { toQuery } from './url.ts';

/** The part of a scheme that its tokens need. */
export interface TokenScheme {
  readonly jwt: Jwt;
  readonly readHead: ReadHead;
  readonly verify: VerifyToken;
}

/** Adds a token to a head; the refusal is for a token without its time. */
type AddToken = (head: SignedHead, token: DecodedToken) => SignedHead | Refusal;

/** Compiles it; loads the bundle of the tokens. */
export function compileToken(description: SchemeDescription, identify: Identify): TokenScheme {
  const jwt = compileJwt(description);
  const addToken = compileAddToken(description, jwt);
  const verify = compileVerify(jwt, addToken, identify, compileHashedContent(description));
  return {
    jwt,
    readHead: compileTokenHead(description, jwt, addToken),
    verify: withNewKeys(jwt.readBody === undefined ? verify : inTurn(verify)),
  };
}

/** Verifies tokens one after another: while threads compute a digest, each token in a body takes several times its size in memory. */
function inTurn(verify: VerifyToken): VerifyToken {
  let last: ReturnType<VerifyToken> = Promise.resolve('mismatch');
  return (...input) => {
    const next = () => verify(...input);
    last = last.then(next, next);
    return last;
  };
}

/** While a token waits, the key that signed it may arrive, so it is never rejected because of the keys that the route had before. */
function withNewKeys(verify: VerifyToken): VerifyToken {
  return async (head, message, readKeys, at) => {
    for (;;) {
      let tried: readonly VerifyKey[] = [];
      const readTried = (): readonly VerifyKey[] => {
        tried = readKeys();
        return tried;
      };
      const verified = await verify(head, message, readTried, at);
      if (verified !== 'mismatch' || readKeys().every((key) => tried.includes(key))) return verified;
    }
  };
}

function compileVerify(jwt: Jwt, addToken: AddToken, identify: Identify, toHashedContent: ToHashedContent): VerifyToken {
  const readToken = compileTokenReader(jwt);
  return async (given, message, readKeys, at) => {
    const token = readToken(given, message.body);
    if (token instanceof Refusal) return token;
    const content = toHashedContent(message);
    if (content instanceof Refusal) return content;
    const verified = await jwt.verify(token, content, readKeys(), at);
    if (verified === 'mismatch') return verified;
    if ('problem' in verified) return toRefusal(verified);
    const head = given.token === undefined ? addToken(given, verified.token) : given;
    if (head instanceof Refusal) return head;
    const identity = identify(head, message, () => [token.text.slice(0, token.text.lastIndexOf('.'))]);
    return 'problem' in identity ? malformed(identity.problem) : { key: verified.key, identity };
  };
}

function compileTokenReader({ readBody }: Jwt): (given: SignedHead, body: Buffer) => SealedToken | DecodedToken | Refusal {
  return (given, body) => {
    const token = given.token ?? readBody?.(body);
    if (token === undefined) return refuse('missing_signature', 'missing_signature');
    return 'problem' in token ? toRefusal(token) : token;
  };
}

type ToHashedContent = (message: Message) => Buffer | Refusal;

/** Selects the content whose digest is in the token: the body, or the parameters of a request without one. */
export function compileHashedContent(description: SchemeDescription): ToHashedContent {
  return ({ method, query = '', body }) => {
    if (!coversQueryOf(description, method)) return body;
    if (body.length > 0) return malformed(`a ${method} request has a body, which the token does not sign`);
    const parsed = parseStrictQuery(query);
    if (parsed.kind === 'problem') return malformed(`the query is ambiguous: ${parsed.problem}`);
    const members = parsed.fields.map(({ name, value }) => `${toJsonText(name)}:${toJsonText(value)}`);
    return Buffer.from(`{${members.join(',')}}`);
  };
}

/** The JSON string of a text in latin1, one character per byte of UTF-8. */
function toJsonText(text: string): string {
  return JSON.stringify(Buffer.from(text, 'latin1').toString('utf8'));
}

function compileTokenHead(description: SchemeDescription, jwt: Jwt, addToken: AddToken): ReadHead {
  const { signature, id: source } = description;
  const findRepeated = compileFieldCheck(description);
  const idName = source !== undefined && 'header' in source ? source.header.toLowerCase() : undefined;
  const name = signature?.header.toLowerCase() ?? '';
  return (headers) => {
    const repeated = findRepeated(headers);
    if (repeated !== undefined) return repeated;
    const id = idName === undefined ? undefined : headers.get(idName) || undefined;
    if (id !== undefined && !VALID_ID.test(id)) return malformed('the ID is not 1 to 256 visible ASCII characters');
    const head = { id, timestampText: undefined, timestamp: undefined, signatures: [] };
    if (jwt.readBody !== undefined) return head;
    const text = headers.get(name) ?? '';
    if (text === '') return refuse('missing_signature', 'missing_signature');
    const token = jwt.readHeader(text);
    return 'problem' in token ? toRefusal(token) : addToken(head, token);
  };
}

function compileAddToken({ timestamp: time }: SchemeDescription, { toAlgorithm }: Jwt): AddToken {
  const toSigned = (head: SignedHead, token: DecodedToken): SignedHead => ({
    ...head,
    signatures: [{ algorithm: toAlgorithm(token), bytes: token.signature }],
    token,
  });
  if (time === undefined || !('claim' in time.from)) return toSigned;
  const { claim } = time.from;
  const readClaim = compileClaim(claim);
  const format = TIMESTAMP_FORMATS[time.unit];
  return (head, token) => {
    const timestampText = toText(readClaim(token.claims)) ?? '';
    const timestamp = format.parse(timestampText);
    if (timestamp === undefined) return malformed(`the claim ${claim} is not ${format.form}`);
    return { ...toSigned(head, token), timestampText, timestamp };
  };
}

/** Compiles the function that signs a request by a token in a header, or by a token in place of a body with its claims. */
export function compileTokenSigner(description: SchemeDescription, jwt: Jwt): Scheme['signRequest'] {
  const { name, signature, id, jwt: { content, chain: rules } = {} } = description;
  const { prefix = '' } = signature?.forms[0] ?? {};
  const toHashedContent = compileHashedContent(description);
  return (request, secret, encoding) => {
    if (signature === undefined) throw cannotSign(`${name} has no signature`);
    const material = readSigningMaterial(description, { secret, encoding });
    const chain = rules === undefined ? undefined : readChain(secret, rules);
    const claims = content === undefined ? {} : readClaims(request.body);
    const { url: target = '', method = 'POST' } = request;
    const hashed = toHashedContent({ query: toQuery(target), ...request, url: target, method });
    if (hashed instanceof Refusal) throw cannotSign(`the request cannot be signed: ${hashed.detail}`);
    const token = jwt.sign({ ...request, body: hashed }, material, { claims, chain });
    const headers: [string, string][] = id !== undefined && 'header' in id ? [[id.header, request.id]] : [];
    const { url = '', body } = request;
    if (content !== undefined) return { headers, url, body: Buffer.from(toContent(content, token)) };
    return { headers: [...headers, [signature.header, `${prefix}${token}`]], url, body };
  };
}

/** The token is the body, or the only member of it. */
function toContent(path: string, token: string): string {
  return path === '$' ? token : JSON.stringify({ [path.slice('$.'.length)]: token });
}

function readClaims(body: Buffer): GivenToken['claims'] {
  try {
    const claims: unknown = JSON.parse(body.toString('utf8'));
    if (isJsonObject(claims)) return claims as GivenToken['claims'];
  } catch {
    // The error below says it.
  }
  throw cannotSign('the body is signed as the claims of a token, so it must be a JSON object');
}

const [BEGIN, END] = ['-----BEGIN CERTIFICATE-----', '-----END CERTIFICATE-----'];

/** The certificates beside the private key, that of the signer first. */
function readChain(secret: Secret, { extensions }: ChainDescription): string[] {
  const [, ...parts] = secret.expose().toString('latin1').split(BEGIN);
  const found = parts.map((part) => (part.split(END, 1)[0] ?? '').replaceAll(/\s/g, ''));
  if (found.length >= extensions.length) return found;
  throw cannotSign(
    `the token contains a chain of ${extensions.length} certificates: put them into the secret after the private key, that of the signer first`,
  );
}

function malformed(detail: string): Refusal {
  return refuse('malformed_signature', 'malformed_signature', detail);
}

function toRefusal({ problem, kind }: TokenProblem): Refusal {
  switch (kind) {
    case 'malformed':
      return malformed(problem);
    case 'stranger':
      return refuse('signature_mismatch', 'sender_not_allowed', problem);
    case 'altered':
      return refuse('signature_mismatch', 'bad_signature', problem);
    case 'old':
      return refuse('timestamp_outside_tolerance', 'timestamp_old', problem);
    case 'future':
      return refuse('timestamp_outside_tolerance', 'timestamp_future', problem);
  }
}
