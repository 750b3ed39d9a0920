/** Compares the limit of open files with the connections that a config allows: one client could otherwise take all descriptors. */
import { readFileSync } from 'node:fs';
import type { Config } from '../config/schema/config.ts';

/** For the admin port, the store, the queue, and files. */
const OTHER_FILES = 128;
/** The provider API's own limit of connections (provider/api/provider-api.ts). */
const PROVIDER_CONNECTIONS = 1_024;
const SOFT_LIMIT = /^Max open files\s+(\d+)\s/m;

/** The text of /proc/self/limits; empty on other systems. */
export function readLimits(): string {
  try {
    return readFileSync('/proc/self/limits', 'latin1');
  } catch {
    return '';
  }
}

/** A warning with the figures if the limit is too low; undefined if it suffices, is unlimited or not known. */
export function findOpenFilesProblem({ limits, proxy, authz, provider }: Config, processLimits: string): string | undefined {
  const limit = Number(SOFT_LIMIT.exec(processLimits)?.[1] ?? Number.NaN);
  const { maxConnections, maxInFlight } = limits;
  const ports = 1 + Number(proxy !== undefined) + Number(authz !== undefined);
  const connections = ports * maxConnections + (provider === undefined ? 0 : PROVIDER_CONNECTIONS);
  const needed = connections + maxInFlight + OTHER_FILES;
  if (!(limit < needed)) return undefined;
  return (
    `the limit of open files is ${limit}, but the config needs up to ${needed}: ${connections} for connections of clients, ${maxInFlight} for ` +
    `connections to apps, ${OTHER_FILES} for others; clients can take all of them. Raise the limit (ulimit -n), or lower limits.maxConnections`
  );
}
