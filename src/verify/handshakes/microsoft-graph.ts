/** Microsoft Graph: a POST without a body, whose validationToken must be echoed when the subscription is created. */
import type { Refusal } from '../../core/refusal.ts';
import { checkToken, decline, type Handshake, type HandshakeOptions, respondWithText } from './handshake.ts';
import { hasOnly, type Parameters, parseParameters } from './parameters.ts';
import { compileQueryCheck } from './query-token.ts';

/** Unlike other challenges, Graph's tokens contain spaces. */
const VALIDATION_TOKEN = /^[\x20-\x7e]{1,1024}$/;
const NAME = 'validationToken';

/**
 * https://learn.microsoft.com/graph/change-notifications-delivery-webhooks. The request does not prove that it comes from Graph, and
 * anyone who gets the response can subscribe this endpoint to their own changes. So the URL of the subscription contains a token.
 */
export function createMicrosoftGraph(options: HandshakeOptions): Handshake {
  const { parameter } = options;
  const checkQuery = compileQueryCheck(options);
  return {
    open({ method, query }, secrets) {
      if (method !== 'POST' || query?.includes(NAME) !== true) return checkQuery(query, secrets);
      const parameters = parseParameters(query);
      if (parameters === undefined || !hasOnly(parameters, [NAME], [parameter]))
        return decline(`the query must consist of ${parameter} and ${NAME}, each once`);
      return checkToken(parameters.get(parameter), secrets.token, options) ?? echo(parameters);
    },
  };
}

function echo(parameters: Parameters): Refusal {
  const token = parameters.get(NAME) ?? '';
  return VALIDATION_TOKEN.test(token)
    ? respondWithText('microsoft-graph', token)
    : decline(`${NAME} is not 1 to 1024 printable characters`);
}
