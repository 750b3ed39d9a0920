/** Discord: the signed PINGs of interactions (type 1) and of webhook events (type 0). */
import { type Handshake, parseSmallJson, respond, respondWithJson } from './handshake.ts';

const INTERACTION_PING = 1;
const EVENTS_PING = 0;

/** https://docs.discord.com/developers/interactions/overview, and /events/webhook-events, where type 1 is an event and has `event`. */
export function createDiscord(): Handshake {
  return {
    signed({ body }) {
      const content = parseSmallJson(body, '"type"');
      if (content === undefined || content['event'] !== undefined || content['data'] !== undefined) return undefined;
      if (content['type'] === INTERACTION_PING) return respondWithJson('discord', { type: INTERACTION_PING });
      if (content['type'] !== EVENTS_PING) return undefined;
      return respond('discord', { status: 204, contentType: 'application/json', body: '' });
    },
  };
}
