/** LinkedIn: a GET, initially and every two hours, that requests the HMAC of its challengeCode. */
import { Refusal } from '../../core/refusal.ts';
import { toMac } from '../schemes/mac.ts';
import {
  decline,
  declineTokenLike,
  failForMissingSecret,
  type Handshake,
  type HandshakeOptions,
  respondWithJson,
} from './handshake.ts';
import { compileQueryCheck, readParameters } from './query-token.ts';

const NAME = 'challengeCode';
/** A UUID. Without `=`: LinkedIn's signed strings start with `hmacsha256=`, so no response can be the signature of a delivery. */
const CODE = /^[A-Za-z0-9-]{1,64}$/;

/** https://learn.microsoft.com/linkedin/shared/api-guide/webhook-validation. The first key answers, because the code is not signed. */
export function createLinkedIn(options: HandshakeOptions): Handshake {
  const checkQuery = compileQueryCheck(options);
  return {
    open({ method, query }, secrets) {
      if (method !== 'GET' || query?.includes(NAME) !== true) return checkQuery(query, secrets);
      const parameters = readParameters(query, [NAME], secrets, options);
      if (parameters instanceof Refusal) return parameters;
      const challengeCode = parameters.get(NAME) ?? '';
      if (!CODE.test(challengeCode)) return decline(`${NAME} is not 1 to 64 letters, digits or dashes`);
      const [key] = secrets.keys;
      const mac = key === undefined ? undefined : toMac(key, challengeCode);
      if (mac === undefined) return failForMissingSecret('no key of this route is usable');
      return respondWithJson('linkedin', { challengeCode, challengeResponse: mac.toString('hex') });
    },
    signed: ({ body }) => declineTokenLike(body, NAME),
  };
}
