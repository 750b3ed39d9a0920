/** Zoom: a signed endpoint.url_validation, initially and every 72 hours, that requests the HMAC of its plainToken. */
import { toMac } from '../schemes/mac.ts';
import { decline, failForMissingSecret, type Handshake, isObject, parseSmallJson, respondWithJson } from './handshake.ts';

const EVENT = 'endpoint.url_validation';
/** Without a colon: Zoom's signed strings start with `v0:`, so no response can be the signature of a delivery. */
const PLAIN_TOKEN = /^[A-Za-z0-9+/=_-]{1,256}$/;

/** https://developers.zoom.us/docs/api/webhooks/#validate-your-webhook-endpoint. */
export function createZoom(): Handshake {
  return {
    signed({ body, key }) {
      const content = parseSmallJson(body, EVENT);
      if (content?.['event'] !== EVENT) return undefined;
      const payload = content['payload'];
      const plainToken = isObject(payload) ? payload['plainToken'] : undefined;
      if (typeof plainToken !== 'string' || !PLAIN_TOKEN.test(plainToken))
        return decline('plainToken is not 1 to 256 base64 characters');
      const mac = key === undefined ? undefined : toMac(key, plainToken);
      if (mac === undefined) return failForMissingSecret('the key that verified the request is no longer usable');
      return respondWithJson('zoom', { plainToken, encryptedToken: mac.toString('hex') });
    },
  };
}
