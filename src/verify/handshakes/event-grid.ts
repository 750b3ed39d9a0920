/** Azure Event Grid, in its own schema: a subscription validation event, whose code the response must repeat. */
import { decline, type Handshake, isObject, parseSmall, respondWithJson } from './handshake.ts';

const TYPE = 'Microsoft.EventGrid.SubscriptionValidationEvent';
const CODE = /^[A-Za-z0-9-]{1,256}$/;

/**
 * https://learn.microsoft.com/azure/event-grid/end-point-validation-event-grid-events-schema. It is authenticated as deliveries are. The
 * alternative, a GET of `validationUrl`, is never used: anyone with the credentials could have the gate request a URL (SSRF).
 */
export function createEventGrid(): Handshake {
  return {
    signed({ body }) {
      const events = parseSmall(body, TYPE);
      const [event] = Array.isArray(events) ? (events as readonly unknown[]) : [];
      if (!isObject(event) || event['eventType'] !== TYPE) return undefined;
      const data = event['data'];
      const code = isObject(data) ? data['validationCode'] : undefined;
      if ((events as readonly unknown[]).length > 1) return decline('the validation event is not alone');
      return typeof code === 'string' && CODE.test(code)
        ? respondWithJson('event-grid', { validationResponse: code })
        : decline('validationCode is not 1 to 256 letters, digits or dashes');
    },
  };
}
