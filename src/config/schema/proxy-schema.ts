/** The schema of the forward proxy's section. */
import * as z from 'zod';
import { portBasic } from './basic-schema.ts';
import { listenAddress, timeLimit } from './scalars.ts';
import { portTls } from './tls-schema.ts';
import { proxyTrace } from './trace-schema.ts';

/** A forward proxy that requires passwords (407) and allows only listed destinations. */
export const proxy = z.strictObject({
  address: listenAddress().describe('Listen address of the forward proxy.'),
  tls: portTls.optional().describe('TLS on this port, for clients that support an HTTPS proxy. Default: plain HTTP.'),
  requireTls: z
    .boolean()
    .default(true)
    .describe('Rejects clients without TLS before the password is read. Set to false only on loopback or a trusted network.'),
  basic: portBasic.describe('Users who may use the proxy (RFC 7617, in Proxy-Authorization).'),
  allow: z
    .array(z.string().min(1))
    .default([])
    .describe('Allowed destinations as host:port, or *.host:port for all subdomains. Default: none.'),
  denyPrivate: z
    .boolean()
    .default(true)
    .describe('Rejects destinations whose name resolves to an address outside the public internet (protection against SSRF).'),
  trace: proxyTrace,
  connectTimeout: timeLimit().prefault('5s').describe('Maximum time to connect to a destination.'),
  timeout: timeLimit().prefault('60s').describe('Maximum time for a destination to respond to a request other than CONNECT.'),
  idleTimeout: timeLimit()
    .prefault('5m')
    .describe(
      'Maximum idle time of a tunnel, maximum time for its destination to take what it is sent, and maximum pause within a response.',
    ),
  maxDuration: timeLimit().prefault('1d').describe('Maximum lifetime of a tunnel.'),
});
