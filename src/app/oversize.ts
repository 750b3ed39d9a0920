/** Finds settings of a config that exceed the memory of the container or the heap. */
import { getHeapStatistics } from 'node:v8';
import { toConfigHeap } from '../config/load/document.ts';
import type { Config } from '../config/schema/config.ts';
import { BYTES_PER_ID } from '../config/schema/store-schema.ts';
import { error, type Problem, warning } from '../core/problem.ts';
import { readContainerMemory, toFreeBytes, toMemoryBudget } from '../http/server/memory.ts';

const MIB = 1024 * 1024;
/** The smallest limit under which floods of large events did not get a sender killed (bench/RESULTS-provider-memory.md). */
const MIN_PROVIDER_BYTES = 192 * MIB;
/** The heap of each while it is in use: 35, 14 and 10 KiB were measured. */
export const [WEBHOOK_ROUTE_BYTES, ROUTE_BYTES, ENDPOINT_BYTES] = [36 * 1024, 16 * 1024, 10 * 1024];
/** The share of the heap that IDs in memory may use without a warning. */
const MAX_IDS_SHARE = 1 / 2;

/**
 * Finds settings that exceed the memory of the container or the heap, with the path, the problem and the fix. An error is a config that would end the
 * process, now or when it is reloaded.
 */
export function findOversize(
  config: Config,
  budget = toMemoryBudget(config.limits, readContainerMemory()),
  heapBytes = getHeapStatistics().heap_size_limit,
): Problem[] {
  const { limit, maxBufferedBytes } = budget;
  const found = findTooMany(config, heapBytes);
  // Each worker has a part of it.
  if (limit !== undefined && (config.limits.maxBufferedBytes ?? 0) * config.workers > toFreeBytes(limit))
    found.push(
      warning(
        ['limits', 'maxBufferedBytes'],
        `${toMebibytes(maxBufferedBytes)} of bodies do not fit into this container: its memory limit is ${toMebibytes(limit)}, and the process itself needs ${toMebibytes(limit - toFreeBytes(limit))}`,
        'omit it, so that it follows the memory limit, or raise the memory limit',
      ),
    );
  if (config.provider !== undefined && limit !== undefined && limit < MIN_PROVIDER_BYTES)
    found.push(
      warning(
        ['provider'],
        `sending webhooks needs ${toMebibytes(MIN_PROVIDER_BYTES)}, and the memory limit of this container is ${toMebibytes(limit)}: many large events at once can get it killed`,
        'raise the memory limit, or lower provider.maxEventSize',
      ),
    );
  const { redis, memory } = config.store;
  const idBytes = memory.maxIds * BYTES_PER_ID;
  if (redis === undefined && idBytes > heapBytes * MAX_IDS_SHARE)
    found.push(
      warning(
        ['store', 'memory', 'maxIds'],
        `${memory.maxIds} IDs can use ${toMebibytes(idBytes)}, and the heap of this process has ${toMebibytes(heapBytes)}`,
        'omit it, so that it follows the heap, use Redis, or raise the memory limit',
      ),
    );
  for (const [index, { webhook }] of config.routes.entries()) {
    if (webhook === undefined || webhook.maxBody <= maxBufferedBytes) continue;
    found.push(
      warning(
        ['routes', index, 'webhook', 'maxBody'],
        `a body of ${toMebibytes(webhook.maxBody)} is always rejected with 503, as limits.maxBufferedBytes is ${toMebibytes(maxBufferedBytes)} here`,
        'lower maxBody, or raise limits.maxBufferedBytes and the memory limit',
      ),
    );
  }
  return found;
}

/** A reload holds the config before and the new one. */
function findTooMany({ routes, provider }: Config, heapBytes: number): Problem[] {
  const webhooks = routes.filter(({ webhook }) => webhook !== undefined).length;
  const routeBytes = webhooks * WEBHOOK_ROUTE_BYTES + (routes.length - webhooks) * ROUTE_BYTES;
  const endpointBytes = (provider?.endpoints.length ?? 0) * ENDPOINT_BYTES;
  const most = toConfigHeap(heapBytes);
  if (routeBytes + endpointBytes <= most) return [];
  const isRoutes = routeBytes > endpointBytes;
  return [
    error(
      isRoutes ? ['routes'] : ['provider', 'endpoints'],
      `${routes.length} routes and ${provider?.endpoints.length ?? 0} endpoints need ${toMebibytes(routeBytes + endpointBytes)}, and the heap of this process has ${toMebibytes(most)} for a config`,
      isRoutes
        ? 'raise the memory limit (docs/sizing.md), or distribute the routes over several deployments'
        : 'raise the memory limit (docs/sizing.md), or create the endpoints with the API',
    ),
  ];
}

function toMebibytes(bytes: number): string {
  return `${Number((bytes / MIB).toFixed(1))}Mi`;
}
