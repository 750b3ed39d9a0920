/** The schema of the sending side: accepting events, endpoints, the queue, and where deliveries may be sent. */
import * as z from 'zod';
import { portBasic } from './basic-schema.ts';
import { textSource } from './key-schema.ts';
import { addressRange, count, duration, filePath, listenAddress, nat64Prefixes, size, timeLimit } from './scalars.ts';
import { portTls } from './tls-schema.ts';

/** The example schedule of Standard Webhooks: ten attempts over 75 hours. */
const DEFAULT_SCHEDULE = ['5s', '5m', '30m', '2h', '5h', '10h', '14h', '20h', '24h'];
const MAX_SCHEDULE_LENGTH = 50;
/** In the working directory: the folder of the config is often read-only. */
export const DEFAULT_QUEUE_FILE = './sidegate-queue.db';
/** Endpoint IDs become parts of URLs, of store keys, and metric labels. */
export const ENDPOINT_NAME = /^[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?$/;
const EVENT_PATTERN = /^(?:\*|[A-Za-z0-9_-]+)(?:\.(?:\*|[A-Za-z0-9_-]+))*$/;
/** The ID of the customer that an event belongs to. Without `.` and `..`, which HTTP clients remove from paths; and without a lookahead, as the OpenAPI document has it. */
export const TENANT =
  /^(?:[A-Za-z0-9_:-][A-Za-z0-9_:.-]{0,127}|\.[A-Za-z0-9_:-][A-Za-z0-9_:.-]{0,126}|\.\.[A-Za-z0-9_:.-]{1,126})$/;
export const TENANT_RULE = 'a tenant is 1 to 128 letters, digits and _ : . -, and neither . nor ..';
const ENCRYPTION_KEY_ID = /^[0-9a-f]{12}$/;
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/;

const schedule = () =>
  z
    .array(duration())
    .max(MAX_SCHEDULE_LENGTH)
    .meta({ examples: [['5s', '5m', '1h']] });

const secretSource = textSource.describe('Source of the secret (whsec_… or whsk_…): { env: NAME } or { file: PATH }.');

/** The settings of an endpoint that the management API has, too. */
export const endpointSettings = {
  url: z
    .string()
    .max(2048)
    .meta({ examples: ['https://acme.example/hooks'] })
    .describe('Where deliveries are sent. https, without user and password; http only with `egress.allowHttp`.'),
  description: z.string().max(256).default('').describe('Free text for operators.'),
  events: z
    .array(
      z.string().max(128).regex(EVENT_PATTERN, 'expected an event type such as invoice.paid, or a pattern such as invoice.*'),
    )
    .max(100)
    .meta({ examples: [['invoice.*']] })
    .default([])
    .describe('Event types that are delivered; `*` stands for one or more segments. Default: all types.'),
  tenant: z
    .string()
    .regex(TENANT, TENANT_RULE)
    .optional()
    .meta({ examples: ['acme'] })
    .describe('Tenant whose events are delivered. Default: none; only events without a tenant are delivered.'),
  allTenants: z.boolean().default(false).describe('Delivers the events of all tenants, and those without a tenant.'),
  headers: z
    .record(z.string().regex(HEADER_NAME, 'a header name must be a token'), z.string().max(4096))
    .default({})
    .meta({ writeOnly: true })
    .describe('Headers that are sent in addition.'),
  timeout: timeLimit().optional().describe('Maximum time for a response. Default: `provider.timeout`.'),
  concurrency: z
    .int()
    .min(1)
    .max(100)
    .optional()
    .describe('Maximum number of attempts at once. Default: `provider.concurrency`.'),
  rateLimit: z
    .number()
    .min(0.001)
    .max(100_000)
    .optional()
    .describe('Maximum number of attempts per second, over all replicas. Default: unlimited.'),
  schedule: schedule().optional().describe('Delays between attempts. Default: `provider.schedule`.'),
  retryClientErrors: z
    .union([z.literal('all'), z.array(z.int().min(400).max(499)).max(100)])
    .default([])
    .describe(
      'Statuses of 4xx that are retried besides 401, 403, 404, 408, 425 and 429, or `all`. 410 always disables the endpoint.',
    ),
  orderBy: z
    .string()
    .max(256)
    .regex(/^\$\.data(?:\.[A-Za-z0-9_-]+)+$/, 'expected a path into data, such as $.data.customer')
    .optional()
    .describe(
      'Path of a value in the event. Events with the same value are delivered strictly in order: a failing delivery blocks the later ones until it is delivered or its attempts are exhausted. Events where the value is missing, null, an object or an array have no order. Default: no order.',
    ),
  operational: z
    .boolean()
    .default(false)
    .describe('Receives only the operational events endpoint.disabled and message.exhausted, which no other endpoint receives.'),
};

/** For `refine`: the endpoint is for one tenant, for all, or for events without a tenant. */
export const ONE_TENANT_RULE = [
  ({ tenant, allTenants }: { readonly tenant?: string | undefined; readonly allTenants: boolean }) =>
    tenant === undefined || !allTenants,
  { path: ['allTenants'], error: 'an endpoint is for one tenant or for all: set either `tenant` or `allTenants: true`' },
] as const satisfies readonly [unknown, z.core.$ZodCustomParams];

const configEndpoint = z
  .strictObject({
    name: z
      .string()
      .regex(
        ENDPOINT_NAME,
        'an endpoint name is 1 to 63 lower-case letters, digits, dashes and underscores, with a letter or digit at both ends',
      )
      .describe('Name of the endpoint in the API, logs and metrics.'),
    ...endpointSettings,
    secret: secretSource,
    previousSecret: secretSource
      .optional()
      .describe('The secret before a rotation; deliveries are signed with both. Remove it once all receivers know the new one.'),
    clientCertificate: z
      .strictObject({
        certFile: filePath.describe('PEM file of the client certificate chain.'),
        keyFile: filePath.describe('PEM file of its private key.'),
      })
      .optional()
      .describe('Client certificate that the endpoint requires (mTLS).'),
  })
  .refine(...ONE_TENANT_RULE);

const share = (initial: number) => z.number().min(0.001).max(1).default(initial);

const queue = z.strictObject({
  sqlite: z
    .strictObject({
      path: filePath
        .prefault(DEFAULT_QUEUE_FILE)
        .describe('File of the queue, on a persistent volume. Relative to the working directory.'),
      allowVolatile: z
        .boolean()
        .default(false)
        .describe('Allows a file on tmpfs, overlay or a network file system, where accepted events can be lost.'),
    })
    .optional()
    .describe('Embedded queue in a SQLite file, for one process.'),
  postgres: z
    .strictObject({
      url: textSource.describe(
        'Source of the connection string (postgres://user:password@host:5432/database?sslmode=verify-full): { env: NAME } or { file: PATH }.',
      ),
      schema: z
        .string()
        .regex(/^[a-z_][a-z0-9_]{0,62}$/, 'a schema is 1 to 63 lower-case letters, digits and underscores')
        .default('sidegate')
        .describe('Schema of the tables, which is created if it does not exist.'),
      maxConnections: z.int().min(2).max(100).default(8).describe('Maximum number of connections of each replica.'),
      statementTimeout: timeLimit().prefault('10s').describe('Maximum time for one statement, and for a connection.'),
    })
    .optional()
    .describe('Queue in PostgreSQL, shared by all replicas.'),
  redis: z
    .unknown()
    .refine(() => false, {
      error: 'Redis can evict or lose accepted events: set postgres for several replicas, or sqlite for one',
    })
    .optional()
    .describe('Not supported: set `postgres` for several replicas, or `sqlite` for one.'),
  maxEvents: z
    .int()
    .min(1)
    .max(100_000_000)
    .default(1_000_000)
    .describe('Maximum number of undelivered events; then events get 503. Delivered ones do not count.'),
  maxBytes: size()
    .prefault('4Gi')
    .describe(
      'Maximum size of the undelivered events; then events get 503. The oldest delivered events leave if all events exceed it.',
    ),
  endpointShare: share(0.25).describe(
    'Part of maxEvents and maxBytes that may wait for one endpoint; an event that exceeds it gets 503, so that one dead endpoint leaves room for others.',
  ),
  tenantShare: share(0.5).describe('Part of maxEvents and maxBytes that may wait for one tenant.'),
  retention: duration().prefault('3d').describe('How long after they were accepted delivered events are kept.'),
  deadRetention: duration()
    .prefault('30d')
    .describe('How long after they were accepted events with dead or skipped deliveries are kept for retries.'),
});

const outbox = z.strictObject({
  postgres: z
    .strictObject({
      url: textSource.describe(
        'Source of the URL, postgres://USER:PASSWORD@HOST:PORT/DATABASE: { env: NAME } or { file: PATH }. Its parameters sslmode (disable, require, verify-ca or verify-full), sslrootcert, sslcert and sslkey configure TLS. Without sslmode, TLS is used and verified except on this machine.',
      ),
      schema: z
        .string()
        .regex(/^[a-z_][a-z0-9_]{0,62}$/, 'a schema name is 1 to 63 lower-case letters, digits and underscores')
        .default('public')
        .describe('Schema of the tables.'),
    })
    .describe('The database that the app writes its events to.'),
  pollInterval: duration()
    .prefault('1s')
    .describe('How often the table is searched. Notifications of PostgreSQL are faster, but a connection pooler may lose them.'),
});

/** The whole section. */
export const provider = z.strictObject({
  address: listenAddress()
    .prefault('127.0.0.1:8482')
    .describe('Listen address of the API. Addresses other than loopback require `tls`, and `token` or `basic`.'),
  tls: portTls.optional().describe('TLS on this port. Default: plain HTTP.'),
  token: z
    .strictObject({ secret: textSource.describe('Source of the token: { env: NAME } or { file: PATH }.') })
    .optional()
    .describe(
      'Bearer token that every request needs, except for /openapi.json. Without `token` and `basic`, only requests from loopback are accepted.',
    ),
  basic: portBasic
    .optional()
    .describe('Users who may use the API by password (HTTP Basic, RFC 7617), instead of the token or besides it. Default: none.'),
  roles: z
    .array(z.enum(['accept', 'deliver']))
    .min(1)
    .default(['accept', 'deliver'])
    .describe('`accept`: has the API; `deliver`: sends. Replicas with different roles share a queue in PostgreSQL.'),
  queue: queue.prefault({}).describe('Where events are stored. Default: in the file ./sidegate-queue.db.'),
  outbox: outbox
    .optional()
    .describe(
      'Takes events from a table that the app writes to in its own transactions; see docs/outbox.md. Default: only the API.',
    ),
  encryption: z
    .strictObject({
      keys: z
        .array(textSource)
        .min(1)
        .max(10)
        .meta({ examples: [[{ file: '/etc/sidegate/encryption-key' }]] })
        .describe(
          'Keys of 32 bytes in base64 (`openssl rand -base64 32`), each as { env: NAME } or { file: PATH }. The first encrypts; all decrypt.',
        ),
      lostKeys: z
        .array(z.string().regex(ENCRYPTION_KEY_ID, 'a key ID has 12 hexadecimal digits; the error at the start names it'))
        .max(100)
        .default([])
        .describe(
          'IDs of keys that are permanently lost. At the start, endpoints that need them are disabled, and get a new secret and no header values.',
        ),
    })
    .optional()
    .describe(
      'Encrypts the secrets and header values of endpoints that were created with the API (AES-256-GCM). Default: they are stored in plain text.',
    ),
  egress: z
    .strictObject({
      allowHttp: z.boolean().default(false).describe('Allows http:// endpoints. Insecure.'),
      allowPrivate: z
        .array(addressRange())
        .default([])
        .describe('Address ranges outside the public internet that deliveries may be sent to.'),
      deny: z.array(addressRange()).default([]).describe('Address ranges that deliveries may not be sent to.'),
      nat64Prefixes,
      allowHosts: z
        .array(z.string().min(1).max(255))
        .optional()
        .describe('Hosts, or *.host for all subdomains, that deliveries may be sent to. Default: all.'),
      caFile: filePath
        .optional()
        .describe('PEM file of the CAs that may issue certificates of endpoints. Default: the CAs of the system.'),
      proxy: z
        .strictObject({
          url: z
            .string()
            .max(2048)
            .describe('URL of a forward proxy (http:// or https://) that all deliveries go through, with CONNECT.'),
          username: z.string().min(1).max(255).optional().describe('User name for the proxy.'),
          password: textSource.optional().describe('Source of the password for the proxy: { env: NAME } or { file: PATH }.'),
        })
        .optional()
        .describe('Egress proxy. Default: direct connections.'),
    })
    .prefault({}),
  schedule: schedule()
    .prefault(DEFAULT_SCHEDULE)
    .describe('Delays between attempts, each with a jitter of 20 %; one attempt more than entries.'),
  timeout: timeLimit().prefault('15s').describe('Maximum time for an endpoint to respond.'),
  concurrency: z.int().min(1).max(100).default(4).describe('Maximum number of attempts at once for one endpoint.'),
  maxConcurrency: count
    .default(64)
    .describe(
      'Maximum number of attempts younger than a second at once, for all endpoints together. Attempts to an endpoint whose last attempt failed are not counted here, only in `maxConnections`.',
    ),
  maxConnections: count.default(512).describe('Maximum number of attempts at once, for all endpoints together.'),
  maxEventSize: size().prefault('256Ki').describe('Maximum size of the body of one event; larger ones get 413.'),
  rotationGrace: duration()
    .prefault('24h')
    .describe('How long deliveries are also signed with the old secret after a rotation by the API.'),
  disable: z
    .union([
      z.literal('off'),
      z.literal(false).transform(() => 'off' as const),
      z
        .strictObject({
          after: duration().prefault('5d').describe('An endpoint is disabled if all attempts failed for this long, ...'),
          attempts: count.default(20).describe('... and there were at least this many.'),
        })
        .prefault({}),
    ])
    .prefault({})
    .describe('When a failing endpoint is disabled; `off` never does, except for 410.'),
  endpoints: z.array(configEndpoint).max(10_000).default([]).describe('Endpoints; more can be created with the API.'),
});
