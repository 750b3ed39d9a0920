/** The schema of the injector's `server` section: where it is reached, and how its certificates come about. */
import * as z from 'zod';
import { duration, filePath, listenAddress } from '../../config/schema/scalars.ts';
import { hasForm, OBJECT_NAME } from './kubernetes-values.ts';

const DNS_NAME = /^(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$/;
const SHORTEST_MS = 1_000;

const objectName = () =>
  z
    .string()
    .refine((text) => hasForm(OBJECT_NAME, text), {
      error: ({ input }) => `"${String(input)}" is no name of an object: ${OBJECT_NAME.expected}`,
    })
    .meta({ examples: ['sidegate-injector'] });
const life = () => duration().refine((value) => value >= SHORTEST_MS, 'a certificate lasts for a second at least');

const checkInterval = () =>
  duration()
    .refine((value) => value >= SHORTEST_MS / 2, 'the API server is not asked more than twice a second')
    .prefault('10s');

/** What `sidegate rotate-certificates` keeps; the process that listens reads none of it. */
export const rotation = z
  .strictObject({
    namespace: objectName().describe('Where the Service and both Secrets are.'),
    authoritySecret: objectName().describe('The Secret with the CA and its key. It must exist, and is empty at first.'),
    serverSecret: objectName().describe(
      'The Secret with the certificate that the injector serves. It must exist, and is empty at first.',
    ),
    service: objectName().describe('The Service that the API server calls the injector by.'),
    webhook: objectName().describe('The MutatingWebhookConfiguration whose caBundle is kept.'),
    dnsNames: z
      .array(z.string().regex(DNS_NAME, 'a DNS name is lower-case labels with dots between them'))
      .default([])
      .describe("Further names of the certificate, if the API server does not call the injector by its Service's."),
    authorityLife: life().prefault('365d').describe('How long a CA lasts; it is succeeded after two thirds of that.'),
    serverLife: life().prefault('7d').describe('How long a certificate lasts; it is renewed after two thirds of that.'),
    overlap: duration().prefault('24h').describe('How long a new CA is trusted before it signs.'),
    checkInterval: checkInterval().describe('How often Secrets and webhook configuration are checked, give or take a fifth.'),
  })
  .refine(({ authorityLife, overlap, serverLife }) => overlap + serverLife <= authorityLife / 3, {
    error: 'overlap and serverLife do not fit into the last third of authorityLife, in which it is succeeded',
    path: ['authorityLife'],
  });

const trustedBy = () =>
  objectName()
    .optional()
    .describe(
      'The MutatingWebhookConfiguration whose caBundle the certificate must lead to before the injector is ready. Left out: not looked at.',
    );

const secret = z.strictObject({
  secret: z
    .strictObject({
      namespace: objectName().describe('Where the Secret is.'),
      name: objectName().describe('The `rotation.serverSecret` of the rotation controller.'),
      checkInterval: checkInterval().describe('How often it is read.'),
    })
    .describe('The certificate that `sidegate rotate-certificates` keeps in a Secret, read from the API server.'),
  webhook: trustedBy(),
});

const directory = z.strictObject({
  directory: filePath.describe('Folder with tls.crt and tls.key, as Secrets of type kubernetes.io/tls are mounted; watched.'),
  webhook: trustedBy(),
});

const clientAuth = z.strictObject({
  mode: z
    .enum(['require', 'optional'])
    .default('require')
    .describe(
      '`require`: nobody else is answered. `optional`: others are answered within `perClient`, but cause no Event and no look-up.',
    ),
  caFile: filePath.describe("The CAs of the API server's client certificate, PEM; watched."),
  allowedNames: z
    .array(z.string().min(1))
    .min(1, 'name the common names (CN) that the API server has: a CA signs others, too')
    .describe('Common names (CN) of the certificate, one of which it must have.'),
});

const count = (most: number) => z.int().min(1).max(most);
const perClient = z
  .strictObject({
    maxConnections: count(1_024).default(512).describe('Connections; there are 1,024 in all.'),
    connectionsPerSecond: count(10_000).default(200).describe('New connections a second; twice as many at once.'),
    requestsPerSecond: count(100_000).default(500).describe('Requests a second; twice as many at once.'),
    maxUploads: count(1_024).default(64).describe('Requests whose body has not arrived in full.'),
  })
  .prefault({});

/** Where the admission server listens, by what certificates, and how it stops. */
export const injectServer = z.strictObject({
  address: listenAddress().prefault(':10250').describe('Where the API server reaches it, by https.'),
  adminAddress: listenAddress().prefault(':8481').describe('/readyz, /healthz and /metrics.'),
  clientAuth: clientAuth
    .optional()
    .describe('Which callers are the API server. Left out: nobody can prove it, and limits hold for all.'),
  perClient: perClient.describe(
    'Limits of each client network (an IPv4 address, or the /64 of an IPv6 one) without a verified certificate.',
  ),
  excludedNamespaces: z
    .array(objectName())
    .default([])
    .describe('Namespaces that the API server never asks about: a review that names one is forged, and is rejected.'),
  certificate: z.union([secret, directory], { error: 'expected secret: or directory:' }),
  shutdown: z
    .strictObject({
      grace: duration().prefault('10s').describe('How long it goes on after SIGTERM, while the pod leaves its endpoints.'),
      drain: duration().prefault('10s').describe('How long what is under way may then take.'),
    })
    .prefault({}),
});
