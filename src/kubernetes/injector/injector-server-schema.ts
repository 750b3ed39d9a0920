/** The schema of the injector's `server` and `rotation` sections: its address and its certificates. */
import * as z from 'zod';
import { duration, filePath, listenAddress } from '../../config/schema/scalars.ts';
import { hasForm, OBJECT_NAME } from './kubernetes-values.ts';

const DNS_NAME = /^(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$/;
const MIN_LIFE_MS = 1_000;

const objectName = () =>
  z
    .string()
    .refine((text) => hasForm(OBJECT_NAME, text), {
      error: ({ input }) => `"${String(input)}" is not the name of an object: expected ${OBJECT_NAME.expected}`,
    })
    .meta({ examples: ['sidegate-injector'] });
const life = () => duration().refine((value) => value >= MIN_LIFE_MS, 'a certificate must be valid for at least one second');

const checkInterval = () =>
  duration()
    .refine((value) => value >= MIN_LIFE_MS / 2, 'the interval must be at least 500ms')
    .prefault('10s');

/** Settings of `sidegate rotate-certificates`; the injector's server does not use them. */
export const rotation = z
  .strictObject({
    namespace: objectName().describe('Namespace of the Service and both Secrets.'),
    caSecret: objectName().describe('Secret for the CA and its key. It must exist, and can be empty.'),
    serverSecret: objectName().describe("Secret for the injector's server certificate. It must exist, and can be empty."),
    service: objectName().describe('Service through which the API server calls the injector.'),
    webhook: objectName().describe('MutatingWebhookConfiguration whose caBundle is updated.'),
    dnsNames: z
      .array(z.string().regex(DNS_NAME, 'a DNS name consists of lower-case labels separated by dots'))
      .default([])
      .describe('Further DNS names in the certificate, if the API server does not use the name of the Service.'),
    caLifetime: life().prefault('365d').describe('Validity of a CA; it is replaced after two thirds of this time.'),
    serverLifetime: life()
      .prefault('7d')
      .describe('Validity of a server certificate; it is renewed after two thirds of this time.'),
    overlap: duration().prefault('24h').describe('How long a new CA is trusted before it signs certificates.'),
    checkInterval: checkInterval().describe(
      'How often Secrets and webhook configuration are checked, with a random deviation of up to a fifth.',
    ),
  })
  .refine(({ caLifetime, overlap, serverLifetime }) => overlap + serverLifetime <= caLifetime / 3, {
    error:
      'overlap + serverLifetime must not exceed a third of caLifetime, because a CA is replaced during the last third of its validity',
    path: ['caLifetime'],
  });

const trustedBy = () =>
  objectName()
    .optional()
    .describe(
      'MutatingWebhookConfiguration whose caBundle must trust the certificate before the injector is ready. Default: not checked.',
    );

const secret = z.strictObject({
  secret: z
    .strictObject({
      namespace: objectName().describe('Namespace of the Secret.'),
      name: objectName().describe('Name of the Secret: `rotation.serverSecret` of the rotation controller.'),
      checkInterval: checkInterval().describe('How often the Secret is read.'),
    })
    .describe('Certificate in a Secret that `sidegate rotate-certificates` maintains; read from the API server.'),
  webhook: trustedBy(),
});

const directory = z.strictObject({
  directory: filePath.describe(
    'Directory with tls.crt and tls.key, such as a mounted Secret of type kubernetes.io/tls; watched for changes.',
  ),
  webhook: trustedBy(),
});

const clientAuth = z.strictObject({
  mode: z
    .enum(['require', 'optional'])
    .default('require')
    .describe(
      '`require` rejects all other callers. `optional` also responds to others, within `perClient`, but without Events and look-ups for them.',
    ),
  caFile: filePath.describe("PEM file of the CAs that may issue the API server's client certificate; watched for changes."),
  allowedNames: z
    .array(z.string().min(1))
    .min(1, 'list the common names (CN) of the API server, because the CA may also sign certificates of others')
    .describe("Allowed common names (CN) of the API server's client certificate."),
});

const count = (max: number) => z.int().min(1).max(max);
const perClient = z
  .strictObject({
    maxConnections: count(1_024).default(512).describe('Maximum number of connections, of 1,024 in total.'),
    connectionsPerSecond: count(10_000).default(200).describe('New connections per second, with bursts of up to twice as many.'),
    requestsPerSecond: count(100_000).default(500).describe('Requests per second, with bursts of up to twice as many.'),
    maxUploads: count(1_024).default(64).describe('Maximum number of requests whose body has not been received completely.'),
  })
  .prefault({});

/** Settings of the admission server. */
export const injectServer = z.strictObject({
  address: listenAddress().prefault(':10250').describe('Listen address for the API server (HTTPS).'),
  adminAddress: listenAddress().prefault(':8481').describe('Listen address for /readyz, /healthz and /metrics.'),
  clientAuth: clientAuth
    .optional()
    .describe(
      'Authenticates the API server by its client certificate. Default: no caller is authenticated, and the limits apply to all.',
    ),
  perClient: perClient.describe(
    'Limits for each client network (an IPv4 address or an IPv6 /64) without a verified certificate.',
  ),
  excludedNamespaces: z
    .array(objectName())
    .default([])
    .describe('Namespaces for which the API server never calls the injector; a review for one of them is rejected as forged.'),
  certificate: z.union([secret, directory], { error: 'expected secret: or directory:' }),
  shutdown: z
    .strictObject({
      grace: duration()
        .prefault('10s')
        .describe('How long new requests are accepted after SIGTERM, while the pod is removed from its endpoints.'),
      drain: duration().prefault('10s').describe('How long requests in flight may then take to finish.'),
    })
    .prefault({}),
});
