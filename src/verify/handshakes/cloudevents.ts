/** CloudEvents (HTTP 1.1 Web Hooks for Event Delivery, §4; Azure Event Grid): an OPTIONS request asks for permission to send events. */
import type { HeaderFields } from '../../core/head.ts';
import type { Refusal } from '../../core/refusal.ts';
import {
  decline,
  failForMissingSecret,
  type Handshake,
  type HandshakeOptions,
  isToken,
  type OpenRequest,
  type OpenSecrets,
  respond,
} from './handshake.ts';
import { compileQueryCheck, parseParameters } from './parameters.ts';

const ORIGIN = 'webhook-request-origin';
const RATE = 'webhook-request-rate';
const RATE_FORM = /^[1-9][0-9]{0,8}$/;
const BEARER = /^bearer /i;

/** WebHook-Request-Callback is never called: anyone could make the gate request a URL of their choice (SSRF). */
export function createCloudEvents(options: HandshakeOptions): Handshake {
  const { allowedRate } = options;
  const checkQuery = compileQueryCheck(options);
  const origins = new Set(options.allowedOrigins);
  return {
    open(request, secrets) {
      const { method, query, headers } = request;
      if (method !== 'OPTIONS' || headers.count(ORIGIN) === 0) return checkQuery(query, secrets);
      const origin = headers.get(ORIGIN) ?? '';
      // DNS names are case-insensitive (RFC 4343 §3); the response repeats the origin as it was sent.
      if (headers.count(ORIGIN) > 1 || !origins.has(origin.toLowerCase()))
        return decline('the origin is not among allowedOrigins');
      if (!isRate(headers)) return decline('WebHook-Request-Rate is not a positive number');
      return checkAccess(request, secrets, options) ?? toConsent(origin, allowedRate);
    },
  };
}

function isRate(headers: HeaderFields): boolean {
  const rates = headers.all(RATE);
  return rates.length <= 1 && rates.every((rate) => RATE_FORM.test(rate));
}

/** The token is where deliveries carry it (§3.1, §3.2). If no token is configured, a query is rejected. */
function checkAccess({ query, headers }: OpenRequest, { token }: OpenSecrets, options: HandshakeOptions): Refusal | undefined {
  const { hasToken, parameter } = options;
  const parameters = parseParameters(query);
  const isBare = parameters?.size === 0;
  if (!hasToken)
    return isBare || options.allowQuery
      ? undefined
      : decline('the request has a query, but no handshake.verifyToken is configured');
  if (token === undefined) return failForMissingSecret('handshake.verifyToken cannot be read');
  const authorization = headers.count('authorization') === 1 ? (headers.get('authorization') ?? '') : '';
  if (isBare && BEARER.test(authorization) && isToken(authorization.slice('bearer '.length), token)) return undefined;
  if (parameters?.size === 1 && isToken(parameters.get(parameter) ?? '', token)) return undefined;
  return decline(`the token is neither in Authorization nor the only query parameter (${parameter})`);
}

function toConsent(origin: string, rate: number | undefined): Refusal {
  return respond('cloudevents', {
    status: 200,
    contentType: 'text/plain',
    body: '',
    headers: [
      ['WebHook-Allowed-Origin', origin],
      ['WebHook-Allowed-Rate', rate === undefined ? '*' : String(rate)],
      ['Allow', 'POST'],
    ],
  });
}
