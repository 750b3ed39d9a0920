/** Handshakes in which a POST without content has a header that the response must repeat: Asana and RingCentral. */
import { Refusal } from '../../core/refusal.ts';
import { decline, type Handshake, type HandshakeOptions, respond } from './handshake.ts';
import { compileQueryCheck, readParameters } from './query-token.ts';

/** The senders that this file knows. */
export type HeaderEchoName = 'asana' | 'ringcentral';

const FIELDS: Readonly<Record<HeaderEchoName, string>> = {
  // https://developers.asana.com/docs/webhooks-guide#the-webhook-handshake.
  asana: 'X-Hook-Secret',
  // https://developers.ringcentral.com/guide/notifications/webhooks/creating-webhooks.
  ringcentral: 'Validation-Token',
};

/** Without characters that delimit anything in a header. RingCentral rejects responses of more than 1,024 bytes. */
const VALUE = /^[A-Za-z0-9._~+/=:-]{1,256}$/;
/** Asana sends an empty object, RingCentral nothing. */
const EMPTY_OBJECT = '{}';

/**
 * Builds the handshake of one of the senders. The gate never uses the repeated value as a key: anyone can send one. An endpoint that is
 * subscribed by someone else gets deliveries that the route's keys do not verify.
 */
export function createHeaderEcho(type: HeaderEchoName): (options: HandshakeOptions) => Handshake {
  const name = FIELDS[type];
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
        if (headers.count(field) > 1 || !VALUE.test(value))
          return decline(`${name} is repeated, or is not 1 to 256 letters, digits or ._~+/=:-`);
        return respond(type, { status: 200, contentType: 'text/plain', body: '', headers: [[name, value]] });
      },
    };
  };
}

function isEmpty(body: Buffer): boolean {
  return body.length === 0 || (body.length === EMPTY_OBJECT.length && body.toString('latin1') === EMPTY_OBJECT);
}
