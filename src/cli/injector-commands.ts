/** `sidegate inject-server`, the admission webhook that injects the sidecar, and `sidegate rotate-certificates`, which renews its certificates. */
import { hostname } from 'node:os';
import { parseArgs } from 'node:util';
import { readCas } from '../config/sources/bounded-read.ts';
import { keepAlive, systemClock } from '../core/clock.ts';
import { SidegateError } from '../core/errors.ts';
import { formatProblem } from '../core/problem.ts';
import { runDetached } from '../core/safe-events.ts';
import { Injector, type InjectorAddresses, type InjectorContext } from '../kubernetes/admission/injector.ts';
import { RotationController } from '../kubernetes/certificates/certificate-rotation.ts';
import type { KubeClient } from '../kubernetes/client/client.ts';
import { connectCluster } from '../kubernetes/client/cluster.ts';
import { type InjectorConfig, loadInjectorConfig } from '../kubernetes/injector/injector-config.ts';
import { createLogger } from '../telemetry/log/logger.ts';
import { describeArgument } from './input.ts';
import { EXIT, type Io, logForeignLines } from './io.ts';
import { closeAtExit, Shutdown } from './shutdown.ts';
import { readRevision, readVersion } from './version.ts';

/** Parsed options. */
interface InjectorOptions {
  readonly config: string;
  readonly kubeconfig: string | undefined;
  readonly context: string | undefined;
}

/** Returns the options, or an exit code if the command must not run. */
function parseInjectorOptions(args: readonly string[], name: string, io: Io): InjectorOptions | number {
  const options = {
    config: { type: 'string', short: 'c' },
    kubeconfig: { type: 'string' },
    context: { type: 'string' },
  } as const;
  try {
    const { values } = parseArgs({ args: [...args], options, strict: true, allowPositionals: false });
    if (values.config !== undefined) return { config: values.config, kubeconfig: values.kubeconfig, context: values.context };
    io.stderr(`sidegate: ${name} needs --config FILE\n`);
  } catch (thrown) {
    io.stderr(`sidegate: ${describeArgument(thrown, Object.keys(options))}\n`);
  }
  return EXIT.usage;
}

/** Returns undefined after reporting problems. */
async function readInjectorConfig(file: string, io: Io): Promise<InjectorConfig | undefined> {
  const { config, problems } = await loadInjectorConfig(file);
  for (const problem of problems) io.stderr(`${formatProblem(problem)}\n`);
  return config;
}

/** Returns undefined after reporting why. */
async function openCluster(options: InjectorOptions, io: Io): Promise<KubeClient | undefined> {
  try {
    return (await connectCluster({ ...options, clock: systemClock, io, closeAtExit })).client;
  } catch (thrown) {
    if (!(thrown instanceof SidegateError && thrown.kind === 'user')) throw thrown;
    io.stderr(`sidegate: ${thrown.message}\n`);
    return undefined;
  }
}

/** Renews the injector's CA and certificate and the webhook's caBundle until a signal. */
export async function runRotateCertificates(args: readonly string[], io: Io): Promise<number> {
  const options = parseInjectorOptions(args, 'rotate-certificates', io);
  if (typeof options === 'number') return options;
  const config = await readInjectorConfig(options.config, io);
  if (config === undefined) return EXIT.failed;
  const { rotation, log } = config;
  if (rotation === undefined) {
    io.stderr(`${options.config}: error rotation: missing: it names the Secrets and the webhook configuration to renew\n`);
    return EXIT.failed;
  }
  const kube = await openCluster(options, io);
  if (kube === undefined) return EXIT.failed;
  const logger = createLogger({ level: log.level, version: readVersion() });
  logForeignLines(logger);
  const controller = new RotationController({ rotation, kube, clock: systemClock, logger });
  const shutdown = new Shutdown(logger, { grace: 0, drain: 0 });
  keepAlive();
  controller.start();
  const { namespace, webhook } = rotation;
  logger.info('rotation_started', { namespace, webhook });
  return shutdown.drain(controller);
}

/** Injects the sidecar until a signal; the exit code is 0 after a drain, even if the drain timed out. */
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
  const clientCa = clientAuth === undefined ? undefined : await readCas(clientAuth.caFile);
  if (clientCa !== undefined && 'problem' in clientCa) {
    io.stderr(`${file}: error server.clientAuth.caFile: ${clientCa.problem}\n`);
    return undefined;
  }
  const kube = await openCluster(options, io);
  if (kube === undefined) return undefined;
  const version = readVersion();
  return {
    config,
    server: config.server,
    clientCa,
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
