/** Handshakes in a request that the sender signs as a delivery; most have a challenge that the response must repeat. */
import { isJsonObject } from '../../core/json-path.ts';
import type { Refusal } from '../../core/refusal.ts';
import type { HandshakeName } from '../schemes/description.ts';
import { toMac } from '../schemes/keys.ts';
import type { VerifyKey } from '../schemes/scheme.ts';
import {
  decline,
  declineTokenLike,
  echo,
  failForMissingSecret,
  type Handshake,
  parseSmall,
  parseSmallJson,
  respond,
  respondWithJson,
  respondWithText,
} from './handshake.ts';

const SLACK_TYPE = 'url_verification';

/** Slack: a signed url_verification, whose challenge must be echoed. https://docs.slack.dev/reference/events/url_verification. */
export function createSlack(): Handshake {
  return {
    signed({ body }) {
      const content = parseSmallJson(body, SLACK_TYPE);
      if (content?.['type'] !== SLACK_TYPE) return undefined;
      const { challenge } = content as { readonly challenge?: unknown };
      return echo('challenge', challenge, (text) => respondWithText('slack', text));
    },
  };
}

const TWITCH_TYPE_FIELD = 'twitch-eventsub-message-type';
const TWITCH_TYPE = 'webhook_callback_verification';

/**
 * Twitch EventSub: a signed webhook_callback_verification, whose challenge must be echoed. Notifications and revocations go to the app.
 * https://dev.twitch.tv/docs/eventsub/handling-webhook-events/#responding-to-a-challenge-request.
 */
export function createTwitch(): Handshake {
  return {
    signed({ headers, body }) {
      const content = parseSmallJson(body, '"challenge"');
      const types = headers.all(TWITCH_TYPE_FIELD);
      const hasType = types.includes(TWITCH_TYPE);
      const hasForm = content?.['challenge'] !== undefined && content['event'] === undefined;
      if (!hasType && !hasForm) return undefined;
      // The header is not signed: with another value, a captured verification would reach the app as an event.
      if (!hasType || !hasForm || types.length > 1) return decline('Twitch-Eventsub-Message-Type does not match the body');
      const { challenge } = content as { readonly challenge?: unknown };
      return echo('challenge', challenge, (text) => respondWithText('twitch', text));
    },
  };
}

const ZOOM_EVENT = 'endpoint.url_validation';
/** Without a colon: Zoom's signed strings start with `v0:`, so no response can be the signature of a delivery. */
const PLAIN_TOKEN = /^[A-Za-z0-9+/=_-]{1,256}$/;

/**
 * Zoom: a signed endpoint.url_validation, initially and every 72 hours, that requests the HMAC of its plainToken.
 * https://developers.zoom.us/docs/api/webhooks/#validate-your-webhook-endpoint.
 */
export function createZoom(): Handshake {
  return {
    signed({ body, key }) {
      const content = parseSmallJson(body, ZOOM_EVENT);
      if (content?.['event'] !== ZOOM_EVENT) return undefined;
      const payload = content['payload'];
      const plainToken = isJsonObject(payload) ? payload['plainToken'] : undefined;
      if (typeof plainToken !== 'string' || !PLAIN_TOKEN.test(plainToken))
        return decline('plainToken is not 1 to 256 base64 characters');
      return respondWithMac('zoom', key, plainToken, (encryptedToken) => ({ plainToken, encryptedToken }));
    },
  };
}

/** Responds with the HMAC of the challenge, in hex, by the key that verified the request. */
function respondWithMac(
  type: HandshakeName,
  key: VerifyKey | undefined,
  challenge: string,
  toContent: (mac: string) => object,
): Refusal {
  const mac = toMac(key, challenge);
  if (mac === undefined) return failForMissingSecret('the key that verified the request cannot be used');
  return respondWithJson(type, toContent(mac.toString('hex')));
}

const SMARTCAR_EVENT = 'VERIFY';
/** A UUID. A captured VERIFY gets its challenge signed again, so a body that could be one is not a delivery. */
const SMARTCAR_CHALLENGE = /^[A-Za-z0-9-]{1,64}$/;

/**
 * Smartcar: a signed VERIFY when the URL is saved, that requests the HMAC of its challenge.
 * https://smartcar.com/docs/api-reference/webhooks/events/verify. Each webhook of Smartcar is signed, so an unsigned one gets nothing signed.
 */
export function createSmartcar(): Handshake {
  return {
    signed({ body, key }) {
      const content = parseSmallJson(body, `"${SMARTCAR_EVENT}"`);
      if (content?.['eventType'] !== SMARTCAR_EVENT) return declineTokenLike(body, 'challenge');
      const data = content['data'];
      const challenge = isJsonObject(data) ? data['challenge'] : undefined;
      if (typeof challenge !== 'string' || !SMARTCAR_CHALLENGE.test(challenge))
        return decline('challenge is not 1 to 64 letters, digits or dashes');
      return respondWithMac('smartcar', key, challenge, (mac) => ({ challenge: mac }));
    },
  };
}

const INTERACTION_PING = 1;
const EVENTS_PING = 0;

/**
 * Discord: the signed PINGs of interactions (type 1) and of webhook events (type 0).
 * https://docs.discord.com/developers/interactions/overview, and /events/webhook-events, where type 1 is an event and has `event`.
 */
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

const EVENT_GRID_TYPE = 'Microsoft.EventGrid.SubscriptionValidationEvent';
const VALIDATION_CODE = /^[A-Za-z0-9-]{1,256}$/;

/**
 * Azure Event Grid, in its own schema: a subscription validation event, whose code the response must repeat.
 * https://learn.microsoft.com/azure/event-grid/end-point-validation-event-grid-events-schema. It is authenticated as deliveries are.
 * The alternative, a GET of `validationUrl`, is never used: anyone with the credentials could have the gate request a URL (SSRF).
 */
export function createEventGrid(): Handshake {
  return {
    signed({ body }) {
      const events = parseSmall(body, EVENT_GRID_TYPE);
      const [event] = Array.isArray(events) ? (events as readonly unknown[]) : [];
      if (!isJsonObject(event) || event['eventType'] !== EVENT_GRID_TYPE) return undefined;
      const data = event['data'];
      const code = isJsonObject(data) ? data['validationCode'] : undefined;
      if ((events as readonly unknown[]).length > 1) return decline('the validation event is not alone');
      return typeof code === 'string' && VALIDATION_CODE.test(code)
        ? respondWithJson('event-grid', { validationResponse: code })
        : decline('validationCode is not 1 to 256 letters, digits or dashes');
    },
  };
}

const FRONT_TYPE = 'sync';
const FRONT_CHALLENGE = 'x-front-challenge';

/**
 * Front, applications: a signed `sync` when the webhook is saved, whose challenge in a header must be repeated.
 * https://dev.frontapp.com/docs/application-webhooks. The header is not signed, so the body decides whether it is a handshake.
 */
export function createFront(): Handshake {
  return {
    signed({ headers, body }) {
      const content = parseSmallJson(body, `"${FRONT_TYPE}"`);
      if (content?.['type'] !== FRONT_TYPE || !isJsonObject(content['authorization']) || content['payload'] !== undefined)
        return undefined;
      // A repeated header has no challenge that both sides would agree on.
      const challenge = headers.count(FRONT_CHALLENGE) === 1 ? headers.get(FRONT_CHALLENGE) : undefined;
      return echo('X-Front-Challenge', challenge, (text) => respondWithJson('front', { challenge: text }));
    },
  };
}
