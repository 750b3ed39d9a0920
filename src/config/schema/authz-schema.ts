/** The schema of the forward-auth endpoint's section. */
import * as z from 'zod';
import { addressRange, listenAddress } from './scalars.ts';
import { listenTls } from './tls-schema.ts';

/** An endpoint where other proxies ask whether to allow a request; the routes of this gate decide. */
export const authz = z.strictObject({
  address: listenAddress().describe(
    'Listen address for auth requests of other proxies: nginx auth_request, Traefik ForwardAuth, Caddy forward_auth.',
  ),
  trustedCallers: z
    .array(addressRange())
    .min(1, 'the list is empty, so every auth request would be rejected')
    .default(['127.0.0.0/8', '::1'])
    .describe(
      'Addresses of the proxies that may send auth requests; their headers that describe the original request are trusted. Requests from other addresses are rejected.',
    ),
  tls: listenTls.optional().describe('TLS on this port. Default: plain HTTP.'),
});
