/** Twitch EventSub: a signed webhook_callback_verification, whose challenge must be echoed. Notifications and revocations go to the app. */
import { decline, echo, type Handshake, parseSmallJson, respondWithText } from './handshake.ts';

const TYPE_FIELD = 'twitch-eventsub-message-type';
const TYPE = 'webhook_callback_verification';

/** https://dev.twitch.tv/docs/eventsub/handling-webhook-events/#responding-to-a-challenge-request. */
export function createTwitch(): Handshake {
  return {
    signed({ headers, body }) {
      const content = parseSmallJson(body, '"challenge"');
      const types = headers.all(TYPE_FIELD);
      const hasType = types.includes(TYPE);
      const hasForm = content?.['challenge'] !== undefined && content['event'] === undefined;
      if (!hasType && !hasForm) return undefined;
      // The header is not signed: with another value, a captured verification would reach the app as an event.
      if (!hasType || !hasForm || types.length > 1) return decline('Twitch-Eventsub-Message-Type does not match the body');
      const { challenge } = content as { readonly challenge?: unknown };
      return echo('challenge', challenge, (text) => respondWithText('twitch', text));
    },
  };
}
