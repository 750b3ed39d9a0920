/** Discord: the signed PING of interactions (type 1), and that of webhook events (type 0). */
import { answer, answerJson, type Handshake, parseBrief } from './handshake.ts';

const INTERACTION_PING = 1;
const EVENTS_PING = 0;

/** https://docs.discord.com/developers/interactions/overview, and /events/webhook-events: there 1 is an event, with `event` in it. */
export function createDiscord(): Handshake {
  return {
    signed({ body }) {
      const content = parseBrief(body, '"type"');
      if (content === undefined || content['event'] !== undefined || content['data'] !== undefined) return undefined;
      if (content['type'] === INTERACTION_PING) return answerJson('discord', { type: INTERACTION_PING });
      if (content['type'] !== EVENTS_PING) return undefined;
      return answer('discord', { status: 204, contentType: 'application/json', body: '' });
    },
  };
}
