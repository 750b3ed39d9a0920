/** Notion: a POST of nothing but the token that will sign all deliveries, which an operator must enter at Notion. */
import { createHmac } from 'node:crypto';
import { isEqualInConstantTime } from '../../core/bytes.ts';
import { Refusal } from '../../core/refusal.ts';
import { Secret } from '../../core/secret.ts';
import { toMac } from '../schemes/mac.ts';
import type { VerifyKey } from '../schemes/scheme.ts';
import { decline, type Handshake, type HandshakeOptions, parseOnlyMember, respondWithJson } from './handshake.ts';
import { compileQueryCheck, readParameters } from './query-token.ts';

const MEMBER = 'verification_token';
const TOKEN = /^secret_[A-Za-z0-9]{16,128}$/;

/**
 * https://developers.notion.com/reference/webhooks. Anyone can send a token, so none becomes a key by itself: it is only offered to an
 * operator. Notion activates the subscription only if the operator enters the token that Notion itself sent, so a foreign one is noticed.
 */
export function createNotion(options: HandshakeOptions): Handshake {
  const checkQuery = compileQueryCheck(options);
  return {
    open: ({ query }, secrets) => checkQuery(query, secrets),
    openBody({ query, body, offer }, secrets) {
      const token = parseOnlyMember(body, MEMBER);
      if (token === undefined) return undefined;
      const parameters = readParameters(query, [], secrets, options);
      if (parameters instanceof Refusal) return parameters;
      if (typeof token !== 'string' || !TOKEN.test(token))
        return decline(`${MEMBER} is not secret_ and 16 to 128 letters and digits`);
      if (!secrets.keys.some((key) => isKey(token, key))) offer(new Secret(Buffer.from(token)));
      return respondWithJson('notion', {});
    },
  };
}

/** Whether the token is already a key of the route. Keys are not readable, so the signatures of both are compared. */
function isKey(token: string, key: VerifyKey): boolean {
  const known = toMac(key, MEMBER);
  return known !== undefined && isEqualInConstantTime(known, createHmac('sha256', token).update(MEMBER).digest());
}
