/** The namespaces of a node: a machine within this machine that has separate processes, mounts, network and cgroups. */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findHierarchies, type Hierarchies } from '../../prepare/node-availability.ts';
import { type Program, startProgram } from '../cluster/program.ts';
import { until } from '../gate.ts';
import { createCgroup, delegate, isAlive, PROGRAMS, removeCgroup, removeStaleCgroups, toProcsFiles } from './cgroups.ts';

/** Address of the node on its network. */
export const NODE_ADDRESS = '10.99.0.1';
export const NODE_NAME = 'node-1';
/** The folders and cgroups of nodes are called so; the number of the process that created it follows. */
const PREFIX = 'sidegate-node-';

const INIT = join(import.meta.dirname, 'init.sh');
const NAMESPACES = ['--mount', '--uts', '--ipc', '--net', '--pid', '--cgroup'];
/** Moves the shell to a cgroup, and then runs the command that follows. */
const JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift; exec "$@"';

/** A machine that runs; plain data, so that every process of the tests can enter it. */
export interface Machine {
  /** Contains all that the node writes, and the number of its first process. */
  readonly folder: string;
  readonly cgroup: string;
  readonly hierarchies: Hierarchies;
}

/** Controls a machine; only the process that created it has this. */
export interface MachineOwner {
  readonly machine: Machine;
  /** Starts its first process, also after `halt`. */
  boot(): Promise<void>;
  /** Ends all of its processes at once, like a loss of power. Its folder stays. */
  halt(): Promise<void>;
  /** Ends the machine and removes every trace of it. */
  remove(): Promise<void>;
}

let created = 0;

/** Creates a machine that is not running yet, and removes what earlier owners left that were killed. */
export async function createMachine(): Promise<MachineOwner> {
  const hierarchies = findHierarchies();
  if (typeof hierarchies === 'string') throw new Error(hierarchies);
  await removeStaleCgroups(hierarchies, PREFIX);
  removeStaleFolders();
  const cgroup = `${PREFIX}${process.pid}-${created++}`;
  const folder = join(tmpdir(), cgroup);
  mkdirSync(folder, { mode: 0o700 });
  const machine = { folder, cgroup, hierarchies };
  let unshare: Program | undefined;
  const halt = async (): Promise<void> => {
    // `unshare` ignores SIGTERM; the kernel ends the first process with it, and with that one all others.
    await unshare?.kill();
    unshare = undefined;
    rmSync(join(folder, 'booted'), { force: true });
    await removeCgroup(hierarchies, cgroup);
  };
  return {
    machine,
    halt,
    async boot() {
      createCgroup(hierarchies, cgroup);
      mkdirSync(join(folder, 'logs'), { recursive: true });
      const group = [...toProcsFiles(hierarchies, cgroup), '--'];
      const init = ['bash', INIT, folder, PROGRAMS, hierarchies.version, ...hierarchies.names];
      const command = ['unshare', ...NAMESPACES, '--fork', '--kill-child', '--propagation', 'private', ...init];
      const started = startProgram('sh', ['-c', JOIN, 'sh', ...group, ...command], toLogFile(machine, 'init'));
      unshare = started;
      await until(() => existsSync(join(folder, 'booted')) || started.ended() !== undefined);
      if (started.ended() !== undefined) throw new Error(`the node's namespaces: ${started.log()}`);
      delegate(hierarchies, cgroup);
      writeFileSync(join(folder, 'pid'), readFileSync(`/proc/${started.child.pid}/task/${started.child.pid}/children`));
    },
    async remove() {
      await halt();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function removeStaleFolders(): void {
  for (const name of readdirSync(tmpdir()))
    if (name.startsWith(PREFIX) && !isAlive(Number.parseInt(name.slice(PREFIX.length), 10)))
      rmSync(join(tmpdir(), name), { recursive: true, force: true });
}

/** Where a program of the node writes. */
export function toLogFile({ folder }: Machine, name: string): string {
  return join(folder, 'logs', `${name}.log`);
}

/** The command line that runs a program inside the node. */
export function toInside({ folder, hierarchies, cgroup }: Machine, command: string, args: readonly string[]): [string, string[]] {
  const pid = readFileSync(join(folder, 'pid'), 'utf8').trim();
  const group = [...toProcsFiles(hierarchies, cgroup, PROGRAMS), '--'];
  // `nsenter` stays outside and waits; the program must end with it.
  const bound = ['setpriv', '--pdeathsig', 'KILL', '--', command, ...args];
  return ['sh', ['-c', JOIN, 'sh', ...group, 'nsenter', '-t', pid, ...NAMESPACES, '--', ...bound]];
}

/** Starts a program inside the node. */
export function startInside(machine: Machine, name: string, command: string, args: readonly string[]): Program {
  const [file, rest] = toInside(machine, command, args);
  return startProgram(file, rest, toLogFile(machine, name));
}
