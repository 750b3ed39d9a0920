/** Twitch EventSub: a signed webhook_callback_verification whose challenge is to be echoed; notifications and revocations are for the app. */
import { answerText, decline, type Handshake, isChallenge, parseBrief } from './handshake.ts';

const TYPE_FIELD = 'twitch-eventsub-message-type';
const TYPE = 'webhook_callback_verification';

/** https://dev.twitch.tv/docs/eventsub/handling-webhook-events/#responding-to-a-challenge-request. */
export function createTwitch(): Handshake {
  return {
    signed({ headers, body }) {
      const content = parseBrief(body, '"challenge"');
      const types = headers.all(TYPE_FIELD);
      const saysSo = types.includes(TYPE);
      const isSo = content?.['challenge'] !== undefined && content['event'] === undefined;
      if (!saysSo && !isSo) return undefined;
      // The field is not signed: with another one, a captured verification would reach the app as an event.
      if (!saysSo || !isSo || types.length > 1) return decline('Twitch-Eventsub-Message-Type and the content differ');
      const { challenge } = content as { readonly challenge?: unknown };
      return isChallenge(challenge) ? answerText('twitch', challenge) : decline('challenge is not 1 to 256 visible characters');
    },
  };
}
