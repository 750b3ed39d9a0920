/** Senders of messages, tickets and campaigns. */
import type { SchemeDescription } from '../schemes/description.ts';
import { ANY_METHOD, BODY, base64In, hexIn, JSON_XML_OR_FORM, minutes, sender, VERSION_TIME_AND_BODY } from './shapes.ts';

const HMAC_SHA1 = [{ prefix: '', algorithm: 'hmac-sha1' }] as const;
const FRONT_HEADER = 'X-Front-Signature';

/** In order of their names. */
export const CUSTOMER_CONTACT: readonly SchemeDescription[] = [
  sender('customer-io', 'Customer.io (reporting webhooks)', {
    docs: 'https://docs.customer.io/integrations/data-out/connections/webhooks',
    key: "the webhook's signing key (Integrations, Reporting Webhooks); not an API key",
    ...VERSION_TIME_AND_BODY,
    signature: hexIn('X-CIO-Signature'),
    timestamp: { from: { header: 'X-CIO-Timestamp' }, unit: 's' },
    id: { json: '$.event_id' },
  }),
  sender('front', 'Front (application webhooks)', {
    docs: 'https://dev.frontapp.com/docs/application-webhooks',
    key: "the application's signing key, as is; for rule webhooks use scheme: front-rules",
    ...BODY,
    handshake: 'front',
    signature: base64In(FRONT_HEADER),
    signed: ['timestamp', 'body'],
    separator: ':',
    timestamp: { from: { header: 'X-Front-Request-Timestamp' }, unit: 'ms' },
    id: { json: '$.payload.id' },
    tolerance: minutes(15, 5),
  }),
  sender('front-rules', 'Front (rule webhooks)', {
    docs: 'https://dev.frontapp.com/docs/rule-webhooks',
    key: "the company's API secret (Webhooks app), as is; not an API token",
    ...BODY,
    signature: { header: FRONT_HEADER, encoding: 'base64', forms: HMAC_SHA1 },
    id: { json: '$.id' },
  }),
  /**
   * The body counts the attempts, so only its ID stays the same. It verifies the URL with HEAD, as Trello does, and with a signed ping, which is an
   * event like others.
   */
  sender('intercom', 'Intercom', {
    docs: 'https://developers.intercom.com/docs/webhooks/setting-up-webhooks',
    key: "the app's client secret (Developer Hub, Basic information), as is",
    ...BODY,
    handshake: 'trello',
    signature: { header: 'X-Hub-Signature', encoding: 'hex', forms: [{ prefix: 'sha1=', algorithm: 'hmac-sha1' }] },
    id: { json: '$.id' },
  }),
  /**
   * The time is signed after the body, and always has 29 characters. In deliveries it was five hours ahead of GMT, although it says GMT: a local time
   * of which the clock may change twice a year. `meta.timestamp` in the body is right, but not in all examples. Webhooks of flows are not signed.
   */
  sender('klaviyo', 'Klaviyo (system webhooks)', {
    docs: 'https://developers.klaviyo.com/en/docs/working_with_system_webhooks',
    key: 'the secret key that the webhook was created with; not a private API key',
    ...BODY,
    signature: hexIn('Klaviyo-Signature'),
    signed: ['body', 'timestamp'],
    timestamp: { from: { header: 'Klaviyo-Timestamp' }, unit: 'http-date' },
    id: { json: '$.data[*].external_id' },
    tolerance: minutes(25 * 60, 7 * 60),
  }),
  /** As Twilio: nothing separates the URL from the parameters, so the route needs an exact path. */
  sender('mandrill', 'Mailchimp Transactional (Mandrill)', {
    docs: 'https://mailchimp.com/developer/transactional/guides/track-respond-activity-webhooks',
    key: "the webhook's authentication key (Webhooks), as is; not an API key",
    ...BODY,
    signature: { header: 'X-Mandrill-Signature', encoding: 'base64', forms: HMAC_SHA1 },
    signed: ['url', 'form'],
    contentTypes: ['application/x-www-form-urlencoded'],
    // It asks by HEAD whether the URL exists.
    handshake: 'trello',
  }),
  /**
   * The timestamp is RFC 3339, which marks its own end. Bodies of triggers and automations are what their authors wrote, so only the header's ID is
   * always there.
   */
  sender('zendesk', 'Zendesk', {
    docs: 'https://developer.zendesk.com/documentation/webhooks/verifying',
    key: "the webhook's signing secret (Admin Center), as is",
    ...BODY,
    signature: base64In('X-Zendesk-Webhook-Signature'),
    signed: ['timestamp', 'body'],
    timestamp: { from: { header: 'X-Zendesk-Webhook-Signature-Timestamp' }, unit: 'rfc3339' },
    id: { header: 'X-Zendesk-Webhook-Invocation-Id' },
    tolerance: minutes(15, 5),
    contentTypes: JSON_XML_OR_FORM,
    methods: ANY_METHOD,
  }),
];
