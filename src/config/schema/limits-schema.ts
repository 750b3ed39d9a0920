/** The schema of the limits, overall and per client. */
import * as z from 'zod';
import { count, duration, size, timeLimit } from './scalars.ts';

/** The limits that protect the ports and the apps. */
export const limits = z
  .strictObject({
    headTimeout: timeLimit(100).prefault('10s').describe('Maximum time to receive a request head.'),
    bodyIdleTimeout: timeLimit().prefault('15s').describe('Maximum pause while a request body is received.'),
    bodyMinRate: size({ max: 10_000_000 })
      .prefault(500)
      .describe('Minimum transfer rate of a request body in bytes per second, enforced after bodyIdleTimeout.'),
    bodyTimeout: timeLimit().prefault('5m').describe('Maximum time to receive a request body.'),
    streamMinRate: size()
      .prefault('10Ki')
      .describe(
        'Minimum transfer rate in bytes per second of responses, of upgraded connections and tunnels whose client does not keep up, and of request bodies that are streamed to the app, enforced after bodyTimeout.',
      ),
    streamTimeout: timeLimit()
      .prefault('1h')
      .describe('Maximum time to receive a request body that is streamed to the app (routes without webhook).'),
    sendTimeout: timeLimit()
      .prefault('30s')
      .describe(
        'Maximum time for a client to read the buffered part of a response, or of what it is sent over an upgraded connection or a tunnel.',
      ),
    keepAliveTimeout: timeLimit()
      .prefault('65s')
      .describe('How long an idle connection is kept open. Set it above the idle timeout of the load balancer.'),
    maxHeaderBytes: size({ min: 1_024 }).prefault('16Ki').describe('Maximum size of a request head.'),
    maxHeaderFields: z.int().min(10).max(1_000_000).default(100).describe('Maximum number of header fields in a request.'),
    maxTarget: size().prefault('8Ki').describe('Maximum length of a request target.'),
    maxConnections: count
      .default(1_024)
      .describe(
        'Maximum number of open connections on each port except the admin port, if a head for each fits into the memory. A further one replaces an idle one; if there is none, it is closed.',
      ),
    maxConnectionsPerClient: count
      .default(512)
      .describe(
        'Maximum number of open connections of one client (an IPv4 address or an IPv6 /64) on each of those ports. A further one replaces an idle one of that client. Does not apply to a forward proxy on loopback, trustedProxies, trustedCallers and the load balancers of proxyProtocol, whose idle connections are replaced only if no other is idle.',
      ),
    maxRequestsPerClient: count
      .default(512)
      .describe(
        'Maximum number of concurrent requests of one client on a port, over all its connections and HTTP/2 streams; further ones get 503.',
      ),
    maxUpgraded: count
      .optional()
      .describe(
        'Maximum number of concurrent upgraded connections (WebSocket, tunnels) on each port, as none of them is replaced; further ones get 503. Default: half of maxConnections.',
      ),
    maxUpgradedPerClient: count
      .optional()
      .describe(
        'Maximum number of concurrent upgraded connections of one client. A client that has more of them than are free gets no further one. Does not apply to a forward proxy on loopback. Default: a quarter of maxConnections.',
      ),
    maxInFlight: count
      .default(256)
      .describe(
        'Maximum number of concurrent requests to the apps; further ones are queued. One route of several takes at most three times as many as are free. Uploads and responses without webhook that last longer than the timeout of their route count apart, up to the same number.',
      ),
    maxInFlightPerClient: count
      .optional()
      .describe(
        'Maximum number of concurrent requests of one client to the apps. The same share of the queue applies. A client also gets at most three times as many as it leaves free, of those that its route can get. Only a value above three quarters of maxInFlight allows more.',
      ),
    maxInFlightUnverified: count
      .optional()
      .describe(
        'Maximum number of concurrent unverified requests to the apps (allow: anyone, mode: observe). The same share of the queue applies. Default: half of maxInFlight.',
      ),
    maxQueued: z.int().min(0).max(1_000_000).default(256).describe('Maximum number of queued requests; further ones get 503.'),
    queueTimeout: duration().prefault('5s').describe('Maximum time in the queue; then the request gets 503.'),
    maxWaiting: z
      .int()
      .min(0)
      .max(1_000_000)
      .default(256)
      .describe(
        'Maximum number of deliveries that wait for the outcome of another one with the same ID or resource. A client, ID or resource that has more of them than are free gets no further one.',
      ),
    passwordThreads: z
      .int()
      .min(1)
      .max(64)
      .optional()
      .describe('Number of threads that check passwords. Default: the number of cores minus one, at least one.'),
    passwordQueue: z
      .int()
      .min(0)
      .max(100_000)
      .default(64)
      .describe(
        'Maximum number of password checks that wait for a thread, except of passwords that the same client network used within the last hour. With further ones, those of the realm or network that has most get 429.',
      ),
    passwordMemory: size()
      .optional()
      .describe(
        "Total memory of the concurrent password checks. Fewer run at once if their hashes need more; users whose hash alone needs more cannot log in. Default: 40 % of the container's memory limit, or unlimited without one.",
      ),
    maxBufferedBytes: size()
      .optional()
      .describe(
        "Maximum memory for the bodies of all requests together. Default: 64Mi, or a quarter of the container's memory limit minus the base footprint of the process.",
      ),
    maxLargeBodies: count
      .optional()
      .describe(
        'Maximum number of bodies above 64Ki that are read concurrently; further ones wait. Default: one per mebibyte of maxBufferedBytes, from 4 to 64.',
      ),
    memoryShed: z
      .number()
      .min(0.1)
      .max(1)
      .default(0.8)
      .describe(
        "Share of the container's memory limit above which bodies over 64Ki are rejected. Halfway between this threshold and the limit, all requests are rejected.",
      ),
    heapShed: z.number().min(0.1).max(1).default(0.85).describe('Share of the heap limit above which new requests are rejected.'),
  })
  .prefault({});

/** The threads that share the limits. */
export const workers = z
  .int()
  .min(1)
  .max(64)
  .default(1)
  .describe(
    'Number of threads that serve the data port, `proxy` and `authz`, for a container with more than one core. Each gets a part of the limits. More than one requires `store.redis` (docs/workers.md).',
  );
