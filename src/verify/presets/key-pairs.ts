/** Senders that sign with a private key; the route has the public key. */
import type { SchemeDescription } from '../schemes/description.ts';
import { FIVE_MINUTES, JSON_ONLY, minutes, sender } from './shapes.ts';

/** Nothing separates timestamp and body, so the timestamp must have exactly 10 digits (layout.ts). */
const COMMON = {
  signed: ['timestamp', 'body'],
  separator: '',
  secret: { encoding: 'utf8' },
  contentTypes: JSON_ONLY,
} as const;

export const KEY_PAIRS: readonly SchemeDescription[] = [
  /** Discord, interactions and events: https://docs.discord.com/developers/interactions/overview. */
  sender('discord', 'Discord', {
    docs: 'https://docs.discord.com/developers/interactions/overview',
    key: "the application's public key (General Information), 64 hex digits; not the bot's token or the client secret",
    ...COMMON,
    handshake: 'discord',
    signature: { header: 'X-Signature-Ed25519', encoding: 'hex', forms: [{ prefix: '', algorithm: 'ed25519' }] },
    timestamp: { from: { header: 'X-Signature-Timestamp' }, unit: 's' },
    id: { json: '$.id' },
    publicKey: { encoding: 'hex', format: 'raw' },
    tolerance: FIVE_MINUTES,
  }),
  /**
   * Twilio SendGrid, Event Webhook: https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features.
   * The sender documents no tolerance, retries for a day, and does not document that retries get a new timestamp.
   */
  sender('sendgrid', 'SendGrid (Event Webhook)', {
    docs: 'https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features',
    key: 'the verification key (Mail Settings, Event Webhook), in base64, as is; not an API key',
    ...COMMON,
    signature: {
      header: 'X-Twilio-Email-Event-Webhook-Signature',
      encoding: 'base64',
      forms: [{ prefix: '', algorithm: 'ecdsa-p256' }],
    },
    timestamp: { from: { header: 'X-Twilio-Email-Event-Webhook-Timestamp' }, unit: 's' },
    id: { json: '$[*].sg_event_id' },
    publicKey: { encoding: 'base64', format: 'spki' },
    tolerance: minutes(25 * 60, 5),
  }),
];
