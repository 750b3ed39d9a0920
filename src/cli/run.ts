/** `sidegate run`: runs the gate until it receives a signal. */
import { readFileSync } from 'node:fs';
import { prepare } from '../app/check.ts';
import type { GateAddresses } from '../app/context.ts';
import { Gate } from '../app/gate.ts';
import { type GateLogEvent, type GateLogger, HINTS } from '../app/log-events.ts';
import { WorkerThreads } from '../app/workers/worker-threads.ts';
import type { Overrides } from '../config/load/load.ts';
import type { Config } from '../config/schema/config.ts';
import { systemClock } from '../core/clock.ts';
import type { SidegateError } from '../core/errors.ts';
import { toLogFields } from '../core/problem.ts';
import { runDetached } from '../core/safe-events.ts';
import { toMaxUpgraded } from '../http/server/limits.ts';
import { createFullCollector, readContainerMemory, setServiceFlags } from '../http/server/memory.ts';
import { LogBatches, toTextLines } from '../telemetry/log/log-batches.ts';
import { createLogger } from '../telemetry/log/logger.ts';
import { EXIT, type Io, logForeignLines } from './io.ts';
import { showProblems } from './problems.ts';
import { MARGIN_MS, Shutdown } from './shutdown.ts';
import { readRevision, readVersion } from './version.ts';

/** For the admin port, the store, the queue, and files. */
const OTHER_FILES = 128;
/** The provider API's own limit of connections (provider/api/provider-api.ts). */
const PROVIDER_CONNECTIONS = 1_024;
const SOFT_LIMIT = /^Max open files\s+(\d+)\s/m;

/** How the log is written. */
export const LOG_FORMATS = ['json', 'text'] as const;
type LogFormat = (typeof LOG_FORMATS)[number];

/** Runs until a signal; the exit code is 0 after a drain, even if the drain timed out. */
export async function runGate(file: string, given: Overrides, io: Io, logFormat: LogFormat = 'json'): Promise<number> {
  // Before the event loop turns: after a collection among the first ticks, V8 runs Node's nextTick five times slower, permanently.
  createFullCollector()();
  const isText = logFormat === 'text';
  const overrides = isText ? { ...given, grace: '0s' } : given;
  const ready = await prepare(file, systemClock, overrides);
  if (ready.loaded === undefined) {
    await showProblems(ready.problems, { file, write: io.stderr });
    return EXIT.failed;
  }
  const { config } = ready.loaded;
  setServiceFlags(readContainerMemory(), config.workers);
  const version = readVersion();
  const lines = new LogBatches(1, {
    clock: systemClock,
    flushAfter: config.log.flush,
    format: isText ? toTextLines : undefined,
  });
  const worker = config.workers > 1 ? 1 : undefined;
  const logger = createLogger<GateLogEvent>({ ...config.log, version, worker, destination: lines });
  logForeignLines(logger);
  const shutdown = new Shutdown(logger, config.shutdown);
  const others = config.workers > 1 ? createWorkers({ file, overrides, config, lines, logger, shutdown }) : undefined;
  // Also for a second signal, which does not wait for the drain.
  process.on('exit', () => {
    others?.flushNow();
    logger.flushNow();
  });
  for (const problem of ready.problems) logger.warn('config_warning', toLogFields(problem));
  const problem = findOpenFilesProblem(config, readLimits());
  if (problem !== undefined) logger.warn('config_warning', { problem });
  const onFatal = ({ message }: SidegateError): void => {
    logger.error('endpoints_too_large', { error: message });
    shutdown.fail('endpoints_too_large');
  };
  const parts = { clock: systemClock, logger, version, revision: readRevision(), others, onFatal };
  const gate = new Gate(ready, { file, overrides, ...parts });
  process.on('SIGHUP', () => runDetached(gate.reload()));
  const addresses = await start(gate, io);
  if (addresses === undefined) return EXIT.failed;
  logAddresses(logger, addresses);
  if (isText) io.stdout(toWelcome(config, addresses));
  return shutdown.drain(gate);
}

/** The console, the routes and how to stop: what somebody at a terminal asks first. */
function toWelcome({ routes }: Config, { data, admin }: GateAddresses): string {
  const isAny = admin.address === '0.0.0.0' || admin.address === '::';
  const host = admin.address.includes(':') ? `[${admin.address}]` : admin.address;
  const lines = routes.map(({ name, match, upstream }) => {
    const path = match.path ?? `${match.pathPrefix ?? ''}…`;
    return `  ${name}: ${match.host ?? (data === undefined ? '' : `port ${data.port}`)} ${path} to ${upstream.host}:${upstream.port}`;
  });
  return `Console: http://${isAny ? 'localhost' : host}:${admin.port}/\nRoutes:\n${lines.join('\n')}\nCtrl-C stops sidegate; a second one ends it at once.\n`;
}

