/** The part of a config that one worker has: its share of the limits, and the ports that it joins. */
import { availableParallelism } from 'node:os';
import type { LoadedConfig } from '../../config/load/load.ts';
import { DIVIDED_LIMITS } from '../../config/rules/validate.ts';
import type { Config } from '../../config/schema/config.ts';
import type { ListenAddress } from '../../core/listen-address.ts';
import { readContainerMemory, toMemoryBudget } from '../../http/server/memory.ts';
import { toHashBudget } from '../../users/hash-pool.ts';

/** The ports that a worker joins; they are known once the first worker listens. */
export interface JoinedPorts {
  readonly listen: number | undefined;
  readonly proxy: number | undefined;
  readonly authz: number | undefined;
  /** Of all ports, which the forward proxy never connects to. */
  readonly own: readonly number[];
}

/** One of the workers of a process. */
export interface WorkerPlace {
  /** 0: the first, which also has the admin port and the provider. */
  readonly index: number;
  /** Undefined for the first. */
  readonly ports?: JoinedPorts;
}

/** The place of a process without other threads, and of the main thread. */
export const FIRST_WORKER: WorkerPlace = { index: 0 };

/** Divides the limits among the workers. The shares add up to the limits; the first workers get what remains. */
export function toShare(loaded: LoadedConfig, place: WorkerPlace): LoadedConfig {
  const { config } = loaded;
  if (config.workers === 1) return loaded;
  const { listen, proxy, authz } = config;
  const shared = {
    ...config,
    limits: toLimits(config, place.index),
    explain: toExplain(config),
    listen: { ...listen, address: toAddress(listen.address, place, 'listen') },
    ...(proxy && { proxy: { ...proxy, address: toAddress(proxy.address, place, 'proxy') } }),
    ...(authz && { authz: { ...authz, address: toAddress(authz.address, place, 'authz') } }),
  };
  return { ...loaded, config: shared };
}

function toLimits({ limits, workers }: Config, index: number): Config['limits'] {
  const container = readContainerMemory();
  const { maxBufferedBytes, maxLargeBodies } = toMemoryBudget(limits, container, workers);
  const passwordMemory = limits.passwordMemory ?? toHashBudget(container);
  const passwordThreads = limits.passwordThreads ?? Math.max(workers, availableParallelism() - 1);
  const all: Config['limits'] = {
    ...limits,
    maxBufferedBytes,
    maxLargeBodies: Math.max(maxLargeBodies, workers),
    passwordThreads,
    ...(passwordMemory !== undefined && { passwordMemory }),
  };
  const shares = DIVIDED_LIMITS.flatMap((name) => {
    const limit = all[name];
    return limit === undefined ? [] : [[name, Math.floor(limit / workers) + (index < limit % workers ? 1 : 0)]];
  });
  return { ...all, ...Object.fromEntries(shares) };
}

/** The analyses of all workers together use as much of a core as those of one. */
function toExplain({ explain, workers }: Config): Config['explain'] {
  if (explain === 'off') return explain;
  const { perMinute, cpuShare, cpuSharePerClient } = explain;
  return {
    ...explain,
    perMinute: Math.max(1, Math.floor(perMinute / workers)),
    cpuShare: cpuShare / workers,
    cpuSharePerClient: cpuSharePerClient / workers,
  };
}

function toAddress(address: ListenAddress, { index, ports }: WorkerPlace, section: 'listen' | 'proxy' | 'authz'): ListenAddress {
  if (index === 0) return { ...address, sharing: 'first' };
  return { ...address, port: ports?.[section] ?? address.port, sharing: 'joined' };
}
