/** Zoom: a signed endpoint.url_validation, at first and every 72 hours, that asks for the HMAC of its plainToken. */
import { toMac } from '../schemes/mac.ts';
import { answerJson, decline, declineForLack, type Handshake, isObject, parseBrief } from './handshake.ts';

const EVENT = 'endpoint.url_validation';
/** Without a colon: what Zoom signs begins with `v0:`, so no answer can be the signature of a delivery. */
const PLAIN_TOKEN = /^[A-Za-z0-9+/=_-]{1,256}$/;

/** https://developers.zoom.us/docs/api/webhooks/#validate-your-webhook-endpoint. */
export function createZoom(): Handshake {
  return {
    signed({ body, key }) {
      const content = parseBrief(body, EVENT);
      if (content?.['event'] !== EVENT) return undefined;
      const payload = content['payload'];
      const plainToken = isObject(payload) ? payload['plainToken'] : undefined;
      if (typeof plainToken !== 'string' || !PLAIN_TOKEN.test(plainToken))
        return decline('plainToken is not 1 to 256 letters, digits and signs of base64');
      const mac = key === undefined ? undefined : toMac(key, plainToken);
      if (mac === undefined) return declineForLack('the key that verified the request is no longer usable');
      return answerJson('zoom', { plainToken, encryptedToken: mac.toString('hex') });
    },
  };
}
