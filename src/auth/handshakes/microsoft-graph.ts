/** Microsoft Graph: a POST without content whose validationToken is to be echoed while the subscription is made. */
import type { Refusal } from '../../core/refusal.ts';
import { answerText, decline, type Handshake, type HandshakeOptions, judgeToken } from './handshake.ts';
import { hasOnly, type Parameters, parseParameters } from './parameters.ts';
import { judgeQuery } from './query-token.ts';

/** Graph's tokens are sentences with spaces. */
const VALIDATION_TOKEN = /^[\x20-\x7e]{1,1024}$/;
const NAME = 'validationToken';

/**
 * https://learn.microsoft.com/graph/change-notifications-delivery-webhooks. Nothing in it proves that Graph asks, and whoever is
 * answered may subscribe this endpoint to changes of their own: so the URL that the subscriber gives holds a token.
 */
export function createMicrosoftGraph(options: HandshakeOptions): Handshake {
  const { hasToken, parameter, allowQuery } = options;
  const judgesDeliveries = hasToken && !allowQuery;
  return {
    open({ method, query }, { token }) {
      if (method !== 'POST' || query?.includes(NAME) !== true)
        return judgesDeliveries ? judgeQuery(query, { parameter, token }) : undefined;
      const parameters = parseParameters(query);
      if (parameters === undefined || !hasOnly(parameters, [NAME], [parameter]))
        return decline(`not exactly ${parameter} and ${NAME}, each once`);
      return judgeToken(parameters.get(parameter), token, options) ?? echo(parameters);
    },
  };
}

function echo(parameters: Parameters): Refusal {
  const token = parameters.get(NAME) ?? '';
  return VALIDATION_TOKEN.test(token)
    ? answerText('microsoft-graph', token)
    : decline(`${NAME} is not 1 to 1024 printable characters`);
}
