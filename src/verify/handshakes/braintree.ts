/** Braintree: a GET when the webhook is created, which requests the HMAC of its challenge, after the public key that names the private one. */
import { Refusal } from '../../core/refusal.ts';
import { BodyContent } from '../schemes/body-values.ts';
import { toMac } from '../schemes/mac.ts';
import { decline, failForMissingSecret, type Handshake, type HandshakeOptions, respondWithText } from './handshake.ts';
import { compileQueryCheck, readParameters } from './query-token.ts';

const NAME = 'bt_challenge';
/** As Braintree's libraries require it. */
const CHALLENGE = /^[0-9a-f]{20,32}$/;

/**
 * As `verify` of Braintree's libraries. The challenge is not signed, so the first key answers. Anyone can get the HMAC of a challenge, by the
 * key that signs deliveries, so a delivery whose payload could be a challenge is rejected; payloads are XML in base64.
 */
export function createBraintree(options: HandshakeOptions): Handshake {
  const { publicKey } = options;
  const checkQuery = compileQueryCheck(options);
  return {
    open({ method, query }, secrets) {
      if (method !== 'GET' || query?.includes(NAME) !== true) return checkQuery(query, secrets);
      const parameters = readParameters(query, [NAME], secrets, options);
      if (parameters instanceof Refusal) return parameters;
      const challenge = parameters.get(NAME) ?? '';
      if (!CHALLENGE.test(challenge)) return decline(`${NAME} is not 20 to 32 hex digits in lower case`);
      if (publicKey === undefined) return decline('no handshake.publicKey is configured');
      const [key] = secrets.keys;
      const mac = key === undefined ? undefined : toMac(key, challenge, 'hmac-sha1');
      if (mac === undefined) return failForMissingSecret('no key of this route is usable');
      return respondWithText('braintree', `${publicKey}|${mac.toString('hex')}`);
    },
    signed({ body }) {
      const payload = new BodyContent(body).field('bt_payload');
      const isSafe = typeof payload === 'string' && !CHALLENGE.test(payload);
      return isSafe ? undefined : decline(`bt_payload could be a ${NAME}, which anyone can have signed`);
    },
  };
}
