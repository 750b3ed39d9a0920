/** The schema of the forward proxy's section. */
import * as z from 'zod';
import { basic } from './basic-schema.ts';
import { duration, listenAddress } from './scalars.ts';
import { portTls } from './tls-schema.ts';
import { proxyTrace } from './trace-schema.ts';

/** A forward proxy with passwords (407) and a list of what may be reached. */
export const proxy = z.strictObject({
  address: listenAddress().describe('Where clients of the forward proxy come in.'),
  tls: portTls.optional().describe('TLS on that port: an https proxy.'),
  requireTls: z.boolean().default(true).describe('Refuse clients that come in clear text before a password is read.'),
  basic: basic
    .omit({ requireTls: true, forwardUser: true, forwardAuthorization: true })
    .meta({ examples: [{ users: [{ file: '/etc/sidegate/users' }] }] })
    .describe('Who may use it (RFC 7617, by Proxy-Authorization).'),
  allow: z
    .array(z.string().min(1))
    .default([])
    .describe('What may be reached, as host:port; *.host:port for all names below. Left out: nothing.'),
  denyPrivate: z
    .boolean()
    .default(true)
    .describe('Refuse addresses that are not of the public internet, after names are resolved.'),
  trace: proxyTrace,
  connectTimeout: duration().prefault('5s').describe('How long connecting to a destination may take.'),
  timeout: duration().prefault('60s').describe('How long a destination may take to answer a request that is not CONNECT.'),
  idleTimeout: duration().prefault('5m').describe('Longest silence of a tunnel, and longest gap within an answer.'),
  maxDuration: duration().prefault('1d').describe('Longest life of a tunnel.'),
});
