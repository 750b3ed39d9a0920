/** The config's schema: types, defaults, error texts and the editors' JSON Schema all derive from it. */
import * as z from 'zod';
import { MAX_METHOD } from '../../core/method.ts';
import { PATH_DISTINCTIONS } from '../../core/path-forms.ts';
import { AMBIGUOUS_FORMS } from '../../core/target.ts';
import { appProbe } from './app-probe-schema.ts';
import { authz } from './authz-schema.ts';
import { basic } from './basic-schema.ts';
import { adminToken, identity } from './key-schema.ts';
import { limits } from './limits-schema.ts';
import { proxy } from './proxy-schema.ts';
import { addressRange, duration, listenAddress, size, upstream } from './scalars.ts';
import { store } from './store-schema.ts';
import { clientCertificate, listenTls } from './tls-schema.ts';
import { routeTrace, tracing } from './trace-schema.ts';
import { webhook } from './webhook-schema.ts';

/** Header fields and methods are tokens (RFC 9110 §5.6.2). */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** Route names become header values, metric labels, challenge realms and store keys. */
const ROUTE_NAME = /^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/;

const match = z.strictObject({
  path: z.string().optional().describe('The exact path.'),
  pathPrefix: z.string().optional().describe('The path and all below it, by whole segments.'),
  host: z
    .string()
    .regex(/^[A-Za-z0-9.-]{1,253}$/, 'a host is a name without port')
    .transform((host) => host.toLowerCase().replace(/\.$/, ''))
    .optional()
    .describe('Only for this Host, whatever its port. Where such a route takes a path, routes without a host do not.'),
  methods: z
    .array(z.string().max(MAX_METHOD).regex(TOKEN, 'a method is a token such as POST'))
    .min(1)
    .optional()
    .describe(
      'Methods that are taken; GET includes HEAD. Other methods of the same path and host get 405, whatever a wider route takes. Default: POST for webhooks; else GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS.',
    ),
  allowInPath: z
    .array(z.enum(AMBIGUOUS_FORMS))
    .default([])
    .describe('Forms in the path that parsers read differently, let through all the same.'),
  trustAppToDistinguish: z
    .array(z.enum(PATH_DISTINCTIONS))
    .default([])
    .describe(
      'Differences by which the app surely tells other paths from the paths of this route. A request that would match the route but for such a difference is then left to other routes, instead of being rejected (`ambiguous_target`).',
    ),
});

const route = z.strictObject({
  name: z
    .string()
    .regex(
      ROUTE_NAME,
      'a route name is 1 to 63 lower-case letters, digits, dots, dashes and underscores, with a letter or digit at both ends',
    )
    .describe('Shown in logs and metrics, in the challenge, and in the Sidegate-Route header.'),
  match: match.meta({ examples: [{ path: '/hooks/orders' }] }),
  mode: z
    .enum(['enforce', 'observe'])
    .default('enforce')
    .describe(
      '`observe` judges, counts and logs as always, but lets through what it would refuse, with Sidegate-Observed: for the time of a roll-out.',
    ),
  upstream: upstream().optional().describe('The app: http://host:port. Left out: the `upstream` at the top.'),
  timeout: duration().prefault('15s').describe('How long the app may take to answer.'),
  connectTimeout: duration().prefault('1s').describe('How long connecting to the app may take.'),
  resend: z
    .enum(['idempotent', 'always'])
    .default('idempotent')
    .describe(
      'What is sent again when a kept-alive connection to the app turns out dead: only what its method allows, or POST as well.',
    ),
  forwardMethodOverride: z
    .boolean()
    .default(false)
    .describe(
      'Passes X-HTTP-Method-Override, X-HTTP-Method and X-Method-Override to the app, which may then take a POST for another method.',
    ),
  allowResponseHeaders: z
    .array(
      z
        .string()
        .regex(TOKEN, 'a header name is a token')
        .transform((name) => name.toLowerCase()),
    )
    .default([])
    .describe('Response headers that are passed although a sender may switch itself off by them.'),
  idleTimeout: duration()
    .prefault('5m')
    .describe('Longest gap within an answer that is passed on as it comes, and in an upgraded connection.'),
  webhook: webhook.optional().describe('Only signed webhooks are let through.'),
  basic: basic.optional().describe('Only users with a password are let through (RFC 7617).'),
  clientCertificate: clientCertificate
    .optional()
    .describe(
      'Only clients with a certificate of listen.tls.clientCaFile are let through (mTLS), beside what else the route asks for.',
    ),
  trace: routeTrace,
  allow: z.literal('anyone').optional().describe('Lets everybody through, where a route asks for nothing else.'),
});

