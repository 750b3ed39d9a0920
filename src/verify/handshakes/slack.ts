/** Slack: a signed url_verification, whose challenge must be echoed. */
import { echo, type Handshake, parseSmallJson, respondWithText } from './handshake.ts';

const TYPE = 'url_verification';

/** https://docs.slack.dev/reference/events/url_verification. */
export function createSlack(): Handshake {
  return {
    signed({ body }) {
      const content = parseSmallJson(body, TYPE);
      if (content?.['type'] !== TYPE) return undefined;
      const { challenge } = content as { readonly challenge?: unknown };
      return echo('challenge', challenge, (text) => respondWithText('slack', text));
    },
  };
}
