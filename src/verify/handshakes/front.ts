/** Front, applications: a signed `sync` when the webhook is saved, whose challenge in a header must be repeated. */
import { echo, type Handshake, isObject, parseSmallJson, respondWithJson } from './handshake.ts';

const TYPE = 'sync';
const FIELD = 'x-front-challenge';

/** https://dev.frontapp.com/docs/application-webhooks. The header is not signed, so the body decides whether it is a handshake. */
export function createFront(): Handshake {
  return {
    signed({ headers, body }) {
      const content = parseSmallJson(body, `"${TYPE}"`);
      if (content?.['type'] !== TYPE || !isObject(content['authorization']) || content['payload'] !== undefined) return undefined;
      // A repeated header has no challenge that both sides would agree on.
      const challenge = headers.count(FIELD) === 1 ? headers.get(FIELD) : undefined;
      return echo('X-Front-Challenge', challenge, (text) => respondWithJson('front', { challenge: text }));
    },
  };
}
