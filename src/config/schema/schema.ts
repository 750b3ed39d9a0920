/** The config's schema. Types, defaults, error messages and the JSON Schema for editors derive from it. */

import * as z from 'zod';
import { AMBIGUOUS_FORMS } from '../../core/head.ts';
import { HOST_NAME } from '../../core/listen-address.ts';
import { MAX_METHOD_LENGTH } from '../../core/request.ts';
import { PATH_DISTINCTIONS } from '../../http/path-forms.ts';
import { basic, portBasic } from './basic-schema.ts';
import { adminToken, identity, textSource } from './key-schema.ts';
import { limits, workers } from './limits-schema.ts';
import { provider } from './provider-schema.ts';
import {
  addressRange,
  count,
  duration,
  filePath,
  listenAddress,
  nat64Prefixes,
  scalar,
  size,
  timeLimit,
  upstream,
} from './scalars.ts';
import { store } from './store-schema.ts';
import { clientCertificate, listenTls, portTls } from './tls-schema.ts';
import { webhook } from './webhook-schema.ts';

/** Header fields and methods are tokens (RFC 9110 §5.6.2). */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

// The schema of tracing: which incoming traces are continued, and where spans are exported to.

const TRUST_MEANING =
  'Which incoming trace contexts (traceparent) are used: `always` continues the trace of every allowed request; `verified` starts a new trace and links to the span of a verified caller; `none` ignores them.';

function trace(trust: 'verified' | 'always') {
  return z.strictObject({ trust: z.enum(['none', 'verified', 'always']).default(trust).describe(TRUST_MEANING) }).prefault({});
}

/** For a route: its callers are third parties, even after they are verified. */
const routeTrace = trace('verified');

/** For the forward proxy: its clients are authenticated and belong to the operator. */
const proxyTrace = trace('always');

const otlp = z.strictObject({
  url: z
    .string()
    .refine((text) => URL.canParse(text) && ['http:', 'https:'].includes(new URL(text).protocol), {
      error: (issue) => `"${issue.input}" is not an http or https URL; write for example http://127.0.0.1:4318`,
    })
    .refine((text) => !URL.canParse(text) || (new URL(text).username === '' && new URL(text).password === ''), {
      error: 'the URL must not contain a user or password; use headers',
    })
    .meta({ examples: ['http://127.0.0.1:4318'] })
    .optional()
    .describe(
      'URL of the collector, which must accept OTLP/HTTP with JSON; without a path, spans are sent to /v1/traces. Default: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, then OTEL_EXPORTER_OTLP_ENDPOINT.',
    ),
  headers: z
    .record(z.string().regex(TOKEN, 'a header name must be a token (RFC 9110 §5.6.2)'), textSource)
    .optional()
    .describe(
      'Headers of each export request, for example Authorization; each value is { env: NAME } or { file: PATH }. Default: OTEL_EXPORTER_OTLP_TRACES_HEADERS, then OTEL_EXPORTER_OTLP_HEADERS.',
    ),
  caFile: filePath
    .optional()
    .describe('PEM file of the CAs that may issue the certificate of the collector. Default: the CAs of the system.'),
  timeout: timeLimit().prefault('10s').describe('Maximum time of one export request.'),
  interval: timeLimit().prefault('5s').describe('Maximum time that a span waits to be exported in a batch.'),
  maxQueued: count.default(2_048).describe('Maximum number of queued spans; further ones are dropped and counted.'),
});

/** Without this section the gate starts no traces. */
const tracing = z.strictObject({
  sampleRatio: z
    .number()
    .min(0)
    .max(1)
    .default(1)
    .describe('Share of new traces that are sampled. A continued trace keeps the decision of its caller.'),
  serviceName: z
    .string()
    .min(1)
    .max(255)
    .optional()
    .describe('`service.name` of the spans. Default: OTEL_SERVICE_NAME, then `sidegate`.'),
  resource: z
    .record(z.string().min(1).max(255), z.string().max(1_000))
    .default({})
    .describe(
      'Resource attributes of all spans, for example deployment.environment.name, in addition to OTEL_RESOURCE_ATTRIBUTES.',
    ),
  otlp: otlp.optional().describe('Exports spans to a collector. Default: no spans; only traceparent is forwarded.'),
});

// The probes of the app, and the ways to use the gate without forwarding to the app.

