/** X's CRC: a GET that asks for the HMAC of a token, the same function that signs its deliveries. */
import type { HeaderFields } from '../../core/headers.ts';
import { Refusal } from '../../core/refusal.ts';
import { toMac } from '../schemes/mac.ts';
import type { Scheme, VerifyKey } from '../schemes/scheme.ts';
import { answerJson, decline, declineForLack, type Handshake, type HandshakeOptions } from './handshake.ts';
import { hasOnly, type Parameters, parseParameters } from './parameters.ts';

const TOKEN = /^[A-Za-z0-9+/_.-]{1,256}={0,2}$/;
/** Whatever of a delivery could have been part of a token. */
const TOKEN_LIKE = /^[A-Za-z0-9+/_.=-]*$/;
const LONGEST_TOKEN = 258;

/**
 * https://docs.x.com/x-api/webhooks/quickstart. Anybody may ask, so everything that is signed here is as good as published:
 * a token is no JSON, nor the query that X signs, and content that could be a token is no delivery.
 */
export function createX({ scheme }: HandshakeOptions): Handshake {
  return {
    open({ method, query, headers }, { keys }) {
      if (method !== 'GET' || query?.includes('crc_token') !== true) return undefined;
      const parameters = parseParameters(query);
      if (parameters === undefined || !hasOnly(parameters, ['crc_token'], ['nonce']))
        return decline('not exactly crc_token and nonce, each once');
      return answerToken(scheme, { query, headers, parameters }, keys);
    },
    signed({ body }) {
      if (body.length > LONGEST_TOKEN || !TOKEN_LIKE.test(body.toString('latin1'))) return undefined;
      return decline('content that anybody could have had signed as a crc_token');
    },
  };
}

interface Question {
  readonly query: string;
  readonly headers: HeaderFields;
  readonly parameters: Parameters;
}

function answerToken(scheme: Scheme, { query, headers, parameters }: Question, keys: readonly VerifyKey[]): Refusal {
  const token = parameters.get('crc_token') ?? '';
  if (!TOKEN.test(token)) return decline('crc_token is not 1 to 256 letters, digits and signs of base64');
  const key = findSigner(scheme, headers, [query, `crc_token=${token}&nonce=${parameters.get('nonce') ?? ''}`], keys);
  if (key === 'none') return decline('signed by none of the keys');
  const mac = key === undefined ? undefined : toMac(key, token);
  if (mac === undefined) return declineForLack('no key of this route is usable');
  return answerJson('x', { response_token: `sha256=${mac.toString('base64')}` });
}

/** X signs the query when a webhook is made or checked by hand, and nothing each hour: then the first key is the one it uses. */
function findSigner(
  scheme: Scheme,
  headers: HeaderFields,
  queries: readonly string[],
  keys: readonly VerifyKey[],
): VerifyKey | 'none' | undefined {
  if (scheme.headerNames.every((name) => headers.count(name) === 0)) return keys[0];
  const head = scheme.readHead(headers, { allowDotInId: false });
  if (head instanceof Refusal) return 'none';
  let signer: VerifyKey | undefined;
  for (const query of queries)
    signer ??= scheme.verify(head, { method: 'GET', url: '', body: Buffer.from(query, 'latin1') }, keys);
  return signer ?? 'none';
}
