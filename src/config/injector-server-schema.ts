/** The schema of the injector's `server` section: where it is reached, and how its certificates come about. */
import { z } from 'zod';
import { hasForm, OBJECT_NAME } from './kubernetes-values.ts';
import { duration, filePath, listenAddress } from './scalars.ts';

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

const selfSigned = z
  .strictObject({
    namespace: objectName().describe('Where the injector and its Secret are.'),
    secret: objectName().describe('The Secret that keeps its authority; it is there, and empty at first.'),
    service: objectName().describe('The Service that the API server calls it by.'),
    webhook: objectName().describe('The MutatingWebhookConfiguration whose caBundle is kept.'),
    dnsNames: z
      .array(z.string().regex(DNS_NAME, 'a DNS name is lower-case labels with dots between them'))
      .default([])
      .describe("Further names of the certificate, where the API server does not call it by its Service's."),
    authorityLife: life().prefault('365d').describe('How long an authority lasts; it is succeeded after two thirds of that.'),
    serverLife: life().prefault('7d').describe('How long a certificate lasts; it is renewed after two thirds of that.'),
    overlap: duration().prefault('24h').describe('How long a new authority is trusted before it signs.'),
    checkInterval: duration()
      .refine((value) => value >= SHORTEST_MS / 2, 'the API server is not asked more than twice a second')
      .prefault('10s')
      .describe('How often Secret and webhook configuration are looked at, give or take a fifth.'),
  })
  .refine(({ authorityLife, overlap, serverLife }) => overlap + serverLife <= authorityLife / 3, {
    error: 'overlap and serverLife do not fit into the last third of authorityLife, in which it is succeeded',
    path: ['authorityLife'],
  });

const directory = z.strictObject({
  directory: filePath.describe('Folder with tls.crt and tls.key, as Secrets of type kubernetes.io/tls are mounted; watched.'),
  webhook: objectName()
    .optional()
    .describe(
      'The MutatingWebhookConfiguration whose caBundle the certificate must lead to before the injector is ready. Left out: not looked at.',
    ),
});

/** Where the admission server listens, by what certificates, and how it stops. */
export const injectServer = z.strictObject({
  address: listenAddress().prefault(':10250').describe('Where the API server reaches it, by https.'),
  adminAddress: listenAddress().prefault(':8481').describe('/readyz, /healthz and /metrics.'),
  clientCaFile: filePath
    .optional()
    .describe('Authorities of client certificates, PEM: only callers with one are heard. Left out: whoever reaches the port is.'),
  certificate: z.union(
    [z.strictObject({ selfSigned: selfSigned.describe('It is its own authority, and rotates all by itself.') }), directory],
    { error: 'expected selfSigned: or directory:' },
  ),
  shutdown: z
    .strictObject({
      grace: duration().prefault('10s').describe('How long it goes on after SIGTERM, while the pod leaves its endpoints.'),
      drain: duration().prefault('10s').describe('How long what is under way may then take.'),
    })
    .prefault({}),
});