/** The three probes of a container. Lifecycle hooks are excluded: they have side effects, and anyone can call this endpoint. */
const APP_PROBE_KINDS = ['livez', 'readyz', 'startupz'] as const;
const CONTAINER = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
/** RFC 9110 §5.5, without the characters that Node refuses to send. */
const FIELD_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const EXAMPLE = 'http://127.0.0.1:3000/healthz';
/** One probe of one container. */
const appProbe = z.strictObject({
  container: z
    .string()
    .regex(CONTAINER, 'a container name is 1 to 63 lower-case letters, digits and dashes')
    .describe('The container that the probe belongs to.'),
  kind: z.enum(APP_PROBE_KINDS).describe('The kind of probe.'),
  url: scalar<string>(parseUrl, EXAMPLE).describe(
    'The URL to check: http://, https:// (without verifying the certificate, as the kubelet does) or tcp://host:port (connection only).',
  ),
  headers: z
    .array(
      z.strictObject({
        name: z.string().regex(TOKEN, 'a header name is a token').describe('Header name; Host is allowed.'),
        value: z
          .string()
          .regex(FIELD_VALUE, 'a header value must not contain line breaks or other control characters')
          .meta({ writeOnly: true })
          .describe('Header value.'),
      }),
    )
    .default([])
    .describe('Request headers of the probe, as in `httpGet.httpHeaders`.'),
});

