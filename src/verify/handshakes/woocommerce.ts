/** WooCommerce: a form with only the ID of the webhook, sent unsigned when the webhook is saved; anything but 200 is an error for it. */
import { Refusal } from '../../core/refusal.ts';
import { type Handshake, type HandshakeOptions, respondWithText } from './handshake.ts';
import { compileQueryCheck, readParameters } from './query-token.ts';

const PING = /^webhook_id=\d{1,20}$/;

/** https://woocommerce.com/document/webhooks. Nothing of the request is repeated, and nothing reaches the app. */
export function createWooCommerce(options: HandshakeOptions): Handshake {
  const checkQuery = compileQueryCheck(options);
  return {
    open: ({ query }, secrets) => checkQuery(query, secrets),
    openBody({ query, headers, body }, secrets) {
      const isSigned = options.scheme.headerNames.some((name) => headers.count(name) > 0);
      if (isSigned || !PING.test(body.toString('latin1'))) return undefined;
      const parameters = readParameters(query, [], secrets, options);
      return parameters instanceof Refusal ? parameters : respondWithText('woocommerce', '');
    },
  };
}
