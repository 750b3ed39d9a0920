/** Meta (Facebook, Instagram, WhatsApp): a GET with the verify token from the app's settings. */
import type { Refusal } from '../../core/refusal.ts';
import { checkToken, decline, type Handshake, type HandshakeOptions, isChallenge, respondWithText } from './handshake.ts';
import { hasOnly, type Parameters, parseParameters } from './parameters.ts';

const PREFIX = 'hub.';
const NAMES = ['hub.mode', 'hub.verify_token', 'hub.challenge'];

/** https://developers.facebook.com/docs/graph-api/webhooks/getting-started#verification-requests. */
export function createMeta(options: HandshakeOptions): Handshake {
  return {
    open({ method, query }, { token }) {
      if (method !== 'GET' || query?.includes(PREFIX) !== true) return undefined;
      const parameters = parseParameters(query);
      if (parameters === undefined || !hasOnly(parameters, NAMES))
        return decline(`the query must consist of ${NAMES.join(', ')}, each once`);
      if (parameters.get('hub.mode') !== 'subscribe') return decline('hub.mode is not subscribe');
      return checkToken(parameters.get('hub.verify_token'), token, options) ?? echo(parameters);
    },
  };
}

function echo(parameters: Parameters): Refusal {
  const challenge = parameters.get('hub.challenge');
  return isChallenge(challenge)
    ? respondWithText('meta', challenge)
    : decline('hub.challenge is not 1 to 256 visible characters');
}
