/** Slack: a signed url_verification whose challenge is to be echoed. */
import { answerText, decline, type Handshake, isChallenge, parseBrief } from './handshake.ts';

const TYPE = 'url_verification';

/** https://docs.slack.dev/reference/events/url_verification. */
export function createSlack(): Handshake {
  return {
    signed({ body }) {
      const content = parseBrief(body, TYPE);
      if (content?.['type'] !== TYPE) return undefined;
      const { challenge } = content as { readonly challenge?: unknown };
      return isChallenge(challenge) ? answerText('slack', challenge) : decline('challenge is not 1 to 256 visible characters');
    },
  };
}
