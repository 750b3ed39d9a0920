/** Trello: a HEAD when the webhook is created, which only needs a 200. Intercom and Mandrill do the same. */
import { Refusal } from '../../core/refusal.ts';
import { coversQuery } from '../schemes/coverage.ts';
import { type Handshake, type HandshakeOptions, respondWithText } from './handshake.ts';
import { compileQueryCheck, readParameters } from './query-token.ts';

/** https://developer.atlassian.com/cloud/trello/guides/rest-api/webhooks. Nothing of the request is repeated. */
export function createTrello(options: HandshakeOptions): Handshake {
  const checkQuery = compileQueryCheck(options);
  return {
    open({ method, query }, secrets) {
      if (method !== 'HEAD') return checkQuery(query, secrets);
      // The URL at the sender may have a query if deliveries sign it.
      if (!options.hasToken && coversQuery(options.scheme.description)) return respondWithText('trello', '');
      const parameters = readParameters(query, [], secrets, options);
      return parameters instanceof Refusal ? parameters : respondWithText('trello', '');
    },
  };
}
