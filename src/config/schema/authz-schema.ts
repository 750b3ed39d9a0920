/** The schema of the forward-auth endpoint's section. */
import * as z from 'zod';
import { addressRange, listenAddress } from './scalars.ts';
import { listenTls } from './tls-schema.ts';

/** Answers for other proxies whether a request of theirs may pass, by the routes of this gate. */
export const authz = z.strictObject({
  address: listenAddress().describe('Where other proxies ask: nginx auth_request, Traefik ForwardAuth, Caddy forward_auth.'),
  trustedCallers: z
    .array(addressRange())
    .min(1, 'nobody could ask')
    .default(['127.0.0.0/8', '::1'])
    .describe('Who may ask, and is believed about the request in question.'),
  tls: listenTls.optional().describe('TLS on that port.'),
});
