/** Handshakes by GET that request the HMAC of a challenge, computed with the function that signs deliveries. */
import type { HeaderFields } from '../../core/head.ts';
import { Refusal } from '../../core/refusal.ts';
import { BodyContent } from '../schemes/body-values.ts';
import { findSecretKey, toMac } from '../schemes/keys.ts';
import type { Scheme, VerifyKey } from '../schemes/scheme.ts';
import {
  decline,
  declineTokenLike,
  failForMissingSecret,
  type Handshake,
  type HandshakeOptions,
  respondWithJson,
  respondWithText,
} from './handshake.ts';
import { compileQueryCheck, hasOnly, type Parameters, parseParameters, readParameters } from './parameters.ts';

const NO_KEY = 'no key of this route is usable';
const CRC_TOKEN = /^[A-Za-z0-9+/_.-]{1,256}={0,2}$/;

/**
 * X's CRC: a GET that requests the HMAC of a token, computed with the function that signs deliveries. Implements
 * https://docs.x.com/x-api/webhooks/quickstart. Anyone can request the HMAC of any token, so these HMACs must never be valid for other
 * requests. A token is neither JSON nor the query that X signs, and a body that could be a token is not a delivery.
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
  if (!CRC_TOKEN.test(token)) return decline('crc_token is not 1 to 256 base64 characters');
  const key = findSigner(scheme, headers, [query, `crc_token=${token}&nonce=${parameters.get('nonce') ?? ''}`], keys);
  if (key === 'none') return decline('no key matches the signature');
  const mac = toMac(key, token);
  if (mac === undefined) return failForMissingSecret(NO_KEY);
  return respondWithJson('x', { response_token: `sha256=${mac.toString('base64')}` });
}

/** X signs the query when a webhook is created or checked manually. Its hourly checks are unsigned; then the first key is used. */
function findSigner(
  scheme: Scheme,
  headers: HeaderFields,
  queries: readonly string[],
  keys: readonly VerifyKey[],
): VerifyKey | 'none' | undefined {
  if (scheme.headerNames.every((name) => headers.count(name) === 0)) return findSecretKey(keys);
  const head = scheme.readHead(headers, { allowDotInId: false });
  if (head instanceof Refusal) return 'none';
  let signer: VerifyKey | undefined;
  for (const query of queries)
    signer ??= scheme.verify(head, { method: 'GET', url: '', body: Buffer.from(query, 'latin1') }, keys);
  return signer ?? 'none';
}

const CHALLENGE_CODE = 'challengeCode';
/** A UUID. Without `=`: LinkedIn's signed strings start with `hmacsha256=`, so no response can be the signature of a delivery. */
const UUID = /^[A-Za-z0-9-]{1,64}$/;

/**
 * LinkedIn: a GET, initially and every two hours, that requests the HMAC of its challengeCode.
 * https://learn.microsoft.com/linkedin/shared/api-guide/webhook-validation. The first key answers, because the code is not signed.
 * With parent and child applications, `applicationId` says whose secret must sign: that of the key with this name, if there is one.
 */
export function createLinkedIn(options: HandshakeOptions): Handshake {
  const checkQuery = compileQueryCheck(options);
  return {
    open({ method, query }, secrets) {
      if (method !== 'GET' || query?.includes(CHALLENGE_CODE) !== true) return checkQuery(query, secrets);
      const parameters = readParameters(query, [CHALLENGE_CODE], secrets, options, ['applicationId']);
      if (parameters instanceof Refusal) return parameters;
      const challengeCode = parameters.get(CHALLENGE_CODE) ?? '';
      if (!UUID.test(challengeCode)) return decline(`${CHALLENGE_CODE} is not 1 to 64 letters, digits or dashes`);
      const application = parameters.get('applicationId');
      const mac = toMac(secrets.keys.find(({ name }) => name === application) ?? findSecretKey(secrets.keys), challengeCode);
      if (mac === undefined) return failForMissingSecret(NO_KEY);
      return respondWithJson('linkedin', { challengeCode, challengeResponse: mac.toString('hex') });
    },
    signed: ({ body }) => declineTokenLike(body, CHALLENGE_CODE),
  };
}

const BT_CHALLENGE = 'bt_challenge';
/** As Braintree's libraries require it. */
const CHALLENGE = /^[0-9a-f]{20,32}$/;

/**
 * Braintree: a GET when the webhook is created, which requests the HMAC of its challenge, after the public key that names the private
 * one. As `verify` of Braintree's libraries. The challenge is not signed, so the first key answers. Anyone can get the HMAC of a
 * challenge, by the key that signs deliveries, so a delivery whose payload could be a challenge is rejected; payloads are XML in
 * base64.
 */
export function createBraintree(options: HandshakeOptions): Handshake {
  const { publicKey } = options;
  const checkQuery = compileQueryCheck(options);
  return {
    open({ method, query }, secrets) {
      if (method !== 'GET' || query?.includes(BT_CHALLENGE) !== true) return checkQuery(query, secrets);
      const parameters = readParameters(query, [BT_CHALLENGE], secrets, options);
      if (parameters instanceof Refusal) return parameters;
      const challenge = parameters.get(BT_CHALLENGE) ?? '';
      if (!CHALLENGE.test(challenge)) return decline(`${BT_CHALLENGE} is not 20 to 32 hex digits in lower case`);
      if (publicKey === undefined) return decline('no handshake.publicKey is configured');
      const mac = toMac(findSecretKey(secrets.keys), challenge, 'hmac-sha1');
      if (mac === undefined) return failForMissingSecret(NO_KEY);
      return respondWithText('braintree', `${publicKey}|${mac.toString('hex')}`);
    },
    signed({ body }) {
      const payload = new BodyContent(body).field('bt_payload');
      const isSafe = typeof payload === 'string' && !CHALLENGE.test(payload);
      return isSafe ? undefined : decline(`bt_payload could be a ${BT_CHALLENGE}, which anyone can have signed`);
    },
  };
}
