/** Twitch: its own sender's source gives the bytes (id, time, body in a row); a receiver library on loopback proves them. */
import type { RequestListener } from 'node:http';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { BODY_ID_AND_TIME, type Oracle, type SignedDelivery, toJsonDelivery, withHeaders } from './oracle.ts';
import { hmac, toNanoseconds } from './recipes.ts';

const require = createRequire(import.meta.url);
type CreateReceiver = (server: undefined, secret: string, config: object) => RequestListener;
const createReceiver = require('tesjs/lib/whserver.js') as CreateReceiver;

const SECRET = { text: 'potaytoes-0123456789-abcdefghijk' };

/** Twitch's EventSub. */
export const twitchOracle: Oracle = {
  preset: 'twitch',
  signedBy: 'node:crypto',
  verifiedBy: 'npm tesjs',
  source: "Twitch's own twitchdev/twitch-cli, internal/events/trigger/forward_event.go; proved by tesjs",
  secret: SECRET,
  otherSecret: { text: 'kjihgfedcba-9876543210-seotyatop' },
  covers: BODY_ID_AND_TIME,
  sample: (timestamp) =>
    toJsonDelivery('https://hooks.example.com/twitch', timestamp, {
      subscription: { type: 'stream.online' },
      event: { id: '1' },
    }),
  sign(delivery) {
    const time = toNanoseconds(delivery.timestamp);
    return withHeaders(delivery, {
      'twitch-eventsub-message-id': delivery.id,
      'twitch-eventsub-message-timestamp': time,
      'twitch-eventsub-message-type': 'notification',
      'twitch-eventsub-message-signature': `sha256=${hmac('sha256', SECRET.text, [delivery.id, time, delivery.body])}`,
    });
  },
  // The type is not signed, and one that the library does not know keeps it from remembering the id for ten minutes.
  verify: async (signed, { text }) => (await askTwitch(signed, text, 'none')).status === 200,
};

/** What the library answers to a message of that type. */
export async function askTwitch(
  { headers, body }: SignedDelivery,
  secret: string,
  type: string,
): Promise<{ readonly status: number; readonly text: string }> {
  const server = createServer(createReceiver(undefined, secret, {}));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/teswh/event`, {
      method: 'POST',
      headers: { ...headers, 'twitch-eventsub-message-type': type, connection: 'close' },
      body,
    });
    return { status: response.status, text: await response.text() };
  } finally {
    server.close();
  }
}
