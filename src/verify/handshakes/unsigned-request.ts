/** Handshakes in an unsigned request that the sender makes when a webhook is created. */
import { createHmac } from 'node:crypto';
import { isEqualInConstantTime } from '../../core/bytes.ts';
import { isJsonObject } from '../../core/json-path.ts';
import { Refusal } from '../../core/refusal.ts';
import { Secret } from '../../core/secret.ts';
import { coversQuery } from '../schemes/coverage.ts';
import { toMac } from '../schemes/keys.ts';
import type { VerifyKey } from '../schemes/scheme.ts';
import {
  checkToken,
  decline,
  echo,
  type Handshake,
  type HandshakeOptions,
  type OpenMessage,
  type OpenSecrets,
  parseOnlyMember,
  respondWithJson,
  respondWithText,
} from './handshake.ts';
import { compileQueryCheck, hasOnly, type Parameters, parseParameters, readParameters } from './parameters.ts';

/**
 * Trello: a HEAD when the webhook is created, which only needs a 200. Intercom and Mandrill do the same.
 * https://developer.atlassian.com/cloud/trello/guides/rest-api/webhooks. Nothing of the request is repeated.
 */
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

/** A POST of a body that `find` recognizes, and to which `respond` responds; undefined: the body is another one. */
function answerBody<T>(
  options: HandshakeOptions,
  find: (message: OpenMessage) => T | undefined,
  respond: (found: T, message: OpenMessage, secrets: OpenSecrets) => Refusal,
): Handshake {
  const checkQuery = compileQueryCheck(options);
  return {
    open: ({ query }, secrets) => checkQuery(query, secrets),
    openBody(message, secrets) {
      const found = find(message);
      if (found === undefined) return undefined;
      const parameters = readParameters(message.query, [], secrets, options);
      return parameters instanceof Refusal ? parameters : respond(found, message, secrets);
    },
  };
}

const WEBHOOK_ID = /^webhook_id=\d{1,20}$/;

/**
 * WooCommerce: a form with only the ID of the webhook, sent unsigned when the webhook is saved; anything but 200 is an error for it.
 * https://woocommerce.com/document/webhooks. Nothing of the request is repeated, and nothing reaches the app.
 */
export function createWooCommerce(options: HandshakeOptions): Handshake {
  const find = ({ headers, body }: OpenMessage): true | undefined => {
    const isSigned = options.scheme.headerNames.some((name) => headers.count(name) > 0);
    return isSigned || !WEBHOOK_ID.test(body.toString('latin1')) ? undefined : true;
  };
  return answerBody(options, find, () => respondWithText('woocommerce', ''));
}

const CHALLENGE = 'challenge';

/**
 * Monday: a POST of nothing but a challenge, which the response must repeat.
 * https://developer.monday.com/api-reference/reference/webhooks#url-verification. It is not signed, even if deliveries are.
 */
export function createMonday(options: HandshakeOptions): Handshake {
  const toResponse = (text: string): Refusal => respondWithJson('monday', { [CHALLENGE]: text });
  return answerBody(
    options,
    ({ body }) => parseOnlyMember(body, CHALLENGE),
    (challenge) => echo(CHALLENGE, challenge, toResponse),
  );
}

const CODE = 'verification_code';

/**
 * Statsig: a POST of `{"data":{"event":"url_verification","verification_code":…}}` when the webhook is saved, whose code the response must repeat. It is
 * not signed. As Sentry's receiver responds: https://github.com/getsentry/sentry, src/sentry/flags/endpoints/hooks.py.
 */
export function createStatsig(options: HandshakeOptions): Handshake {
  const find = ({ body }: OpenMessage): unknown => {
    const data = parseOnlyMember(body, 'data');
    if (!isJsonObject(data) || data['event'] !== 'url_verification' || Object.keys(data).length !== 2) return undefined;
    return data[CODE] ?? '';
  };
  return answerBody(options, find, (code) => echo(CODE, code, (text) => respondWithJson('statsig', { [CODE]: text })));
}

const TOKEN_MEMBER = 'verification_token';
const NOTION_TOKEN = /^secret_[A-Za-z0-9]{16,128}$/;

/**
 * Notion: a POST of nothing but the token that will sign all deliveries, which an operator must enter at Notion.
 * https://developers.notion.com/reference/webhooks. Anyone can send a token, so none becomes a key by itself: it is only offered to an
 * operator. Notion activates the subscription only if the operator enters the token that Notion itself sent, so a foreign one is
 * noticed.
 */
export function createNotion(options: HandshakeOptions): Handshake {
  const find = ({ body }: OpenMessage): unknown => parseOnlyMember(body, TOKEN_MEMBER);
  return answerBody(options, find, (token, { offer }, { keys }) => {
    if (typeof token !== 'string' || !NOTION_TOKEN.test(token))
      return decline(`${TOKEN_MEMBER} is not secret_ and 16 to 128 letters and digits`);
    if (!keys.some((key) => isKey(token, key))) offer(new Secret(Buffer.from(token)));
    return respondWithJson('notion', {});
  });
}

/** Whether the token is already a key of the route. Keys are not readable, so the signatures of both are compared. */
function isKey(token: string, key: VerifyKey): boolean {
  const known = toMac(key, TOKEN_MEMBER);
  return known !== undefined && isEqualInConstantTime(known, createHmac('sha256', token).update(TOKEN_MEMBER).digest());
}

/** Unlike other challenges, Graph's tokens contain spaces. */
const VALIDATION_TOKEN = /^[\x20-\x7e]{1,1024}$/;
const TOKEN_PARAMETER = 'validationToken';

/**
 * Microsoft Graph: a POST without a body, whose validationToken must be echoed when the subscription is created.
 * https://learn.microsoft.com/graph/change-notifications-delivery-webhooks. The request does not prove that it comes from Graph, and
 * anyone who gets the response can subscribe this endpoint to their own changes. So the URL of the subscription contains a token.
 */
export function createMicrosoftGraph(options: HandshakeOptions): Handshake {
  const { parameter } = options;
  const checkQuery = compileQueryCheck(options);
  return {
    open({ method, query }, secrets) {
      if (method !== 'POST' || query?.includes(TOKEN_PARAMETER) !== true) return checkQuery(query, secrets);
      const parameters = parseParameters(query);
      if (parameters === undefined || !hasOnly(parameters, [TOKEN_PARAMETER], [parameter]))
        return decline(`the query must consist of ${parameter} and ${TOKEN_PARAMETER}, each once`);
      return checkToken(parameters.get(parameter), secrets.token, options) ?? echoValidationToken(parameters);
    },
  };
}

function echoValidationToken(parameters: Parameters): Refusal {
  const token = parameters.get(TOKEN_PARAMETER) ?? '';
  return VALIDATION_TOKEN.test(token)
    ? respondWithText('microsoft-graph', token)
    : decline(`${TOKEN_PARAMETER} is not 1 to 1024 printable characters`);
}
