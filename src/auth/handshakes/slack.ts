/** Slack: a signed url_verification, whose challenge must be echoed. */
import { decline, type Handshake, isChallenge, parseSmallJson, respondWithText } from './handshake.ts';

const TYPE = 'url_verification';

/** https://docs.slack.dev/reference/events/url_verification. */
export function createSlack(): Handshake {
  return {
    signed({ body }) {
      const content = parseSmallJson(body, TYPE);
      if (content?.['type'] !== TYPE) return undefined;
      const { challenge } = content as { readonly challenge?: unknown };
      return isChallenge(challenge)
        ? respondWithText('slack', challenge)
        : decline('challenge is not 1 to 256 visible characters');
    },
  };
}