function createWorkers({
  file,
  overrides,
  config,
  lines,
  logger,
  shutdown,
}: {
  readonly file: string;
  readonly overrides: Overrides;
  readonly config: Config;
  readonly lines: LogBatches;
  readonly logger: GateLogger;
  readonly shutdown: Shutdown;
}): WorkerThreads {
  return new WorkerThreads({
    count: config.workers,
    entry: toEntry(),
    file,
    overrides,
    clock: systemClock,
    drainTimeout: config.shutdown.grace + config.shutdown.drain + MARGIN_MS,
    onLines(text) {
      // They waited long enough in their worker.
      lines.write(text);
      lines.flush();
    },
    onLost(worker, message) {
      logger.error('worker_lost', { lost: worker, message, hint: HINTS.workerLost });
      shutdown.fail('worker_lost');
    },
  });
}

/** The module that starts a worker: the entry point of the bundles, or cli/main.ts. */
function toEntry(): URL {
  const own = import.meta.url;
  return new URL(own.endsWith('.ts') ? './main.ts' : './sidegate.cjs', own);
}

async function start(gate: Gate, io: Io): Promise<GateAddresses | undefined> {
  try {
    return await gate.start();
  } catch (thrown) {
    const { code, address, port, message } = thrown as NodeJS.ErrnoException & { address?: string; port?: number };
    const place = `${address}:${port}`;
    if (code === 'EADDRINUSE')
      io.stderr(
        `sidegate: ${place} is in use by another process; stop it, or change the address of listen, admin, proxy, authz or provider\n`,
      );
    else if (code === 'EACCES') io.stderr(`sidegate: permission denied to listen on ${place}; use a port of at least 1024\n`);
    else if (code === 'EADDRNOTAVAIL')
      io.stderr(
        `sidegate: cannot listen on ${address}: this machine does not have that address; use one of its addresses, or :${port} for all\n`,
      );
    else if (code === 'ENOTSUP')
      io.stderr(`sidegate: this system cannot share ${place} among several workers; remove workers from the config\n`);
    else io.stderr(`sidegate: cannot start: ${message}\n`);
    return undefined;
  }
}

function logAddresses(logger: GateLogger, { data, admin, proxy, authz, provider }: GateAddresses): void {
  logger.info('listening', {
    ...(data === undefined ? undefined : { address: data.address, port: data.port }),
    adminAddress: admin.address,
    adminPort: admin.port,
    ...(data !== undefined && data.all.length > 1 ? { addresses: data.all } : undefined),
    ...(admin.all.length > 1 ? { adminAddresses: admin.all } : undefined),
    ...(proxy === undefined ? undefined : { proxyAddress: proxy.address, proxyPort: proxy.port }),
    ...(authz === undefined ? undefined : { authzAddress: authz.address, authzPort: authz.port }),
    ...(provider === undefined ? undefined : { providerAddress: provider.address, providerPort: provider.port }),
  });
  runDetached(logger.flush());
}

/** The text of /proc/self/limits; empty on other systems. */
function readLimits(): string {
  try {
    return readFileSync('/proc/self/limits', 'latin1');
  } catch {
    return '';
  }
}

/**
 * A warning with the figures if the limit is too low; undefined if it suffices, is unlimited or not known. The config is that of the first worker:
 * each has such a share of the limits.
 */
export function findOpenFilesProblem(
  { limits, workers, proxy, authz, provider }: Config,
  processLimits: string,
): string | undefined {
  const limit = Number(SOFT_LIMIT.exec(processLimits)?.[1] ?? Number.NaN);
  const { maxConnections, maxInFlight } = limits;
  const ports = 1 + Number(proxy !== undefined) + Number(authz !== undefined);
  const connections = workers * ports * maxConnections + (provider === undefined ? 0 : PROVIDER_CONNECTIONS);
  // Long responses hold no slot, as upgraded connections.
  const toApps = workers * (2 * maxInFlight + toMaxUpgraded(limits));
  const needed = connections + toApps + OTHER_FILES;
  if (!(limit < needed)) return undefined;
  return (
    `the limit of open files is ${limit}, but the config needs up to ${needed}: ${connections} for connections of clients, ${toApps} for ` +
    `connections to apps, ${OTHER_FILES} for others; clients can take all of them. Raise the limit (ulimit -n), or lower limits.maxConnections`
  );
}
