/** JSON Web Tokens: the entry point of a separate bundle, which only configs with such a scheme load (ADR 19). */
import type { SealedToken } from '../../../core/event.ts';
import { parseStrictJson } from '../../../core/strict-json.ts';
import type { Algorithm, SchemeDescription, SignatureDescription } from '../description.ts';
import type { JwtDescription } from '../key-description.ts';
import type { Material } from '../keys.ts';
import { JWS_NAMES } from '../public-keys.ts';
import type { Jwt } from '../scheme.ts';
import { compileClaimChecks, compileStrangeClaims, readBodyHash } from './claims.ts';
import { malformed } from './problem.ts';
import { signToken } from './sign.ts';
import { decodeClaims, decodeSealed, type TokenForm } from './text.ts';
import { compileSignature } from './verify.ts';

const WHOLE_BODY = '$';
/** The name of a member of the outermost object. */
const MEMBER = /^\$\.([A-Za-z0-9_-]{1,64})$/;
/** Of the body; the values of the token are counted apart. */
const BODY_BOUNDS = { maxDepth: 2, maxValues: 16 };

/** Compiles the tokens of a scheme. */
export function compileJwt(description: SchemeDescription): Jwt {
  const { signature, jwt } = description;
  if (signature === undefined || jwt === undefined) throw new Error(`${description.name} has no token`);
  const form = toForm(signature, jwt);
  const algorithms = new Map(signature.forms.map(({ algorithm }) => [JWS_NAMES[algorithm], algorithm]));
  const toAlgorithm = ({ header }: SealedToken): Algorithm => algorithms.get(String(header['alg'])) as Algorithm;
  const verifySignature = compileSignature(jwt);
  const checkClaims = compileClaimChecks(jwt);
  const { bodyHash } = jwt;
  return {
    readHeader: compileHeader(signature, form),
    readBody: compileBody(jwt, form),
    readClaims: (token) => decodeClaims(token, form),
    async verify(token, body, keys, at) {
      const found = await verifySignature(token, toAlgorithm(token), keys, at);
      if (found === 'mismatch' || 'problem' in found) return found;
      const decoded = 'claims' in token ? token : decodeClaims(token, form);
      if ('problem' in decoded) return decoded;
      return checkClaims(decoded.claims, body) ?? { key: found, token: decoded };
    },
    toAlgorithm,
    listStrangeClaims: compileStrangeClaims(jwt),
    readBodyHash: (claims) => bodyHash && readBodyHash(bodyHash, claims),
    sign: (request, material, given) => signToken(description, request, material as Material, given),
  };
}

function compileHeader({ forms }: SignatureDescription, form: TokenForm): Jwt['readHeader'] {
  const { prefix = '' } = forms[0] ?? {};
  const start = prefix.toLowerCase();
  return (header) => {
    // The names of authentication schemes are case-insensitive (RFC 9110 §11.1).
    if (header.slice(0, prefix.length).toLowerCase() !== start) return malformed(`the token does not follow ${prefix.trim()}`);
    const token = decodeSealed(header.slice(prefix.length), form);
    return 'problem' in token ? token : decodeClaims(token, form);
  };
}

function compileBody({ content }: JwtDescription, form: TokenForm): Jwt['readBody'] {
  if (content === undefined) return undefined;
  if (content === WHOLE_BODY) return (body) => decodeSealed(body.toString('latin1'), form);
  const name = MEMBER.exec(content)?.[1];
  if (name === undefined) throw new Error(`${content} is not the path of a member`);
  return (body) => {
    const parsed = parseStrictJson(body, BODY_BOUNDS);
    if (parsed.kind === 'problem') return malformed(`the body: ${parsed.problem}`);
    const entries = Object.entries(parsed.value ?? {});
    const [[found, text] = []] = entries;
    // The token signs nothing beside itself, and the app could read what is there.
    if (entries.length !== 1 || found !== name || typeof text !== 'string')
      return malformed(`the body is not an object with ${name} and nothing else`);
    return decodeSealed(text, form);
  };
}

function toForm({ forms }: SignatureDescription, { chain, content }: JwtDescription): TokenForm {
  const algorithms = forms.flatMap(({ algorithm }) => JWS_NAMES[algorithm] ?? []);
  return { algorithms, hasChain: chain !== undefined, place: content === undefined ? 'header' : 'body' };
}
