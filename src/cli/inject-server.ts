/** `sidegate inject-server`: the admission webhook that injects the sidecar; runs until it receives a signal. */
import { hostname } from 'node:os';
import { systemClock } from '../core/clock.ts';
import { runDetached } from '../core/safe-events.ts';
import { readClientCa } from '../kubernetes/admission/client-ca.ts';
import { Injector, type InjectorAddresses, type InjectorContext } from '../kubernetes/admission/injector.ts';
import { createLogger } from '../telemetry/log/logger.ts';
import { logForeignLines } from './foreign-lines.ts';
import { type InjectorOptions, openCluster, parseInjectorOptions, readInjectorConfig } from './injector-command.ts';
import { EXIT, type Io } from './io.ts';
import { Shutdown } from './shutdown.ts';
import { readRevision, readVersion } from './version.ts';

/** Runs until a signal; the exit code is 0 after a drain, even if the drain timed out. */
export async function runInjectServer(args: readonly string[], io: Io): Promise<number> {
  const options = parseInjectorOptions(args, 'inject-server', io);
  if (typeof options === 'number') return options;
  const context = await prepare(options, io);
  return context === undefined ? EXIT.failed : run(context, io);
}

async function prepare(options: InjectorOptions, io: Io): Promise<InjectorContext | undefined> {
  const file = options.config;
  const config = await readInjectorConfig(file, io);
  if (config?.server === undefined) {
    if (config !== undefined)
      io.stderr(`${file}: error server: missing: it configures the address and the certificate of the injector\n`);
    return undefined;
  }
  const { clientAuth } = config.server;
  const read = clientAuth === undefined ? { clientCa: undefined } : await readClientCa(clientAuth.caFile);
  if ('problem' in read) {
    io.stderr(`${file}: error server.clientAuth.caFile: ${clientAuth?.caFile}: ${read.problem}\n`);
    return undefined;
  }
  const kube = await openCluster(options, io);
  if (kube === undefined) return undefined;
  const version = readVersion();
  return {
    config,
    server: config.server,
    clientCa: read.clientCa,
    kube,
    clock: systemClock,
    logger: createLogger({ level: config.log.level, version }),
    version,
    revision: readRevision(),
    instance: io.env['HOSTNAME'] || hostname(),
  };
}

async function run(context: InjectorContext, io: Io): Promise<number> {
  const { logger, server } = context;
  logForeignLines(logger);
  const injector = new Injector(context);
  const shutdown = new Shutdown(logger, server.shutdown);
  const addresses = await start(injector, io);
  if (addresses === undefined) return EXIT.failed;
  const { data, admin } = addresses;
  logger.info('listening', { address: data.address, port: data.port, adminAddress: admin.address, adminPort: admin.port });
  runDetached(logger.flush());
  return shutdown.drain(injector);
}

async function start(injector: Injector, io: Io): Promise<InjectorAddresses | undefined> {
  try {
    return await injector.start();
  } catch (thrown) {
    const { code, address, port, message } = thrown as NodeJS.ErrnoException & { address?: string; port?: number };
    const place = `${address}:${port}`;
    if (code === 'EADDRINUSE') io.stderr(`sidegate: ${place} is in use; change server.address or server.adminAddress\n`);
    else io.stderr(`sidegate: cannot listen${code === undefined ? '' : ` on ${place} (${code})`}: ${message}\n`);
    return undefined;
  }
}
