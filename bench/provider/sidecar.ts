/** A sidecar that sends to endpoints on this machine, for benchmarks of its bundle. */
import type { ChildProcess } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { end, findFreePort, OTHER_CORE } from '../children.ts';
import { type ProcessGroup, withProcessGroup } from '../process-group.ts';
import { toSidegate } from '../rivals.ts';
import { type EngineName, toRedisArgs } from './engines.ts';

const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;

/** As the image has it in a container of 256 MiB. */
const HEAP = ['--max-old-space-size=128'];

/** A sidecar with its store, and what measures them. */
export interface BacklogSidecar {
  readonly apiPort: number;
  readonly pids: () => readonly number[];
  readonly storePids: readonly number[];
  /** The file of the queue; undefined: the store is Redis. */
  readonly file: string | undefined;
  /** Ends the process and starts another one with the same queue; returns after how many milliseconds that one listens. */
  readonly restart: () => Promise<number>;
  readonly close: () => Promise<void>;
}

/** The choices in the config of a sidecar. */
export interface ProviderSections {
  readonly apiPort: number;
  readonly receiverPort: number;
  /** Of each endpoint, the first part of its path: `dead` or `healthy`. Endpoint number N gets events of the type `bench.endpoint-N`. */
  readonly paths: readonly string[];
  /** Undefined: the queue is in Redis. */
  readonly queueFile: string | undefined;
  readonly redisPort: number | undefined;
}

/** The sections of the config, with a file `secret` beside it; the limits are the defaults except for the size of the queue. */
export function toProviderSections({ apiPort, receiverPort, paths, queueFile, redisPort }: ProviderSections) {
  const sqlite = queueFile === undefined ? undefined : { sqlite: { path: queueFile, allowVolatile: true } };
  return {
    shutdown: { grace: '0s' },
    ...(redisPort === undefined ? undefined : { store: { redis: { url: `redis://127.0.0.1:${redisPort}` } } }),
    routes: [],
    provider: {
      address: `127.0.0.1:${apiPort}`,
      queue: { ...sqlite, maxEvents: 10_000_000, maxBytes: '64Gi' },
      egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
      endpoints: paths.map((path, index) => ({
        name: `endpoint-${index}`,
        url: `http://127.0.0.1:${receiverPort}/${path}/${index}`,
        events: [`bench.endpoint-${index}`],
        secret: { file: 'secret' },
      })),
    },
  };
}

/** Starts a sidecar whose endpoints never respond. */
export function startBacklogSidecar(engine: EngineName, receiverPort: number, endpoints: number): Promise<BacklogSidecar> {
  return withProcessGroup(async (group) => {
    const apiPort = await findFreePort();
    const file = engine === 'sqlite' ? join(group.folder, 'queue.db') : undefined;
    const redis = file === undefined ? await startStore(group) : undefined;
    const paths = Array.from({ length: endpoints }, () => 'dead');
    const sections = toProviderSections({ apiPort, receiverPort, paths, queueFile: file, redisPort: redis?.port });
    const listen = { listen: { address: '127.0.0.1:0' }, admin: { address: '127.0.0.1:0' } };
    const config = join(group.folder, 'sidegate.yaml');
    writeFileSync(config, JSON.stringify({ ...listen, ...sections }));
    writeFileSync(join(group.folder, 'secret'), SECRET);
    const start = () => group.start(toSidegate(config, { nodeArgs: HEAP }), apiPort);
    let child = await start();
    return {
      apiPort,
      pids: () => toPids(child),
      storePids: redis === undefined ? [] : toPids(redis.child),
      file,
      restart: async () => {
        await end(child);
        const began = performance.now();
        child = await start();
        return performance.now() - began;
      },
      close: () => group.close(),
    };
  });
}

/** Starts a Redis on the core of everything that is not measured. */
export async function startStore(group: ProcessGroup): Promise<{ readonly child: ChildProcess; readonly port: number }> {
  const port = await findFreePort();
  const command = { core: OTHER_CORE, command: 'redis-server', args: toRedisArgs(port, group.folder) };
  return { child: await group.start(command, port), port };
}

function toPids({ pid }: ChildProcess): number[] {
  return pid === undefined ? [] : [pid];
}