/** The whole config. */
export const ConfigSchema = z.strictObject({
  listen: z
    .strictObject({
      address: listenAddress()
        .prefault('0.0.0.0:8080')
        .describe('Where requests come in: host:port, several hosts with commas between, or :port for all addresses.'),
      trustedProxies: z
        .array(addressRange())
        .default([])
        .describe(
          'Proxies trusted for the address of the client: X-Forwarded-For, -Proto, -Host and similar. They are not trusted for identity headers.',
        ),
      trustedIdentityProxies: z
        .array(addressRange())
        .default([])
        .describe(
          'Proxies trusted for the identity of the client: headers such as Remote-User or X-Auth-Request-User pass to the app only from these. Name only proxies that remove such headers from what their own clients send.',
        ),
      hsts: z
        .strictObject({
          maxAge: duration().prefault('365d').describe('How long browsers ask for this host by https only.'),
          includeSubDomains: z.boolean().default(false).describe('All hosts below it, too.'),
          preload: z.boolean().default(false).describe('Agrees to a place in the lists that browsers ship.'),
        })
        .optional()
        .describe('Strict-Transport-Security on answers to clients that came by https (RFC 6797). Left out: not said.'),
      proxyProtocol: z
        .strictObject({
          from: z
            .array(addressRange())
            .min(1)
            .meta({ examples: [['10.0.0.0/8']] })
            .describe('Balancers whose connections begin with its header; nobody else may send one.'),
        })
        .optional()
        .describe('PROXY protocol, versions 1 and 2: takes the address of the client from a balancer that speaks TCP only.'),
      tls: listenTls.optional().describe('TLS on the data port; rotated files are taken up without a restart.'),
    })
    .prefault({}),
  proxy: proxy.optional().describe('A forward proxy on a port of its own. Left out: none.'),
  authz: authz.optional().describe('A forward-auth endpoint on a port of its own. Left out: none.'),
  identity: identity
    .optional()
    .describe(
      'Sign each forwarded request by Sidegate-Identity, so that the app can check that it passed the gate. Left out: not signed.',
    ),
  admin: z
    .strictObject({
      address: listenAddress()
        .prefault('0.0.0.0:9090')
        .describe('/metrics, /healthz, /readyz and /identity/jwks.json for all; the journal, keys and ids for whoever may.'),
      token: adminToken
        .optional()
        .describe(
          'What callers show (Authorization: Bearer) who ask for more than health. Left out: only callers on this machine may.',
        ),
      appProbes: z
        .array(appProbe)
        .default([])
        .describe(
          'What `/app-health/<container>/<kind>` asks the app: for the probes of an app that listens on loopback, where the kubelet cannot reach it.',
        ),
    })
    .prefault({}),
  store,
  limits,
  shutdown: z
    .strictObject({
      grace: duration()
        .prefault('5s')
        .describe('How long requests are still taken after SIGTERM, while the pod leaves its endpoints.'),
      drain: duration().prefault('25s').describe('How long requests under way may then take.'),
    })
    .prefault({}),
  explain: z
    .union(
      [
        z.literal('off'),
        z.literal(false).transform(() => 'off' as const),
        z
          .strictObject({
            perMinute: z
              .int()
              .min(1)
              .max(10_000)
              .default(10)
              .describe('Refusals of each route that are looked into each minute.'),
            maxBody: size().prefault('256Ki').describe('Largest content that is looked into; of larger ones the head is.'),
            cpuShare: z
              .number()
              .min(0.001)
              .max(1)
              .default(0.05)
              .describe('Share of one CPU core that all analyses together may use.'),
            cpuSharePerClient: z
              .number()
              .min(0.001)
              .max(1)
              .default(0.02)
              .describe('Share of one CPU core that the rejected deliveries of one client (IPv4 address, IPv6 /64) may use.'),
          })
          .prefault({}),
      ],
      { error: 'expected off, or a mapping with perMinute, maxBody, cpuShare, cpuSharePerClient' },
    )
    .prefault({})
    .describe('Find out why signatures are refused, and tell it to the log, the metrics and the journal; `off`: do not.'),
  journal: z
    .strictObject({
      size: z
        .int()
        .min(0)
        .max(10_000)
        .default(1_000)
        .describe('How many of the last verdicts /journal on the admin port shows; 0: none.'),
    })
    .prefault({}),
  tracing: tracing
    .optional()
    .describe('Take part in traces (W3C Trace Context). Left out: trusted contexts are passed on, and none are made.'),
  log: z
    .strictObject({
      level: z.enum(['debug', 'info', 'warn', 'error']).default('info').describe('From which level on lines are written.'),
    })
    .prefault({}),
  upstream: upstream().optional().describe('The app of the routes that name none of their own: http://host:port.'),
  routes: z
    .array(route)
    .min(1, 'a gate without routes lets nothing through')
    .meta({ examples: [[{ name: 'orders', match: { path: '/hooks/orders' }, upstream: 'http://127.0.0.1:3000' }]] }),
});
