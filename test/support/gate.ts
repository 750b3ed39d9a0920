/** A real gate in this process, on free ports, from a config file of its own. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { prepare } from '../../src/app/check.ts';
import { Gate } from '../../src/app/gate.ts';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { formatProblem } from '../../src/core/problem.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import type { ConnectOverride } from '../../src/verify/keys/https-get.ts';
import { SECRET } from './deliveries.ts';

/** Config sections, as they would be written in YAML. */
export type Sections = Readonly<Record<string, unknown>>;

/** A running gate. */
export interface TestGate {
  readonly port: number;
  readonly adminPort: number;
  /** 0 where there is none. */
  readonly proxyPort: number;
  /** 0 where there is none. */
  readonly authzPort: number;
  /** 0 if there is none. */
  readonly providerPort: number;
  readonly folder: string;
  readonly file: string;
  readonly gate: Gate;
  /** Every log line so far. */
  readonly log: () => Record<string, unknown>[];
  readonly logText: () => string;
  readonly metrics: () => Promise<string>;
  /** The value of one series, given as it stands in the exposition; 0 where it is not there. */
  readonly metric: (series: string) => Promise<number>;
  readonly writeConfig: (sections: Sections) => void;
  /** What it was started with. */
  readonly sections: Sections;
  readonly stop: () => Promise<boolean>;
}

/** One route to the app, as tests mostly want it. */
export function toRoute(appPort: number, over: { match?: Sections; webhook?: Sections; route?: Sections } = {}): Sections {
  return {
    name: 'billing',
    match: over.match ?? { path: '/hooks/billing' },
    upstream: `http://127.0.0.1:${appPort}`,
    ...over.route,
    webhook: { keys: [{ name: 'current', secret: { file: 'secret' } }], ...over.webhook },
  };
}

/** Starts a gate with `files` beside its config, and `names` for its forward proxy to resolve, or those of the system; `sections` are merged over ports that are free and a short shutdown. */
export async function startGate(
  sections: Sections,
  clock: Clock = systemClock,
  files: Readonly<Record<string, string>> = {},
  names: Readonly<Record<string, readonly string[]>> | 'system' = {},
  connectOverride?: ConnectOverride,
): Promise<TestGate> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-test-'));
  const file = join(folder, 'gate.yaml');
  for (const [name, text] of Object.entries({ secret: SECRET, ...files })) writeFileSync(join(folder, name), text);
  const base = { listen: { address: '127.0.0.1:0' }, admin: { address: '127.0.0.1:0' }, shutdown: { grace: '0ms', drain: '2s' } };
  const writeConfig = (over: Sections): void => writeFileSync(file, stringify({ ...base, ...over }));
  writeConfig(sections);
  const ready = await prepare(file, clock);
  if (ready.loaded === undefined) throw new Error(ready.problems.map(formatProblem).join('\n'));
  const lines: string[] = [];
  const logger = createLogger({
    level: 'info',
    version: 'test',
    destination: { write: (line: string) => void lines.push(line) },
  });
  const resolve = async (host: string): Promise<readonly string[]> => (names === 'system' ? [] : (names[host] ?? []));
  const overrides = { ...(names !== 'system' && { resolve }), ...(connectOverride && { connectOverride }) };
  const gate = new Gate(ready, { file, clock, logger, version: 'test', ...overrides });
  const { data, admin, proxy, authz, provider } = await gate.start();
  const metrics = async (): Promise<string> => (await fetch(`http://127.0.0.1:${admin.port}/metrics`)).text();
  return {
    port: data?.port ?? 0,
    adminPort: admin.port,
    proxyPort: proxy?.port ?? 0,
    authzPort: authz?.port ?? 0,
    providerPort: provider?.port ?? 0,
    folder,
    file,
    gate,
    log: () => lines.map((line) => JSON.parse(line) as Record<string, unknown>),
    logText: () => lines.join(''),
    metrics,
    metric: async (series) => {
      const line = (await metrics()).split('\n').find((each) => each.startsWith(`${series} `));
      return line === undefined ? 0 : Number(line.slice(series.length + 1));
    },
    writeConfig,
    sections,
    stop: async () => {
      const isFinished = await gate.stop();
      rmSync(folder, { recursive: true, force: true });
      return isFinished;
    },
  };
}

/** Looks again and again until `look` gives something; the test's own time limit bounds it. A number must be compared: 0 would be something. */
export async function until<T extends object | string | symbol | true>(
  look: () => T | undefined | false | Promise<T | undefined | false>,
): Promise<T> {
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
