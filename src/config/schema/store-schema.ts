/** The schema of the store: Redis in its several forms, or memory. */
import { getHeapStatistics } from 'node:v8';
import * as z from 'zod';
import { duration, envName, filePath, nodeAddress } from './scalars.ts';

const tls = z
  .union([
    z.literal(true).transform(() => ({})),
    z.strictObject({
      caFile: filePath.optional().describe('Authorities that Redis is trusted by, PEM.'),
      certFile: filePath.optional().describe('Our certificate, PEM, where Redis asks for one.'),
      keyFile: filePath.optional().describe('Its key, PEM.'),
      serverName: z.string().min(1).optional().describe('The name in the certificate of Redis, where it is not the host.'),
    }),
  ])
  .describe('TLS to Redis; true trusts the authorities of the system.');

const redis = z.strictObject({
  url: z.string().optional().describe('redis://[user:password@]host[:port][/db], or rediss:// for TLS.'),
  urlFile: filePath.optional().describe('File that holds the URL, for one with a password.'),
  sentinel: z
    .strictObject({
      name: z.string().min(1).describe('Name of the master the sentinels watch.'),
      nodes: z
        .array(nodeAddress())
        .min(1)
        .meta({ examples: [['10.0.0.7:26379']] })
        .describe('Addresses of the sentinels.'),
      username: z.string().min(1).optional().describe('ACL user of the sentinels.'),
      passwordFile: filePath.optional().describe('File that holds the password of the sentinels.'),
    })
    .optional()
    .describe('A Sentinel group: its master name and the sentinels.'),
  cluster: z
    .strictObject({
      nodes: z
        .array(nodeAddress())
        .min(1)
        .meta({ examples: [['10.0.0.7:6379']] })
        .describe('Addresses of some of its nodes.'),
    })
    .optional()
    .describe('Some nodes of a Cluster; the others are found.'),
  username: z.string().min(1).optional().describe('ACL user.'),
  passwordFile: filePath.optional().describe('File that holds the password.'),
  passwordEnv: envName.optional().describe('Environment variable that holds the password.'),
  db: z.int().min(0).max(1023).optional().describe('Database number; a Cluster has none.'),
  tls: tls.optional(),
  keyPrefix: z.string().max(64).default('sidegate:').describe('Stands before every key.'),
  connectTimeout: duration().prefault('1s').describe('How long connecting to Redis may take.'),
  commandTimeout: duration().prefault('1s').describe('How long Redis may take before it counts as down.'),
});

/** Bytes of the heap that one ID takes, with its share of the maps: 250 to 300 were measured. */
export const BYTES_PER_ID = 320;
const IDS_HEAP_SHARE = 1 / 3;
const MIN_DERIVED_IDS = 10_000;
const MAX_DERIVED_IDS = 250_000;

/** How many IDs a process with a heap of so many bytes holds by default: a third for IDs, as much for resources, the rest for requests. */
export function deriveMaxIds(heapBytes: number): number {
  const fitting = Math.floor((heapBytes * IDS_HEAP_SHARE) / BYTES_PER_ID / 1_000) * 1_000;
  return Math.min(Math.max(fitting, MIN_DERIVED_IDS), MAX_DERIVED_IDS);
}

/** Where handled ids and failed attempts are remembered. */
export const store = z
  .strictObject({
    redis: redis.optional().describe('Shared by all replicas. Left out: in memory, for one process.'),
    memory: z
      .strictObject({
        maxIds: z
          .int()
          .min(1)
          .max(10_000_000)
          .optional()
          .describe(
            "Most ids held, and as many resources of `order`; beyond them deliveries are rejected with 503. If omitted: 250000, or what a third of the process's heap holds (docs/sizing.md).",
          )
          .transform((maxIds) => maxIds ?? deriveMaxIds(getHeapStatistics().heap_size_limit)),
      })
      .prefault({}),
  })
  .prefault({});
