/** `sidegate inject-server`: answers the API server's reviews of pods until a signal comes. */
import { hostname } from 'node:os';
import { parseArgs } from 'node:util';
import { Injector, type InjectorAddresses, type InjectorSurroundings } from '../app/injector.ts';
import { readText } from '../config/document.ts';
import { type InjectorConfig, loadInjectorConfig } from '../config/injector-config.ts';
import { findCluster } from '../config/kubeconfig.ts';
import { formatProblem } from '../config/problem.ts';
import { systemClock } from '../core/clock.ts';
import { SidegateError, toErrorText } from '../core/errors.ts';
import { KubeClient } from '../kube/client.ts';
import { createLogger } from '../observe/logger.ts';
import { EXIT, type Io } from './io.ts';
import { Stopping } from './stopping.ts';
import { readRevision, readVersion } from './version.ts';

const HELP = `Usage: sidegate inject-server --config FILE

Answers the API server's reviews of pods: those with the label sidegate.dev/inject get the sidecar. SIGTERM drains and stops it.

Options:
  -c, --config FILE    config file of the injector (required)
  --kubeconfig FILE    the cluster; left out: KUBECONFIG, ~/.kube/config, or the one that this pod is in
  --context NAME       of the kubeconfig; left out: its current one
  -h, --help           show this
`;

interface Options {
  readonly config?: string | undefined;
  readonly kubeconfig?: string | undefined;
  readonly context?: string | undefined;
  readonly help?: boolean | undefined;
}

/** Runs until a signal; the exit code is 0 after a drain, even one that ran out of time. */
export async function runInjectServer(args: readonly string[], io: Io): Promise<number> {
  const options = parseOptions(args, io);
  if (options === undefined) return EXIT.usage;
  if (options.help === true) {
    io.stdout(HELP);
    return EXIT.ok;
  }
  if (options.config === undefined) {
    io.stderr('sidegate inject-server: which config? give --config FILE\n');
    return EXIT.usage;
  }
  const ready = await prepare(options.config, options, io);
  return ready === undefined ? EXIT.failed : run(ready, io);
}

function parseOptions(args: readonly string[], io: Io): Options | undefined {
  try {
    const options = {
      config: { type: 'string', short: 'c' },
      kubeconfig: { type: 'string' },
      context: { type: 'string' },
      help: { type: 'boolean', short: 'h' },
    } as const;
    return parseArgs({ args: [...args], options, strict: true, allowPositionals: false }).values;
  } catch (thrown) {
    io.stderr(`sidegate inject-server: ${toErrorText(thrown)}\n`);
    return undefined;
  }
}

async function prepare(file: string, { kubeconfig, context }: Options, io: Io): Promise<InjectorSurroundings | undefined> {
  const config = await readConfig(file, io);
  if (config?.server === undefined) {
    if (config !== undefined)
      io.stderr(`${file}: error server: missing: it says where the injector listens, and by what certificate\n`);
    return undefined;
  }
  const clientCa = await readClientCa(config.server.clientCaFile, io);
  if (clientCa === false) return undefined;
  try {
    const { access } = await findCluster({ file: kubeconfig, context, env: io.env, clock: systemClock, tell: io.stderr });
    const version = readVersion();
    return {
      config,
      server: config.server,
      clientCa,
      kube: new KubeClient(access, systemClock),
      clock: systemClock,
      logger: createLogger({ level: config.log.level, version }),
      version,
      revision: readRevision(),
      instance: io.env['HOSTNAME'] || hostname(),
    };
  } catch (thrown) {
    if (!(thrown instanceof SidegateError && thrown.kind === 'user')) throw thrown;
    io.stderr(`sidegate: ${thrown.message}\n`);
    return undefined;
  }
}

async function readConfig(file: string, io: Io): Promise<InjectorConfig | undefined> {
  const { config, problems } = await loadInjectorConfig(file);
  for (const problem of problems) io.stderr(`${formatProblem(problem)}\n`);
  return config;
}

/** False where there should be one and is none: nobody would be kept out. */
async function readClientCa(file: string | undefined, io: Io): Promise<Buffer | undefined | false> {
  if (file === undefined) return undefined;
  const text = await readText(file);
  if (typeof text === 'string' && text.includes('-----BEGIN CERTIFICATE-----')) return Buffer.from(text);
  io.stderr(`${file}: error server.clientCaFile: ${typeof text === 'string' ? 'it holds no certificate' : text.message}\n`);
  return false;
}

async function run(surroundings: InjectorSurroundings, io: Io): Promise<number> {
  const { logger, server } = surroundings;
  const injector = new Injector(surroundings);
  const stopping = new Stopping(logger, server.shutdown);
  const addresses = await start(injector, io);
  if (addresses === undefined) return EXIT.failed;
  const { data, admin } = addresses;
  logger.info('listening', { address: data.address, port: data.port, adminAddress: admin.address, adminPort: admin.port });
  logger.flushNow();
  return stopping.drain(injector);
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
