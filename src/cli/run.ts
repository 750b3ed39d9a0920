/** `sidegate run`: runs the gate until it receives a signal. */

import type { Overrides } from '../config/load/overrides.ts';
import { formatProblem } from '../config/schema/problem.ts';
import { systemClock } from '../core/clock.ts';
import { runDetached } from '../core/safe-events.ts';
import { prepare } from '../gateway/runtime/check.ts';
import type { GateAddresses } from '../gateway/runtime/context.ts';
import { Gate } from '../gateway/runtime/gate.ts';
import type { GateLogger } from '../gateway/runtime/log-events.ts';
import { createFullCollector } from '../gateway/server/process-memory.ts';
import { createLogger } from '../telemetry/log/logger.ts';
import { EXIT, type Io } from './io.ts';
import { Shutdown } from './shutdown.ts';
import { readRevision, readVersion } from './version.ts';

/** Runs until a signal; the exit code is 0 after a drain, even if the drain timed out. */
export async function runGate(file: string, overrides: Overrides, io: Io): Promise<number> {
  // Before the event loop turns: after a collection among the first ticks, V8 runs Node's nextTick five times slower, permanently.
  createFullCollector()();
  const ready = await prepare(file, systemClock, overrides);
  if (ready.loaded === undefined) {
    for (const problem of ready.problems) io.stderr(`${formatProblem(problem)}\n`);
    return EXIT.failed;
  }
  const version = readVersion();
  const logger = createLogger({ ...ready.loaded.config.log, version });
  // Also for a second signal, which does not wait for the drain.
  process.on('exit', () => logger.flushNow());
  for (const problem of ready.problems) logger.warn('config_warning', { problem: formatProblem(problem) });
  const gate = new Gate(ready, { file, overrides, clock: systemClock, logger, version, revision: readRevision() });
  const shutdown = new Shutdown(logger, ready.loaded.config.shutdown);
  process.on('SIGHUP', () => runDetached(gate.reload()));
  const addresses = await start(gate, io);
  if (addresses === undefined) return EXIT.failed;
  logAddresses(logger, addresses);
  return shutdown.drain(gate);
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
  logger.flushNow();
}
