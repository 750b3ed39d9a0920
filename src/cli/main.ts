/** The entry point: runs `run` and `deliver` itself, and loads the separate bundle of the tools for all other commands. */
import { parseArgs } from 'node:util';
import { isMainThread } from 'node:worker_threads';
import { toErrorText } from '../core/errors.ts';
import { onEvent } from '../core/safe-events.ts';
import { toPrintableLines } from '../core/text.ts';
import { describeArgument } from './input.ts';
import { EXIT, type Io } from './io.ts';
import { readVersion } from './version.ts';

const outputClosing = new AbortController();
const io: Io = {
  stdin: process.stdin,
  stdout: (text) => process.stdout.write(text),
  outputClosed: outputClosing.signal,
  isColored: process.stdout.isTTY === true && (process.env['NO_COLOR'] ?? '') === '' && process.env['TERM'] !== 'dumb',
  stderr: (text) => process.stderr.write(toPrintableLines(text)),
  isTerminal: process.stderr.isTTY === true && process.env['TERM'] !== 'dumb',
  env: process.env,
};

async function main(argv: readonly string[]): Promise<number> {
  const [command, ...rest] = argv;
  const isHelp = rest.some((word) => word === '--help' || word === '-h');
  if (!isHelp && (command === 'run' || command === 'deliver')) return run(command, rest);
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
  if (options.config === undefined) {
    io.stderr(`sidegate: ${command} needs --config FILE\n`);
    return EXIT.usage;
  }
  const { LOG_FORMATS, runGate } = await import('./run.ts');
  const { config, listen, admin, upstream, 'app-probe': appProbes } = options;
  // A container with a terminal is still one of a pod.
  const isForPeople = process.stdout.isTTY === true && process.env['KUBERNETES_SERVICE_HOST'] === undefined;
  const { 'log-format': given = isForPeople ? 'text' : 'json' } = options;
  const logFormat = LOG_FORMATS.find((format) => format === given);
  if (logFormat === undefined) {
    io.stderr(`sidegate: --log-format ${given} is not one of ${LOG_FORMATS.join(', ')}\n`);
    return EXIT.usage;
  }
  return runGate(config, { listen, admin, upstream, appProbes, isDeliverOnly: command === 'deliver' }, io, logFormat);
}

const DELIVER_OPTIONS = {
  config: { type: 'string', short: 'c' },
  admin: { type: 'string' },
  'log-format': { type: 'string' },
} as const;
const RUN_OPTIONS = {
  ...DELIVER_OPTIONS,
  listen: { type: 'string' },
  upstream: { type: 'string' },
  'app-probe': { type: 'string', multiple: true },
} as const;

/** The values of the options; those that a command does not have are undefined. */
interface RunArguments {
  readonly config?: string | undefined;
  readonly admin?: string | undefined;
  readonly 'log-format'?: string | undefined;
  readonly listen?: string | undefined;
  readonly upstream?: string | undefined;
  readonly 'app-probe'?: readonly string[] | undefined;
}

function parseRunOptions(command: 'run' | 'deliver', args: readonly string[]): RunArguments | undefined {
  const options = command === 'run' ? RUN_OPTIONS : DELIVER_OPTIONS;
  try {
    return parseArgs({ args: [...args], options, strict: true, allowPositionals: false }).values;
  } catch (thrown) {
    io.stderr(`sidegate: ${describeArgument(thrown, Object.keys(options))}\n`);
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
