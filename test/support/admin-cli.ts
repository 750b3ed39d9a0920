/** The commands that use the console API, for the gate of a test. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type CliEnd, type CliInput, runCli, runCommand } from './cli.ts';
import { PASSWORD } from './console.ts';
import { useFolder } from './fixtures.ts';
import type { TestGate } from './gate.ts';

/** Runs commands with the gate's admin port. */
export interface AdminCli {
  /** As a process. */
  readonly call: (args: readonly string[], input?: CliInput) => Promise<CliEnd>;
  /** In this process, which is faster. */
  readonly callHere: (args: readonly string[], input?: Pick<CliInput, 'input'>) => Promise<CliEnd>;
  /** The option with the URL of the admin port. */
  readonly admin: () => readonly string[];
  /** The options of the user who may act. */
  readonly asUser: readonly string[];
  readonly passwordFile: string;
}

/** `gate`: of the test that runs. */
export function useAdminCli(gate: () => TestGate): AdminCli {
  const passwordFile = join(useFolder(), 'password');
  writeFileSync(passwordFile, `${PASSWORD}\n`);
  const admin = (): readonly string[] => ['--admin', `http://127.0.0.1:${gate().adminPort}`];
  return {
    call: (args, input) => runCli([...args, ...admin()], input),
    callHere: (args, input) => runCommand([...args, ...admin()], input),
    admin,
    asUser: ['--user', 'operator', '--password-file', passwordFile],
    passwordFile,
  };
}
