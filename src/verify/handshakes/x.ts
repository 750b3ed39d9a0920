/** X's CRC: a GET that requests the HMAC of a token, computed with the function that signs deliveries. */
import type { HeaderFields } from '../../core/headers.ts';
import { Refusal } from '../../core/refusal.ts';
import { toMac } from '../schemes/mac.ts';
import type { Scheme, VerifyKey } from '../schemes/scheme.ts';
import {
  decline,
  declineTokenLike,
  failForMissingSecret,
  type Handshake,
  type HandshakeOptions,
  respondWithJson,
} from './handshake.ts';
import { hasOnly, type Parameters, parseParameters } from './parameters.ts';

const TOKEN = /^[A-Za-z0-9+/_.-]{1,256}={0,2}$/;

/**
 * Implements https://docs.x.com/x-api/webhooks/quickstart. Anyone can request the HMAC of any token, so these HMACs must never be valid
 * for other requests. A token is neither JSON nor the query that X signs, and a body that could be a token is not a delivery.
 */
export function createX({ scheme }: HandshakeOptions): Handshake {
  return {
    open({ method, query, headers }, { keys }) {
      if (method !== 'GET' || query?.includes('crc_token') !== true) return undefined;
      const parameters = parseParameters(query);
      if (parameters === undefined || !hasOnly(parameters, ['crc_token'], ['nonce']))
        return decline('the query must consist of crc_token and nonce, each once');
      return respondToToken(scheme, { query, headers, parameters }, keys);
    },
    signed: ({ body }) => declineTokenLike(body, 'crc_token'),
  };
}

interface CrcRequest {
  readonly query: string;
  readonly headers: HeaderFields;
  readonly parameters: Parameters;
}

function respondToToken(scheme: Scheme, { query, headers, parameters }: CrcRequest, keys: readonly VerifyKey[]): Refusal {
  const token = parameters.get('crc_token') ?? '';
  if (!TOKEN.test(token)) return decline('crc_token is not 1 to 256 base64 characters');
  const key = findSigner(scheme, headers, [query, `crc_token=${token}&nonce=${parameters.get('nonce') ?? ''}`], keys);
  if (key === 'none') return decline('no key matches the signature');
  const mac = key === undefined ? undefined : toMac(key, token);
  if (mac === undefined) return failForMissingSecret('no key of this route is usable');
  return respondWithJson('x', { response_token: `sha256=${mac.toString('base64')}` });
}

/** X signs the query when a webhook is created or checked manually. Its hourly checks are unsigned; then the first key is used. */
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
