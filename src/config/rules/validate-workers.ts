/** The rules of `workers`: what several threads can share, and what only one can do. */
import { error, type Problem, warning } from '../../core/problem.ts';
import type { Config, LimitsConfig } from '../schema/config.ts';

/** The limits that are divided among the workers, so that all of them together stay within the configured one. */
export const DIVIDED_LIMITS = [
  'maxConnections',
  'maxConnectionsPerClient',
  'maxRequestsPerClient',
  'maxUpgraded',
  'maxUpgradedPerClient',
  'maxInFlight',
  'maxInFlightPerClient',
  'maxInFlightUnverified',
  'maxQueued',
  'maxWaiting',
  'passwordThreads',
  'passwordQueue',
  'passwordMemory',
  'maxBufferedBytes',
  'maxLargeBodies',
] as const satisfies readonly (keyof LimitsConfig)[];

/** Everything that more than one worker cannot do. */
export function checkWorkers(config: Config): Problem[] {
  const { workers, store, limits, routes, proxy, authz } = config;
  if (workers === 1) return [];
  const found: Problem[] = [];
  if (store.redis === undefined)
    found.push(
      error(
        ['workers'],
        'without Redis each worker would remember only its own events, so that the app would get duplicates, and bans would not apply to all connections',
        'set store.redis, for example redis: { url: redis://127.0.0.1:6379 }, or remove workers',
      ),
    );
  if (routes.length === 0 && proxy === undefined && authz === undefined)
    found.push(warning(['workers'], 'only the first worker runs provider, so the others do nothing', 'remove workers'));
  for (const name of DIVIDED_LIMITS) {
    const limit = limits[name];
    if (limit === undefined || limit === 0 || limit >= workers) continue;
    const message = `${limit} cannot be divided among ${workers} workers`;
    found.push(error(['limits', name], message, `set at least ${workers}, or lower workers`));
  }
  for (const [index, { webhook }] of routes.entries()) {
    const hint = (key: string): string => `remove ${key}, or set workers: 1`;
    if (webhook?.ack === 'onAccept')
      found.push(
        error(['routes', index, 'webhook', 'ack'], 'only the first worker has the queue of provider', hint('ack: onAccept')),
      );
    if (webhook?.storeBody !== undefined)
      found.push(
        error(['routes', index, 'webhook', 'storeBody'], 'bodies are not stored with more than one worker', hint('storeBody')),
      );
  }
  return found;
}
