/** CloudEvents (HTTP 1.1 Web Hooks for Event Delivery, §4; Azure Event Grid): OPTIONS asks whether events are welcome. */
import type { HeaderFields } from '../../core/headers.ts';
import type { Refusal } from '../../core/refusal.ts';
import {
  answer,
  decline,
  declineForLack,
  type Handshake,
  type HandshakeOptions,
  isToken,
  type OpenRequest,
  type OpenSecrets,
} from './handshake.ts';
import { parseParameters } from './parameters.ts';
import { judgeQuery } from './query-token.ts';

const ORIGIN = 'webhook-request-origin';
const RATE = 'webhook-request-rate';
const RATE_FORM = /^[1-9][0-9]{0,8}$/;
const BEARER = /^bearer /i;

/** WebHook-Request-Callback is not called: that would let strangers name URLs for the gate to fetch. */
export function createCloudEvents(options: HandshakeOptions): Handshake {
  const { hasToken, parameter, allowQuery, allowedRate } = options;
  const origins = new Set(options.allowedOrigins);
  return {
    open(request, secrets) {
      const { method, query, headers } = request;
      if (method !== 'OPTIONS' || headers.count(ORIGIN) === 0)
        return hasToken && !allowQuery ? judgeQuery(query, { parameter, token: secrets.token }) : undefined;
      const origin = headers.get(ORIGIN) ?? '';
      // DNS names do not differ by case (RFC 4343 §3); it is echoed as it was asked.
      if (headers.count(ORIGIN) > 1 || !origins.has(origin.toLowerCase()))
        return decline('the origin is not among allowedOrigins');
      if (!isRate(headers)) return decline('WebHook-Request-Rate is no positive number');
      return judgeAccess(request, secrets, options) ?? toConsent(origin, allowedRate);
    },
  };
}

function isRate(headers: HeaderFields): boolean {
  const rates = headers.all(RATE);
  return rates.length <= 1 && rates.every((rate) => RATE_FORM.test(rate));
}

/** Where senders put the token of their deliveries (§3.1, §3.2); where none is configured, nothing may stand there. */
function judgeAccess({ query, headers }: OpenRequest, { token }: OpenSecrets, options: HandshakeOptions): Refusal | undefined {
  const { hasToken, parameter } = options;
  const parameters = parseParameters(query);
  const isBare = parameters?.size === 0;
  if (!hasToken) return isBare || options.allowQuery ? undefined : decline('a query, and no handshake.verifyToken is configured');
  if (token === undefined) return declineForLack('handshake.verifyToken cannot be read');
  const authorization = headers.count('authorization') === 1 ? (headers.get('authorization') ?? '') : '';
  if (isBare && BEARER.test(authorization) && isToken(authorization.slice('bearer '.length), token)) return undefined;
  if (parameters?.size === 1 && isToken(parameters.get(parameter) ?? '', token)) return undefined;
  return decline(`the token is neither in Authorization nor alone in ${parameter}`);
}

function toConsent(origin: string, rate: number | undefined): Refusal {
  return answer('cloudevents', {
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
