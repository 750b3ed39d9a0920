/** The configs of the simulated gates, read from real files before a simulation starts. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { type PreparedConfig, prepare } from '../../src/app/check.ts';
import { systemClock } from '../../src/core/clock.ts';
import { formatProblem } from '../../src/core/problem.ts';
import { SECRET } from '../support/deliveries.ts';
import { REDIS_PORT } from './redis-server.ts';

/** What differs between the worlds. */
export interface WorldShape {
  readonly replicas: number;
  /** Replicas share IDs through Redis; otherwise the only one keeps them in memory. */
  readonly hasRedis: boolean;
  readonly hasProvider: boolean;
  readonly leaseSeconds: number;
  readonly inProgress: 'wait' | 'reject';
  readonly onStoreError: 'refuse' | 'forward';
}

export const REDIS_MACHINE = '10.2.0.1';
export const PROVIDER_MACHINE = '10.3.0.1';
export const SENDER_MACHINE = '10.4.0.1';
export const DATA_PORT = 8080;
export const ADMIN_PORT = 9090;
export const APP_PORT = 3000;
export const API_PORT = 8482;
/** Of the routes: longer is a timeout. */
export const APP_TIMEOUT_MS = 5_000;
export const TOLERANCE_MS = 300_000;
/** Delays between the attempts of the provider. */
export const SCHEDULE = ['1s', '5s', '30s', '2m', '10m', '20m'];

type Section = Readonly<Record<string, unknown>>;

export function toGateMachine(index: number): string {
  return `10.1.0.${index + 1}`;
}

/** The folder of this run, in memory if the machine has such a folder: the files need not survive it. */
export function makeRunFolder(): string {
  let base = '/dev/shm';
  try {
    mkdirSync(join(base, 'sidegate-simulation'), { recursive: true });
    base = join(base, 'sidegate-simulation');
  } catch {
    base = tmpdir();
  }
  const folder = mkdtempSync(join(base, 'run-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Reads configs once; equal ones are shared. */
export class Configs {
  readonly #folder: string;
  readonly #known = new Map<string, PreparedConfig>();

  constructor(folder: string) {
    this.#folder = folder;
    writeFileSync(join(folder, 'secret'), SECRET);
  }

  /** The next world starts with an empty queue. */
  forgetQueue(): void {
    for (const suffix of ['', '-wal', '-shm', '.killed', '.killed-wal']) rmSync(this.queueFile + suffix, { force: true });
  }

  get queueFile(): string {
    return join(this.#folder, 'queue.db');
  }

  async read(sections: Section): Promise<PreparedConfig> {
    const text = stringify(sections);
    const known = this.#known.get(text);
    if (known !== undefined) return known;
    const file = join(this.#folder, `gate-${this.#known.size}.yaml`);
    writeFileSync(file, text);
    const ready = await prepare(file, systemClock);
    if (ready.loaded === undefined) throw new Error(ready.problems.map(formatProblem).join('\n'));
    // No file is watched: that would be input from outside the simulation.
    const prepared = { ...ready, seen: new Map<string, string>() };
    this.#known.set(text, prepared);
    return prepared;
  }

  /** A gate in front of an app. */
  toGateSections(machine: string, shape: WorldShape): Section {
    const { hasRedis } = shape;
    return {
      ...toCommon(machine),
      ...(hasRedis && { store: { redis: { url: `redis://${REDIS_MACHINE}:${REDIS_PORT}` } } }),
      routes: [
        toRoute('hooks', shape),
        toRoute('provider', shape),
        toRoute('ordered', shape, {
          order: {
            key: '$.data.resource',
            version: '$.data.version',
            lease: `${shape.leaseSeconds}s`,
            retention: '3d',
            onStoreError: shape.onStoreError,
          },
        }),
      ],
    };
  }

  /** The sending side, with a route that stores deliveries in its queue. */
  toProviderSections(shape: WorldShape): Section {
    const targets = Array.from({ length: shape.replicas }, (_, index) => toGateMachine(index));
    return {
      ...toCommon(PROVIDER_MACHINE),
      routes: [toRoute('inbox', shape, { ack: 'onAccept' })],
      provider: {
        address: `127.0.0.1:${API_PORT}`,
        queue: { sqlite: { path: this.queueFile, allowVolatile: true } },
        egress: { allowHttp: true, allowPrivate: ['10.0.0.0/8'] },
        schedule: SCHEDULE,
        timeout: '10s',
        disable: 'off',
        endpoints: [
          ...targets.map((target, index) => ({
            name: `receiver-${index}`,
            tenant: `receiver-${index}`,
            url: `http://${target}:${DATA_PORT}/hooks/provider`,
            // A skewed clock of the receiver is no reason to give up.
            retryClientErrors: 'all',
            secret: { file: 'secret' },
            ...(index === 0 && { orderBy: '$.data.customer' }),
          })),
          {
            name: 'nowhere',
            tenant: 'nowhere',
            url: 'http://10.9.9.9:1/',
            schedule: ['1s', '2s'],
            secret: { file: 'secret' },
          },
        ],
      },
    };
  }
}

function toCommon(machine: string): Section {
  return {
    listen: { address: `${machine}:${DATA_PORT}` },
    admin: { address: `${machine}:${ADMIN_PORT}` },
    shutdown: { grace: '0ms', drain: '20s' },
    log: { level: 'warn' },
    // The console's pages of other replicas are read every two seconds.
    journal: { size: 0 },
    explain: 'off',
  };
}

function toRoute(name: string, { leaseSeconds, inProgress, onStoreError }: WorldShape, webhook: Section = {}): Section {
  return {
    name,
    match: { path: `/hooks/${name}` },
    upstream: `http://127.0.0.1:${APP_PORT}`,
    timeout: `${APP_TIMEOUT_MS}ms`,
    webhook: {
      keys: [{ name: 'current', secret: { file: 'secret' } }],
      dedup: { lease: `${leaseSeconds}s`, retention: '3d', inProgress, onStoreError },
      ...webhook,
    },
  };
}
