/** The entry point: runs `run` and `check` itself, and loads the separate bundle of the tools for all other commands. */
import { parseArgs } from 'node:util';
import { isMainThread } from 'node:worker_threads';
import { toErrorText } from '../core/errors.ts';
import { onEvent } from '../core/safe-events.ts';
import { EXIT, type Io } from './io.ts';
import { readVersion } from './version.ts';

const outputClosing = new AbortController();
const io: Io = {
  stdin: process.stdin,
  stdout: (text) => process.stdout.write(text),
  outputClosed: outputClosing.signal,
  isColored: process.stdout.isTTY === true && (process.env['NO_COLOR'] ?? '') === '' && process.env['TERM'] !== 'dumb',
  stderr: (text) => process.stderr.write(text),
  isTerminal: process.stderr.isTTY === true && process.env['TERM'] !== 'dumb',
  env: process.env,
};

const RUN_HELP = `Usage: sidegate run --config FILE [--listen HOSTS:PORT] [--admin HOSTS:PORT]
                    [--upstream URL] [--app-probe CONTAINER/KIND=URL]...

Starts sidegate. SIGTERM drains and stops it, SIGHUP reloads the config.

Options:
  -c, --config FILE     config file (required)
      --listen HOSTS:PORT
                        where to listen for requests, instead of listen.address;
                        several hosts separated by commas, :PORT for all addresses
      --admin HOSTS:PORT
                        where the admin port listens, instead of admin.address
      --upstream URL    the app of all routes without an upstream
      --app-probe CONTAINER/KIND=URL
                        URL of the app that /app-health/CONTAINER/KIND on the admin
                        port requests; KIND: livez, readyz or startupz; with headers:
                        CONTAINER/KIND={"url":…,"headers":[…]}
  -h, --help            show this help
`;

const DELIVER_HELP = `Usage: sidegate deliver --config FILE [--admin HOSTS:PORT]

Starts only the sending side, with the role deliver: it sends the events that other
replicas accept. They share a queue in PostgreSQL. SIGTERM stops it, SIGHUP reloads the
config.

Options:
  -c, --config FILE     config file (required)
      --admin HOSTS:PORT
                        where the admin port listens, instead of admin.address
  -h, --help            show this help
`;

async function main(argv: readonly string[]): Promise<number> {
  const [command, ...rest] = argv;
  if (command === 'run' || command === 'deliver') return run(command, rest);
  if (command === 'check') {
    const { runCheck } = await import('./check-command.ts');
    return runCheck(argv, io);
  }
  if (command === '--version' || command === '-V') {
    io.stdout(`${readVersion()}\n`);
    return EXIT.ok;
  }
  const { runTools } = await import('./tools.ts');
  return runTools(argv, io);
}

async function run(command: 'run' | 'deliver', args: readonly string[]): Promise<number> {
  const options = parseRunOptions(command, args);
  if (options === undefined) return EXIT.usage;
  if (options.help === true) {
    io.stdout(command === 'run' ? RUN_HELP : DELIVER_HELP);
    return EXIT.ok;
  }
  if (options.config === undefined) {
    io.stderr(`sidegate ${command}: missing option: --config FILE\n`);
    return EXIT.usage;
  }
  const { runGate } = await import('./run.ts');
  const { config, listen, admin, upstream, 'app-probe': appProbes } = options;
  return runGate(config, { listen, admin, upstream, appProbes, isDeliverOnly: command === 'deliver' }, io);
}

const DELIVER_OPTIONS = {
  config: { type: 'string', short: 'c' },
  admin: { type: 'string' },
  help: { type: 'boolean', short: 'h' },
} as const;
const RUN_OPTIONS = {
  ...DELIVER_OPTIONS,
  listen: { type: 'string' },
  upstream: { type: 'string' },
  'app-probe': { type: 'string', multiple: true },
} as const;

/** The values of the options; those that a command does not have are undefined. */
interface RunOptions {
  readonly config?: string | undefined;
  readonly admin?: string | undefined;
  readonly help?: boolean | undefined;
  readonly listen?: string | undefined;
  readonly upstream?: string | undefined;
  readonly 'app-probe'?: readonly string[] | undefined;
}

function parseRunOptions(command: 'run' | 'deliver', args: readonly string[]): RunOptions | undefined {
  try {
    const options = command === 'run' ? RUN_OPTIONS : DELIVER_OPTIONS;
    return parseArgs({ args: [...args], options, strict: true, allowPositionals: false }).values;
  } catch (thrown) {
    const isFile = (thrown as NodeJS.ErrnoException).code === 'ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL';
    io.stderr(`sidegate ${command}: ${isFile ? 'name the config with --config FILE' : toErrorText(thrown)}\n`);
    return undefined;
  }
}

/** A reader such as `head` closes the pipe when it has enough: that does not change the exit code. */
function onOutputError(error: NodeJS.ErrnoException): void {
  if (error.code === 'EPIPE') return outputClosing.abort();
  io.stderr(`sidegate: cannot write to standard output (${error.code ?? error.message})\n`);
  process.exit(EXIT.failed);
}

onEvent(process.stdout, 'error', onOutputError);
onEvent(process.stderr, 'error', () => undefined);
/** A thread that runs this module is one of several workers (app/workers). */
async function start(): Promise<number> {
  if (isMainThread) return main(process.argv.slice(2));
  const { runWorker } = await import('./gate-worker.ts');
  return runWorker();
}

// No top-level await: the bundle is CommonJS (scripts/bundle.ts).
start().then(
  (code) => {
    process.exitCode = code;
  },
  (thrown: unknown) => {
    io.stderr(`sidegate: ${toErrorText(thrown)}\n`);
    process.exitCode = EXIT.failed;
  },
);
