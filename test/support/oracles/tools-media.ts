/** Senders of video, audio, calls and devices. */
import { createPublicKey } from 'node:crypto';
import { toOracle } from './documented.ts';
import { BODY_AND_TIME, type Oracle } from './oracle.ts';
import { hmac, signEd25519, toEd25519, toSeconds } from './recipes.ts';
import { ofBody, ofEntries, ofTime, SECRET } from './tool-recipes.ts';

const hmacOracles: readonly Oracle[] = [
  ofEntries(
    'mux',
    "Mux' document, verify webhook signatures",
    'mux-signature',
    {
      type: 'video.asset.ready',
      id: '55fac8d3-9b3c-4c4d-9d4e-0b1a45ecb5a9',
      data: {},
    },
    ({ timestamp, body }) => {
      const seconds = toSeconds(timestamp);
      return `t=${seconds},v1=${hmac('sha256', SECRET, [seconds, '.', body])}`;
    },
  ),
  ofEntries(
    'cloudflare-stream',
    "Cloudflare's document, Stream, verify webhook authenticity",
    'webhook-signature',
    {
      uid: '6b9e68b07dfee8cc2d116e4c51d6a957',
      readyToStream: true,
    },
    ({ timestamp, body }) => {
      const seconds = toSeconds(timestamp);
      return `time=${seconds},sig1=${hmac('sha256', SECRET, [seconds, '.', body])}`;
    },
  ),
  ofTime(
    'frame-io',
    "Frame.io's document, webhooks, verifying webhook signatures",
    {
      type: 'comment.created',
      resource: { id: '1', type: 'comment' },
    },
    ({ timestamp, body }) => ({
      'x-frameio-request-timestamp': toSeconds(timestamp),
      'x-frameio-signature': `v0=${hmac('sha256', SECRET, ['v0:', toSeconds(timestamp), ':', body])}`,
    }),
  ),
  ofBody('bunny-stream', "Bunny's document, Stream webhooks, signature validation", 'x-bunnystream-signature', {
    VideoLibraryId: 133,
    VideoGuid: '657bb740-a71b-4529-a012-528021c31a92',
    Status: 3,
  }),
  ofEntries(
    'retell',
    "Retell's document, secure webhook",
    'x-retell-signature',
    {
      event: 'call_ended',
      call: { call_id: 'Jabr9TXYYJHfvl6Syypi88rdAHYHmcq6' },
    },
    ({ timestamp, body }) => `v=${timestamp},d=${hmac('sha256', SECRET, [body, String(timestamp)])}`,
  ),
  ofBody(
    'fireflies',
    "Fireflies' document, webhooks v2",
    'x-hub-signature',
    {
      event: 'meeting.transcribed',
      timestamp: 1790000000000,
      meeting_id: 'ASxwZxCstx',
    },
    { prefix: 'sha256=' },
  ),
  toOracle({
    preset: 'pusher',
    source: "Pusher's document, webhooks, authentication",
    content: (timestamp) => ({ time_ms: timestamp, events: [{ name: 'channel_occupied', channel: 'test' }] }),
    toHeaders: ({ body }) => ({ 'x-pusher-key': 'app-key', 'x-pusher-signature': hmac('sha256', SECRET, [body]) }),
  }),
  ofBody('enode', "Enode's document, webhooks", 'x-enode-signature', [{ event: 'user:vehicle:updated', version: '2024-10-01' }], {
    algorithm: 'sha1',
    prefix: 'sha1=',
    more: ({ id }) => ({ 'x-enode-delivery': id }),
  }),
  ofBody('alchemy', "Alchemy's document, Notify API, webhook signature and security", 'x-alchemy-signature', {
    webhookId: 'wh_octjglnywaupz6th',
    id: 'whevt_ogrc5v64myey69ux',
    type: 'ADDRESS_ACTIVITY',
  }),
];

const telnyxKey = toEd25519(Buffer.from('f4d4957ffa5e2cc36dfdc4e6bb5d4585a83c0adade9a4ced55326aa6f4550516', 'hex'));
const otherTelnyxKey = toEd25519(Buffer.from('c8f722a232fd1ed22775080daa17d59e4bbc522ec1be2de17042fc4ddf9cda9a', 'hex'));

function toBase64PublicKey(key: typeof telnyxKey): string {
  const { x = '' } = createPublicKey(key).export({ format: 'jwk' });
  return Buffer.from(x, 'base64url').toString('base64');
}

const telnyxOracle = toOracle({
  preset: 'telnyx',
  source: "Telnyx' document, webhooks, verify an Ed25519 signature; proved by PyNaCl",
  secret: { text: toBase64PublicKey(telnyxKey) },
  otherSecret: { text: toBase64PublicKey(otherTelnyxKey) },
  covers: BODY_AND_TIME,
  content: () => ({ data: { id: '0ccc7b54-4df3-4bca-a65a-3da1ecc777f0', event_type: 'message.finalized' } }),
  toHeaders({ timestamp, body }) {
    const seconds = toSeconds(timestamp);
    const hex = signEd25519(telnyxKey, Buffer.concat([Buffer.from(`${seconds}|`), body]));
    return { 'telnyx-timestamp': seconds, 'telnyx-signature-ed25519': Buffer.from(hex, 'hex').toString('base64') };
  },
});

/** One for each sender. */
export const mediaAndVoice: readonly Oracle[] = [...hmacOracles, telnyxOracle];