/** A forward proxy that requires passwords (407) and allows only listed destinations. */
const proxy = z.strictObject({
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
  nat64Prefixes,
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

/** An endpoint where other proxies ask whether to allow a request; the routes of this gate decide. */
const authz = z.strictObject({
  address: listenAddress().describe(
    'Listen address for auth requests of other proxies: nginx auth_request, Traefik ForwardAuth, Caddy forward_auth.',
  ),
  trustedCallers: z
    .array(addressRange())
    .min(1, 'the list is empty, so every auth request would be rejected')
    // Not 127.0.0.0/8: Istio's proxy forwards what other pods send from 127.0.0.6.
    .default(['127.0.0.1', '::1'])
    .describe(
      'Addresses of the proxies that may send auth requests; their headers that describe the original request are trusted. Requests from other addresses are rejected.',
    ),
  tls: listenTls.optional().describe('TLS on this port. Default: plain HTTP.'),
});

// Routes.

/** Route names become header values, metric labels, challenge realms and store keys. */
const ROUTE_NAME = /^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/;

/** Other characters have several spellings for apps, so their presence would be ambiguous (core/head.ts). */
const headerNames = z
  .array(
    z
      .string()
      .regex(/^[A-Za-z0-9-]{1,64}$/, 'a header must be a name of 1 to 64 letters, digits and dashes')
      .transform((name) => name.toLowerCase()),
  )
  .min(1)
  .max(8)
  .transform((names) => [...new Set(names)]);

const match = z.strictObject({
  path: z.string().optional().describe('Matches this exact path.'),
  pathPrefix: z.string().optional().describe('Matches this path and all paths below it, in whole segments.'),
  host: z
    .string()
    .regex(
      HOST_NAME,
      'a host must be a name such as www.example.com, in its xn-- form and without a port; wildcards are not supported: list each host',
    )
    .transform((host) => host.toLowerCase().replace(/\.$/, ''))
    .optional()
    .describe(
      'Matches only requests with this Host, on any port. It takes precedence over routes without a host that match the same path. Default: any host.',
    ),
  methods: z
    .array(z.string().max(MAX_METHOD_LENGTH).regex(TOKEN, 'a method must be a token such as POST'))
    .min(1)
    .optional()
    .describe(
      'Allowed methods; GET includes HEAD. Other methods on the same path and host get 405, even if a less specific route allows them. Default: POST for webhooks; otherwise GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS.',
    ),
  headers: headerNames
    .optional()
    .describe(
      'Matches only requests that have all of these headers, with any value. It takes precedence over routes with the same host and path that ask for fewer.',
    ),
  withoutHeaders: headerNames.optional().describe('Matches only requests that have none of these headers.'),
  allowInPath: z
    .array(z.enum(AMBIGUOUS_FORMS))
    .default([])
    .describe(
      'Ambiguous forms that are allowed in the path although parsers interpret them differently. By default such paths are rejected with 400.',
    ),
  literal: z
    .boolean()
    .optional()
    .describe(
      'Allows characters of patterns, such as `*`, in `path` or `pathPrefix`. Paths are never patterns, so by default they are an error. Set it if requests really have these characters. Default: false.',
    ),
  trustAppToDistinguish: z
    .array(z.enum(PATH_DISTINCTIONS))
    .default([])
    .describe(
      'Spelling differences that the app is known to treat as different paths. A request that differs from the paths of this route only in such a way is matched against other routes instead of being rejected (`ambiguous_target`).',
    ),
});

const route = z.strictObject({
  name: z
    .string()
    .regex(
      ROUTE_NAME,
      'a route name is 1 to 63 lower-case letters, digits, dots, dashes and underscores, with a letter or digit at both ends',
    )
    .describe(
      'Name of the route in logs, metrics, authentication challenges and the Sidegate-Route header. Handled event IDs and stored deliveries (`ack: onAccept`) belong to the name: after it was changed, events that were handled before are new, and stored deliveries do not reach the app.',
    ),
  match: match.meta({ examples: [{ path: '/hooks/orders' }] }),
  mode: z
    .enum(['enforce', 'observe'])
    .default('enforce')
    .describe(
      '`observe` checks, counts and logs requests as usual, but forwards those that it would reject, with Sidegate-Observed. Use it during a rollout.',
    ),
  upstream: upstream().optional().describe('The app, as http://host:port. Default: the top-level `upstream`.'),
  timeout: timeLimit().prefault('15s').describe('Maximum time for the app to respond; then the request gets 504.'),
  connectTimeout: timeLimit().prefault('1s').describe('Maximum time to connect to the app.'),
  resend: z
    .enum(['idempotent', 'always'])
    .default('idempotent')
    .describe(
      'Which requests are resent if a kept-alive connection to the app turns out to be closed: only those with an idempotent method that are not webhooks, or `always`, which includes webhooks and POST. With `always` the app may get a delivery twice, as it may have handled it before it closed the connection.',
    ),
  forwardMethodOverride: z
    .boolean()
    .default(false)
    .describe(
      'Forwards X-HTTP-Method-Override, X-HTTP-Method and X-Method-Override to the app, which may then handle a POST as another method.',
    ),
  allowResponseHeaders: z
    .array(
      z
        .string()
        .regex(TOKEN, 'a header name must be a token (RFC 9110 §5.6.2)')
        .transform((name) => name.toLowerCase()),
    )
    .default([])
    .describe('Response headers that are returned to the sender although they could make it disable the endpoint.'),
  idleTimeout: timeLimit()
    .prefault('5m')
    .describe('Maximum pause within a streamed response, maximum idle time of an upgraded connection, and of its app to read.'),
  webhook: webhook
    .meta({ examples: [{ scheme: 'github', keys: [{ name: 'current', secret: { file: '/etc/sidegate/github' } }] }] })
    .optional()
    .describe('Requires a signed webhook.'),
  basic: basic.optional().describe('Requires a user name and password (HTTP Basic, RFC 7617).'),
  clientCertificate: clientCertificate
    .optional()
    .describe(
      'Requires a client certificate issued by a CA in listen.tls.clientCaFile (mTLS), in addition to the other checks of the route.',
    ),
  trace: routeTrace,
  allow: z.literal('anyone').optional().describe('Allows unauthenticated access; only valid on routes without any other check.'),
});

// All of it.

/** The whole config. */
export const ConfigSchema = z.strictObject({
  listen: z
    .strictObject({
      address: listenAddress()
        .prefault('0.0.0.0:8080')
        .describe('Listen address: host:port, several hosts separated by commas, or :port for all addresses.'),
      trustedProxies: z
        .array(addressRange())
        .default([])
        .describe(
          'Proxies whose X-Forwarded-For, -Proto, -Host and similar headers are trusted for the address of the client. They are not trusted for identity headers.',
        ),
      trustedIdentityProxies: z
        .array(addressRange())
        .default([])
        .describe(
          'Proxies whose identity headers, such as Remote-User or X-Auth-Request-User, are forwarded to the app; these headers are removed from all other requests. List only proxies that remove these headers from the requests of their clients.',
        ),
      hsts: z
        .strictObject({
          maxAge: duration().prefault('365d').describe('How long browsers use only HTTPS for this host (max-age).'),
          includeSubDomains: z.boolean().default(false).describe('Includes all subdomains.'),
          preload: z.boolean().default(false).describe('Allows the host on the preload lists of browsers.'),
        })
        .optional()
        .describe('Strict-Transport-Security header in responses over HTTPS (RFC 6797). Default: header not sent.'),
      proxyProtocol: z
        .strictObject({
          from: z
            .array(addressRange())
            .min(1)
            .meta({ examples: [['10.0.0.0/8']] })
            .describe('Load balancers whose connections must start with a PROXY header; it is rejected from all others.'),
        })
        .optional()
        .describe(
          'PROXY protocol, versions 1 and 2: reads the client address from a TCP load balancer. Default: no PROXY protocol.',
        ),
      tls: listenTls
        .optional()
        .describe('TLS on the data port; rotated files are reloaded without a restart. Default: plain HTTP.'),
    })
    .prefault({}),
  proxy: proxy.optional().describe('A forward proxy with authentication, on a separate port. Default: none.'),
  authz: authz.optional().describe('A forward-auth endpoint for other proxies, on a separate port. Default: none.'),
  provider: provider
    .optional()
    .describe('Sends webhooks: accepts events from the app, and delivers them signed, with retries for days. Default: none.'),
  identity: identity
    .optional()
    .describe(
      'Adds a signed token to each forwarded request (Sidegate-Identity), so that the app can verify that the request passed sidegate. Default: no token.',
    ),
  admin: z
    .strictObject({
      address: listenAddress()
        .prefault('0.0.0.0:9090')
        .describe(
          'Listen address of the admin port. /metrics, /healthz, /readyz and /identity/jwks.json are public; the other endpoints require authorization (see `admin.token`).',
        ),
      token: adminToken
        .meta({ examples: [{ secret: { file: '/etc/sidegate/admin-token' } }] })
        .optional()
        .describe(
          'Bearer token required for all endpoints that are not public. Default: those endpoints accept only requests from loopback.',
        ),
      basic: portBasic
        .optional()
        .describe(
          'Users who may log in to the console API, and act through it (RFC 7617). The port has no TLS, so passwords are accepted only from loopback, for example through kubectl port-forward. Default: nobody may act.',
        ),
      appProbes: z
        .array(appProbe)
        .default([])
        .describe(
          'Probes that `/app-health/<container>/<kind>` runs for the kubelet, which cannot reach an app that listens on loopback.',
        ),
    })
    .prefault({}),
  store,
  workers,
  limits,
  shutdown: z
    .strictObject({
      grace: duration()
        .prefault('5s')
        .describe(
          'How long new requests are still accepted after SIGTERM, while the pod is removed from its endpoints. Ends early if the apps no longer accept connections.',
        ),
      drain: duration().prefault('25s').describe('How long requests in flight may then take to finish.'),
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
              .describe('Maximum number of rejections that are analyzed per minute and route.'),
            maxBody: size()
              .prefault('256Ki')
              .describe('Maximum size of a body that is analyzed; of larger ones only the head is analyzed.'),
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
              .describe('Share of one CPU core that analyses for one client (an IPv4 address or an IPv6 /64) may use.'),
          })
          .prefault({}),
      ],
      { error: 'expected off, or an object with perMinute, maxBody, cpuShare, cpuSharePerClient' },
    )
    .prefault({})
    .describe(
      'Analyzes why signatures were rejected, and reports the result in the log, metrics and journal; `off` disables it.',
    ),
  journal: z
    .strictObject({
      size: z
        .int()
        .min(0)
        .max(10_000)
        .default(1_000)
        .describe(
          'Number of recent decisions that /journal on the admin port shows, and of attempts that /journal/attempts shows; 0 disables both.',
        ),
      maxBytes: size()
        .prefault('4Mi')
        .describe(
          'Maximum memory for the decisions; the oldest are removed early if they have long headers, paths or explanations.',
        ),
      maxBodyBytes: size()
        .prefault('4Mi')
        .describe(
          'Maximum memory for the bodies of all routes with `storeBody`; the oldest of the route that has most are removed early.',
        ),
    })
    .prefault({}),
  tracing: tracing
    .optional()
    .describe(
      'Distributed tracing (W3C Trace Context). Default: trusted trace contexts are forwarded, and no traces are started.',
    ),
  log: z
    .strictObject({
      level: z.enum(['debug', 'info', 'warn', 'error']).default('info').describe('Minimum level of log lines.'),
      flush: duration()
        .prefault('250ms')
        .describe(
          'How long a line may wait to be written together with others; a crash of the machine or `kill -9` loses as much.',
        ),
    })
    .prefault({}),
  upstream: upstream().optional().describe('The app of all routes without an `upstream`, as http://host:port.'),
  routes: z
    .array(route)
    .default([])
    .meta({ examples: [[{ name: 'orders', match: { path: '/hooks/orders' }, upstream: 'http://127.0.0.1:3000' }]] })
    .describe(
      'Routes of the data port. Without routes the port is opened only if `--listen` names it, and rejects all requests; then `provider` or `proxy` is required.',
    ),
});

/** Errors never contain the URL, because it could hold a password. */
function parseUrl(text: string): string | { readonly problem: string } {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !['http:', 'https:', 'tcp:'].includes(url.protocol) || url.hostname === '')
    return { problem: `not an http, https or tcp URL; write for example ${EXAMPLE} or tcp://127.0.0.1:3000` };
  if (url.username !== '' || url.password !== '') return { problem: 'the URL of a probe must not contain a user or password' };
  if (url.port === '0') return { problem: 'port 0 is not a valid port to connect to' };
  if (url.protocol === 'tcp:' && (url.port === '' || !['', '/'].includes(url.pathname) || url.search !== ''))
    return { problem: 'tcp:// must be followed by a host and a port only, for example tcp://127.0.0.1:3000' };
  return url.href;
}
