/** The schema of the store: Redis (standalone, Sentinel or Cluster) or memory. */
import { getHeapStatistics } from 'node:v8';
import * as z from 'zod';
import { envName, filePath, nodeAddress, timeLimit } from './scalars.ts';

/** For a URL that is wrong, often because of a character in its password. */
export const REDIS_URL_HINT =
  'for example redis://127.0.0.1:6379/1; in a password, write @ as %40, / as %2F, ? as %3F, # as %23 and % as %25, or use passwordFile';

const tls = z
  .union([
    z.literal(true).transform(() => ({})),
    z.strictObject({
      caFile: filePath
        .optional()
        .describe('PEM file of the CAs that may issue the certificate of Redis. Default: the CAs of the system.'),
      certFile: filePath.optional().describe('PEM file of the client certificate, if Redis requires one.'),
      keyFile: filePath.optional().describe("PEM file of the client certificate's private key."),
      serverName: z.string().min(1).optional().describe('Name expected in the certificate of Redis. Default: the host.'),
    }),
  ])
  .describe('TLS to Redis; `true` trusts the CAs of the system. Default: TLS only with a rediss:// URL.');

const redis = z.strictObject({
  url: z
    .string()
    .optional()
    .describe(
      'URL of the server: redis://[user:password@]host[:port][/db], or rediss:// for TLS. Put a password into `urlFile` or `passwordFile` instead.',
    ),
  urlFile: filePath.optional().describe('File that contains the URL, for a URL with a password.'),
  sentinel: z
    .strictObject({
      name: z.string().min(1).describe('Name of the master that the Sentinels monitor.'),
      nodes: z
        .array(nodeAddress())
        .min(1)
        .meta({ examples: [['10.0.0.7:26379']] })
        .describe('Addresses of the Sentinels.'),
      username: z.string().min(1).optional().describe('ACL user for the Sentinels.'),
      passwordFile: filePath.optional().describe('File that contains the password for the Sentinels.'),
    })
    .optional()
    .describe('Connects through Redis Sentinel.'),
  cluster: z
    .strictObject({
      nodes: z
        .array(nodeAddress())
        .min(1)
        .meta({ examples: [['10.0.0.7:6379']] })
        .describe('Addresses of some nodes; the others are discovered.'),
    })
    .optional()
    .describe('Connects to a Redis Cluster.'),
  username: z.string().min(1).optional().describe('ACL user. Default: the user in the URL, or the default user.'),
  passwordFile: filePath.optional().describe('File that contains the password.'),
  passwordEnv: envName.optional().describe('Environment variable that contains the password.'),
  db: z.int().min(0).max(1023).optional().describe('Database number. Default: the one in the URL, or 0. Not for a Cluster.'),
  tls: tls.optional(),
  keyPrefix: z
    .string()
    .max(64)
    .default('sidegate:')
    .describe('Prefix of every key. Change it if several gates that must not share state use one database.'),
  connectTimeout: timeLimit().prefault('1s').describe('Maximum time to connect to Redis.'),
  commandTimeout: timeLimit().prefault('1s').describe('Maximum time for Redis to reply; then the store counts as down.'),
});

/** Heap bytes per ID, including its share of the maps: 250 to 300 were measured. */
export const BYTES_PER_ID = 320;
const IDS_HEAP_SHARE = 1 / 3;
const MIN_DERIVED_IDS = 10_000;
const MAX_DERIVED_IDS = 250_000;

/** Default number of IDs for a heap of this size: a third for IDs, a third for resources, the rest for requests. */
export function deriveMaxIds(heapBytes: number): number {
  const fitting = Math.floor((heapBytes * IDS_HEAP_SHARE) / BYTES_PER_ID / 1_000) * 1_000;
  return Math.min(Math.max(fitting, MIN_DERIVED_IDS), MAX_DERIVED_IDS);
}

/** Where handled IDs, newest versions and failed login attempts are stored. */
export const store = z
  .strictObject({
    redis: redis
      .meta({ examples: [{ url: 'redis://127.0.0.1:6379' }] })
      .optional()
      .describe('Redis store, shared by all replicas; required with more than one. Default: in the memory of the process.'),
    memory: z
      .strictObject({
        maxIds: z
          .int()
          .min(1)
          .max(10_000_000)
          .optional()
          .describe(
            "Maximum number of IDs, and of resources of `order`, in the memory store; if it is full, or one of several routes has its share of it (docs/fair-use.md), deliveries are rejected with 503. Default: 250000, or as many as fit in a third of the process's heap (docs/sizing.md).",
          )
          .transform((maxIds) => maxIds ?? deriveMaxIds(getHeapStatistics().heap_size_limit)),
      })
      .prefault({}),
  })
  .prefault({});
