/** The schema of the limits, of all requests and of each client. */
import * as z from 'zod';
import { count, duration, size } from './scalars.ts';

/** What the ports and the apps are protected by. */
export const limits = z
  .strictObject({
    headTimeout: duration().prefault('10s').describe('For the whole request head.'),
    bodyIdleTimeout: duration().prefault('15s').describe('Longest pause within the content.'),
    bodyMinRate: size().prefault(500).describe('Lowest pace of the content in bytes a second, judged after bodyIdleTimeout.'),
    bodyTimeout: duration().prefault('5m').describe('For the whole content.'),
    streamMinRate: size()
      .prefault('10Ki')
      .describe(
        'Lowest pace in bytes a second, judged after bodyTimeout, of content that is forwarded while it arrives, and of responses.',
      ),
    streamTimeout: duration()
      .prefault('1h')
      .describe('For the whole content of a request that is forwarded while it arrives (routes without webhook).'),
    sendTimeout: duration().prefault('30s').describe('How long a client may take to read what is buffered of a response.'),
    keepAliveTimeout: duration().prefault('65s').describe('How long an idle connection is kept.'),
    maxHeaderBytes: size().prefault('16Ki').describe('Largest request head.'),
    maxHeaderFields: count.default(100).describe('Most header fields of a request.'),
    maxTarget: size().prefault('8Ki').describe('Longest request target.'),
    maxConnections: count
      .default(1_024)
      .describe('Open connections on each port but the admin port; a further one replaces an idle one, or is closed.'),
    maxConnectionsPerClient: count
      .default(512)
      .describe(
        'Open connections of one client on each of those ports; a new one replaces an idle one. A client is an IPv4 address or an IPv6 /64. Does not apply to trustedProxies, trustedCallers and the balancers of proxyProtocol.',
      ),
    maxRequestsPerClient: count
      .default(512)
      .describe('Requests of one client at once on a port, over all its connections and HTTP/2 streams; further ones are 503.'),
    maxUpgraded: count.default(512).describe('Upgraded connections (WebSocket) at once; further ones are 503.'),
    maxUpgradedPerClient: count.default(256).describe('Upgraded connections of one client at once.'),
    maxInFlight: count.default(256).describe('Requests with the apps at once.'),
    maxInFlightPerClient: count
      .optional()
      .describe('Of these, requests of one client; it gets the same part of the queue. Default: three quarters of maxInFlight.'),
    maxInFlightUnverified: count
      .optional()
      .describe(
        'Of these, requests that no gate verified (allow: anyone, mode: observe); they get the same part of the queue. Default: half of maxInFlight.',
      ),
    maxQueued: z.int().min(0).max(1_000_000).default(256).describe('Requests that may wait for a place.'),
    queueTimeout: duration().prefault('5s').describe('How long a request may wait for a place.'),
    maxWaiting: z
      .int()
      .min(0)
      .max(1_000_000)
      .default(256)
      .describe('Requests that may wait for the outcome of another with the same id.'),
    passwordThreads: z
      .int()
      .min(1)
      .max(64)
      .optional()
      .describe('Threads that check passwords. Left out: one less than there are cores, at least one.'),
    passwordQueue: z
      .int()
      .min(0)
      .max(100_000)
      .default(64)
      .describe('Passwords that may wait for such a thread; further ones are 429.'),
    passwordMemory: size()
      .optional()
      .describe(
        'Memory that these threads may use together; fewer run if it is not enough for all, and users whose hash needs more cannot log in. Default: 40 % of the memory limit of the container, or no bound where it has none.',
      ),
    maxBufferedBytes: size()
      .optional()
      .describe(
        "Memory for the bodies of all requests together. If omitted: 64Mi, or a quarter of what the container's memory limit leaves beside the process itself.",
      ),
    maxLargeBodies: count
      .optional()
      .describe(
        'Bodies above 64Ki that are read at once; further ones wait. If omitted: one for each mebibyte of maxBufferedBytes, from 4 to 64.',
      ),
    memoryShed: z
      .number()
      .min(0.1)
      .max(1)
      .default(0.8)
      .describe(
        "Share of the container's memory limit from which on bodies above 64Ki are rejected; all requests are from halfway between it and the limit.",
      ),
    heapShed: z
      .number()
      .min(0.1)
      .max(1)
      .default(0.85)
      .describe('Share of the heap limit from which on new requests are refused.'),
  })
  .prefault({});
