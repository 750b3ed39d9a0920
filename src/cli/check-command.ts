/** `sidegate check` on commander, without the other commands: the sidecar's bundle has `run` and `check` only. */
import type { Command } from 'commander';
import { COLLECT, createBaseProgram, parseCommand } from './base-program.ts';
import { checkFile } from './check.ts';
import type { Io } from './io.ts';
import { REPORTS, runReport, withReport } from './output.ts';

/** Runs `check`; the result is the exit code. */
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
    .description('show everything wrong with a config; exit 1 if it cannot run')
    .argument('[file]', 'config file')
    .option('-c, --config <file>', 'the same as the argument')
    .option('--connect', 'also connect to the store and to the app of every route')
    .action(async (file, given) =>
      setExit(await runReport(given, REPORTS.check, io, (options, out) => checkFile(file, options, out))),
    );
}

/** The same for `run`, whose own reading of them (main.ts) needs no commander. */
export function withOverrides(command: Command): Command {
  return command
    .option('--listen <hosts:port>', 'where requests come in, whatever the config says; :port for all addresses')
    .option('--admin <hosts:port>', 'the same for the admin port')
    .option('--upstream <url>', 'the app of the routes that name none of their own')
    .option('--app-probe <container/kind=url>', 'what the admin port asks the app for the kubelet; repeat for more', COLLECT);
}
