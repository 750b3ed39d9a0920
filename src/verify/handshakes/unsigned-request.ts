/** Handshakes in an unsigned request that the sender makes when a webhook is created. */
import { createHmac } from 'node:crypto';
import { isEqualInConstantTime } from '../../core/bytes.ts';
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

const WEBHOOK_ID = /^webhook_id=\d{1,20}$/;

/**
 * WooCommerce: a form with only the ID of the webhook, sent unsigned when the webhook is saved; anything but 200 is an error for it.
 * https://woocommerce.com/document/webhooks. Nothing of the request is repeated, and nothing reaches the app.
 */
export function createWooCommerce(options: HandshakeOptions): Handshake {
  const checkQuery = compileQueryCheck(options);
  return {
    open: ({ query }, secrets) => checkQuery(query, secrets),
    openBody({ query, headers, body }, secrets) {
      const isSigned = options.scheme.headerNames.some((name) => headers.count(name) > 0);
      if (isSigned || !WEBHOOK_ID.test(body.toString('latin1'))) return undefined;
      const parameters = readParameters(query, [], secrets, options);
      return parameters instanceof Refusal ? parameters : respondWithText('woocommerce', '');
    },
  };
}

const CHALLENGE = 'challenge';

/**
 * Monday: a POST of nothing but a challenge, which the response must repeat.
 * https://developer.monday.com/api-reference/reference/webhooks#url-verification. It is not signed, even if deliveries are.
 */
export function createMonday(options: HandshakeOptions): Handshake {
  const checkQuery = compileQueryCheck(options);
  return {
    open: ({ query }, secrets) => checkQuery(query, secrets),
    openBody({ query, body }, secrets) {
      const challenge = parseOnlyMember(body, CHALLENGE);
      if (challenge === undefined) return undefined;
      const parameters = readParameters(query, [], secrets, options);
      if (parameters instanceof Refusal) return parameters;
      return echo(CHALLENGE, challenge, (text) => respondWithJson('monday', { [CHALLENGE]: text }));
    },
  };
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
  const checkQuery = compileQueryCheck(options);
  return {
    open: ({ query }, secrets) => checkQuery(query, secrets),
    openBody({ query, body, offer }, secrets) {
      const token = parseOnlyMember(body, TOKEN_MEMBER);
      if (token === undefined) return undefined;
      const parameters = readParameters(query, [], secrets, options);
      if (parameters instanceof Refusal) return parameters;
      if (typeof token !== 'string' || !NOTION_TOKEN.test(token))
        return decline(`${TOKEN_MEMBER} is not secret_ and 16 to 128 letters and digits`);
      if (!secrets.keys.some((key) => isKey(token, key))) offer(new Secret(Buffer.from(token)));
      return respondWithJson('notion', {});
    },
  };
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
