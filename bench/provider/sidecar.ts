/** A sidecar that sends to endpoints on this machine, for benchmarks of its bundle. */
import type { ChildProcess } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { end, findFreePort } from '../children.ts';
import { withProcessGroup } from '../process-group.ts';
import { toSidegate } from '../rivals.ts';
import { type EngineName, readPostgres, startDurablePostgres } from './engines.ts';

/** Beside the config. */
export const QUEUE_URL_FILE = 'queue-url';
const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;

/** As the image has it in a container of 256 MiB. */
const HEAP = ['--max-old-space-size=128'];

/** A sidecar with its store, and what measures them. */
export interface BacklogSidecar {
  readonly apiPort: number;
  readonly pids: () => readonly number[];
  readonly storePids: () => readonly number[];
  /** The size of the database in PostgreSQL. */
  readonly storeBytes: () => number;
  /** The file of the queue; undefined: the store is PostgreSQL. */
  readonly file: string | undefined;
  /** Ends the process and starts another one with the same queue; returns after how many milliseconds that one listens. */
  readonly restart: () => Promise<number>;
  readonly close: () => Promise<void>;
}

/** Where the queue is: a file, or PostgreSQL with this URL. */
export type SidecarQueue = { readonly file: string } | { readonly url: string };

/** The choices in the config of a sidecar. */
export interface ProviderSections {
  readonly apiPort: number;
  readonly receiverPort: number;
  /** Of each endpoint, the first part of its path: `dead` or `healthy`. Endpoint number N gets events of the type `bench.endpoint-N`. */
  readonly paths: readonly string[];
  readonly queue: SidecarQueue;
}

/** The sections of the config, with a file `secret` beside it; the limits are the defaults except for the size of the queue. */
export function toProviderSections({ apiPort, receiverPort, paths, queue }: ProviderSections) {
  const place =
    'file' in queue ? { sqlite: { path: queue.file, allowVolatile: true } } : { postgres: { url: { file: QUEUE_URL_FILE } } };
  return {
    shutdown: { grace: '0s' },
    routes: [],
    provider: {
      address: `127.0.0.1:${apiPort}`,
      queue: { ...place, endpointShare: 1, maxEvents: 10_000_000, maxBytes: '64Gi' },
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
    const server = file === undefined ? await startDurablePostgres() : undefined;
    const queue = file === undefined ? { url: server?.url() ?? '' } : { file };
    const paths = Array.from({ length: endpoints }, () => 'dead');
    const sections = toProviderSections({ apiPort, receiverPort, paths, queue });
    const listen = { listen: { address: '127.0.0.1:0' }, admin: { address: '127.0.0.1:0' } };
    const config = join(group.folder, 'sidegate.yaml');
    writeFileSync(config, JSON.stringify({ ...listen, ...sections }));
    writeFileSync(join(group.folder, 'secret'), SECRET);
    if ('url' in queue) writeFileSync(join(group.folder, QUEUE_URL_FILE), queue.url);
    const start = () => group.start(toSidegate(config, { nodeArgs: HEAP }), apiPort);
    let child = await start();
    return {
      apiPort,
      pids: () => toPids(child),
      storePids: () => (server === undefined ? [] : readPostgres(server, (pids) => pids)),
      storeBytes: () => Number(server?.sql('SELECT pg_database_size(current_database())') ?? 0),
      file,
      restart: async () => {
        await end(child);
        const began = performance.now();
        child = await start();
        return performance.now() - began;
      },
      close: async () => {
        await group.close();
        await server?.stop();
      },
    };
  });
}

function toPids({ pid }: ChildProcess): number[] {
  return pid === undefined ? [] : [pid];
}
