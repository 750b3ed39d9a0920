/** Monday: a POST of nothing but a challenge, which the response must repeat. */
import { Refusal } from '../../core/refusal.ts';
import { echo, type Handshake, type HandshakeOptions, parseOnlyMember, respondWithJson } from './handshake.ts';
import { compileQueryCheck, readParameters } from './query-token.ts';

const MEMBER = 'challenge';

/** https://developer.monday.com/api-reference/reference/webhooks#url-verification. It is not signed, even if deliveries are. */
export function createMonday(options: HandshakeOptions): Handshake {
  const checkQuery = compileQueryCheck(options);
  return {
    open: ({ query }, secrets) => checkQuery(query, secrets),
    openBody({ query, body }, secrets) {
      const challenge = parseOnlyMember(body, MEMBER);
      if (challenge === undefined) return undefined;
      const parameters = readParameters(query, [], secrets, options);
      if (parameters instanceof Refusal) return parameters;
      return echo(MEMBER, challenge, (text) => respondWithJson('monday', { [MEMBER]: text }));
    },
  };
}
