/** Handshakes in which a challenge is echoed, as data: the senders differ in names and in the form of the response. */
import type { HeaderFields } from '../../core/head.ts';
import { Refusal } from '../../core/refusal.ts';
import {
  checkToken,
  decline,
  echo,
  type Handshake,
  type HandshakeOptions,
  type OpenRequest,
  type OpenSecrets,
  respond,
  respondWithJson,
  respondWithText,
} from './handshake.ts';
import { compileQueryCheck, hasOnly, type Parameters, parseParameters, readParameters } from './parameters.ts';

/** The senders that this file knows. */
type EchoName = 'dropbox' | 'meta' | 'nylas' | 'okta' | 'oura' | 'strava';

interface Echo {
  /** Where the challenge is; a header in lower case. */
  readonly challenge: { readonly query: string } | { readonly header: string };
  /** A part of the query by which the handshake is detected. Default: the name of the challenge. */
  readonly mark?: string;
  /** Another parameter and its only value. */
  readonly mode?: readonly [name: string, value: string] | undefined;
  /** The sender's own parameter for `verifyToken`. Senders without one can have it in their URL. */
  readonly token?: string;
  /** The member of the JSON response; if omitted, the response is the challenge in plain text. */
  readonly member?: string;
}

/** Meta's form, which other senders took over from WebSub. */
const HUB = {
  challenge: { query: 'hub.challenge' },
  mark: 'hub.',
  mode: ['hub.mode', 'subscribe'],
  token: 'hub.verify_token',
} as const;

const ECHOES: Readonly<Record<EchoName, Echo>> = {
  // https://www.dropbox.com/developers/reference/webhooks#documentation. The response must have nosniff, as all have here.
  dropbox: { challenge: { query: 'challenge' } },
  // https://developers.facebook.com/docs/graph-api/webhooks/getting-started#verification-requests.
  meta: HUB,
  // https://developer.nylas.com/docs/v3/notifications/.
  nylas: { challenge: { query: 'challenge' } },
  // https://developer.okta.com/docs/concepts/event-hooks/#one-time-verification-request.
  okta: { challenge: { header: 'x-okta-verification-challenge' }, member: 'verification' },
  // https://cloud.ouraring.com/v2/docs#tag/Webhook-Subscription-Routes.
  oura: { challenge: { query: 'challenge' }, token: 'verification_token', member: 'challenge' },
  // https://developers.strava.com/docs/webhooks/.
  strava: { ...HUB, member: 'hub.challenge' },
};

/** Builds the handshake of one of the senders. */
export function createEcho(type: EchoName): (options: HandshakeOptions) => Handshake {
  const { challenge, token, member, mark, mode } = ECHOES[type];
  const header = 'header' in challenge ? challenge.header : undefined;
  const name = 'header' in challenge ? challenge.header : challenge.query;
  const names = [mode?.[0], token, header === undefined ? name : undefined].filter((each) => each !== undefined);
  const isAsked = ({ method, query, headers }: OpenRequest): boolean =>
    method === 'GET' && (header === undefined ? query?.includes(mark ?? name) === true : headers.count(header) > 0);
  const respond = (text: string): Refusal =>
    member === undefined ? respondWithText(type, text) : respondWithJson(type, { [member]: text });
  return (options) => {
    const checkQuery = token === undefined ? compileQueryCheck(options) : undefined;
    return {
      open(request, secrets) {
        const { query, headers } = request;
        if (!isAsked(request)) return checkQuery?.(query, secrets);
        const parameters =
          token === undefined
            ? readParameters(query, names, secrets, options)
            : readOwnToken(query, { names, token, mode }, secrets, options);
        if (parameters instanceof Refusal) return parameters;
        return echo(name, header === undefined ? parameters.get(name) : readOnce(headers, header), respond);
      },
    };
  };
}

interface OwnToken {
  readonly names: readonly string[];
  readonly token: string;
  readonly mode: Echo['mode'];
}

/** For senders that define the parameter of the token, and need no other in their URL. */
function readOwnToken(
  query: string | undefined,
  { names, token, mode }: OwnToken,
  secrets: OpenSecrets,
  options: HandshakeOptions,
): Parameters | Refusal {
  const parameters = parseParameters(query);
  if (parameters === undefined || !hasOnly(parameters, names))
    return decline(`the query must consist of ${names.join(', ')}, each once`);
  if (mode !== undefined && parameters.get(mode[0]) !== mode[1]) return decline(`${mode[0]} is not ${mode[1]}`);
  return checkToken(parameters.get(token), secrets.token, options) ?? parameters;
}

/** The value of a field; undefined if it is repeated, because the sender and a proxy may mean different ones. */
function readOnce(headers: HeaderFields, name: string): string | undefined {
  return headers.count(name) === 1 ? headers.get(name) : undefined;
}

/** The senders that this file knows. */
type HeaderEchoName = 'asana' | 'ringcentral';

const ECHOED_FIELDS: Readonly<Record<HeaderEchoName, string>> = {
  // https://developers.asana.com/docs/webhooks-guide#the-webhook-handshake. Clio took it over.
  asana: 'X-Hook-Secret',
  // https://developers.ringcentral.com/guide/notifications/webhooks/creating-webhooks.
  ringcentral: 'Validation-Token',
};

/** Without characters that delimit anything in a header. RingCentral rejects responses of more than 1,024 bytes. */
const ECHOED_VALUE = /^[A-Za-z0-9._~+/=:-]{1,256}$/;
/** Asana sends an empty object, RingCentral nothing. */
const EMPTY_OBJECT = '{}';

/**
 * Handshakes in which a POST without content has a header that the response must repeat: Asana and RingCentral. Builds the handshake of
 * one of the senders. The gate never uses the repeated value as a key: anyone can send one. An endpoint that is subscribed by someone
 * else gets deliveries that the route's keys do not verify.
 */
export function createHeaderEcho(type: HeaderEchoName): (options: HandshakeOptions) => Handshake {
  const name = ECHOED_FIELDS[type];
  const field = name.toLowerCase();
  return (options) => {
    const checkQuery = compileQueryCheck(options);
    return {
      open: ({ query }, secrets) => checkQuery(query, secrets),
      openBody({ query, headers, body }, secrets) {
        // RingCentral's deliveries may have the header as well.
        if (headers.count(field) === 0 || !isEmpty(body)) return undefined;
        const parameters = readParameters(query, [], secrets, options);
        if (parameters instanceof Refusal) return parameters;
        const value = headers.get(field) ?? '';
        if (headers.count(field) > 1 || !ECHOED_VALUE.test(value))
          return decline(`${name} is repeated, or is not 1 to 256 letters, digits or ._~+/=:-`);
        return respond(type, { status: 200, contentType: 'text/plain', body: '', headers: [[name, value]] });
      },
    };
  };
}

function isEmpty(body: Buffer): boolean {
  return body.length === 0 || (body.length === EMPTY_OBJECT.length && body.toString('latin1') === EMPTY_OBJECT);
}
