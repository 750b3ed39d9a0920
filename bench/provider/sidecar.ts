/** A sidecar of the image's build whose endpoints never respond, for the benchmark of large backlogs. */
import type { ChildProcess } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { end, findFreePort, OTHER_CORE } from '../children.ts';
import { type ProcessGroup, withProcessGroup } from '../process-group.ts';
import { toSidegate } from '../rivals.ts';
import { type EngineName, toRedisArgs } from './engines.ts';

const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;

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

/** Starts a sidecar that sends to `endpoints` endpoints at a receiver; the limits are the defaults except for the size of the queue. */
export function startBacklogSidecar(engine: EngineName, receiverPort: number, endpoints: number): Promise<BacklogSidecar> {
  return withProcessGroup(async (group) => {
    const apiPort = await findFreePort();
    const file = engine === 'sqlite' ? join(group.folder, 'queue.db') : undefined;
    const redis = file === undefined ? await startStore(group) : undefined;
    const config = join(group.folder, 'sidegate.yaml');
    const names = Array.from({ length: endpoints }, (_, index) => `endpoint-${index}`);
    const queue = { ...(file === undefined ? {} : { sqlite: { path: file } }), maxEvents: 10_000_000, maxBytes: '64Gi' };
    const settings = {
      listen: { address: '127.0.0.1:0' },
      admin: { address: `127.0.0.1:${await findFreePort()}` },
      shutdown: { grace: '0s' },
      ...(redis === undefined ? {} : { store: { redis: { url: `redis://127.0.0.1:${redis.port}` } } }),
      routes: [],
      provider: {
        address: `127.0.0.1:${apiPort}`,
        queue,
        egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
        endpoints: names.map((name) => ({
          name,
          url: `http://127.0.0.1:${receiverPort}/dead/${name}`,
          events: [`bench.${name}`],
          secret: { env: 'BENCH_SECRET' },
        })),
      },
    };
    writeFileSync(config, JSON.stringify(settings));
    const start = () => group.start(toSidegate(config, { env: { BENCH_SECRET: SECRET } }), apiPort);
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

async function startStore(group: ProcessGroup): Promise<{ readonly child: ChildProcess; readonly port: number }> {
  const port = await findFreePort();
  const command = { core: OTHER_CORE, command: 'redis-server', args: toRedisArgs(port, group.folder) };
  return { child: await group.start(command, port), port };
}

function toPids({ pid }: ChildProcess): number[] {
  return pid === undefined ? [] : [pid];
}
