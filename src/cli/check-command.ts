/** `sidegate check` with commander, without the other commands: the sidecar's bundle has only `run` and `check`. */
import type { Command } from 'commander';
import { COLLECT, createBaseProgram, parseCommand } from './base-program.ts';
import { checkFile } from './check.ts';
import type { Io } from './io.ts';
import { REPORTS, runReport, withReport } from './output.ts';

/** Runs `check`; resolves to the exit code. */
export function runCheck(argv: readonly string[], io: Io): Promise<number> {
  const create = (setExit: (code: number) => void): Command => {
    const program = createBaseProgram(io);
    addCheck(program, io, setExit);
    return program;
  };
  return parseCommand(create, argv, io);
}

/** Adds `check`. */
export function addCheck(program: Command, io: Io, setExit: (code: number) => void): void {
  withReport(withOverrides(program.command('check')), REPORTS.check)
    .description('report all problems of a config; exit 1 if sidegate cannot run with it')
    .argument('[file]', 'config file; - for standard input')
    .option('-c, --config <file>', 'same as the argument')
    .option('--connect', 'also connect to the store, to the apps of all routes and to the databases of queue and outbox')
    .action(async (file, given) =>
      setExit(await runReport(given, REPORTS.check, io, (options, out) => checkFile(file, options, out))),
    );
}

/** Adds the options that override the config. `run` uses them only for its help: main.ts parses its options without commander. */
export function withOverrides(command: Command): Command {
  return command
    .option('--listen <hosts:port>', 'where to listen for requests, instead of listen.address; :port for all addresses')
    .option('--admin <hosts:port>', 'where the admin port listens, instead of admin.address')
    .option('--upstream <url>', 'the app of all routes without an upstream')
    .option(
      '--app-probe <container/kind=url>',
      'URL of the app that the admin port requests for a kubelet probe; repeatable',
      COLLECT,
    );
}
