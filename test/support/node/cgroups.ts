/** The cgroup that contains the whole node, on machines with version 1 or version 2 of cgroups. */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { CGROUPS, type Hierarchies, REQUIRED_V2 } from '../../prepare/node-availability.ts';
import { until } from '../gate.ts';

/** The cgroup of the node's own programs, beside those of the pods. */
export const PROGRAMS = 'programs';
/** The end of a process reaches its cgroup a moment later. */
const REMOVAL_MS = 10_000;

/** Creates the cgroup in each hierarchy, with the part for programs. Throws if the machine forbids it. */
export function createCgroup({ names }: Hierarchies, name: string): void {
  for (const hierarchy of names)
    for (const [parent, child] of [
      [hierarchy, name],
      [join(hierarchy, name), PROGRAMS],
    ] as const) {
      const folder = join(CGROUPS, parent, child);
      mkdirSync(folder);
      if (hierarchy.split(',').includes('cpuset')) copyCpuset(join(CGROUPS, parent), folder);
    }
}

/** Version 1: a cgroup without processors and memory nodes takes no process. */
function copyCpuset(from: string, to: string): void {
  for (const file of ['cpuset.cpus', 'cpuset.mems']) writeFileSync(join(to, file), readFileSync(join(from, file)));
}

/** The files to which a process writes its number in order to join the cgroup, or a part of it. */
export function toProcsFiles({ names }: Hierarchies, name: string, part = ''): string[] {
  return names.map((hierarchy) => join(CGROUPS, hierarchy, name, part, 'cgroup.procs'));
}

/** Version 2: moves all processes into the part for programs, which makes the controllers available to the cgroups of pods. */
export function delegate(hierarchies: Hierarchies, name: string): void {
  const [procs = ''] = toProcsFiles(hierarchies, name);
  if (hierarchies.version === 'v1') return;
  for (const pid of readFileSync(procs, 'utf8').split('\n').filter(Boolean))
    writeFileSync(join(CGROUPS, name, PROGRAMS, 'cgroup.procs'), pid);
  writeFileSync(join(CGROUPS, name, 'cgroup.subtree_control'), REQUIRED_V2.map((each) => `+${each}`).join(' '));
}

/** Removes the cgroup and all cgroups in it, once their processes have ended. */
export async function removeCgroup({ names }: Hierarchies, name: string): Promise<void> {
  const patience = AbortSignal.timeout(REMOVAL_MS);
  for (const hierarchy of names) {
    const folder = join(CGROUPS, hierarchy, name);
    await until(() => removeTree(folder) || patience.aborted);
    if (existsSync(folder))
      throw new Error(`${folder} still has processes: ${readFileSync(join(folder, 'cgroup.procs'), 'utf8')}`);
  }
}

/** Removes the cgroups of nodes whose owner has ended without doing so. Their names are a prefix and the owner's number. */
export async function removeStaleCgroups(hierarchies: Hierarchies, prefix: string): Promise<void> {
  const names = hierarchies.names.flatMap((each) => readdirSync(join(CGROUPS, each)));
  for (const name of new Set(names.filter((each) => each.startsWith(prefix))))
    if (!isAlive(Number.parseInt(name.slice(prefix.length), 10))) await removeCgroup(hierarchies, name);
}

/** Whether a process exists. */
export function isAlive(pid: number): boolean {
  return existsSync(`/proc/${pid}`);
}

/** Folders of cgroups are removed from the innermost outwards; their files go with them. */
function removeTree(folder: string): boolean {
  if (!existsSync(folder)) return true;
  for (const entry of readdirSync(folder, { withFileTypes: true }))
    if (entry.isDirectory() && !removeTree(join(folder, entry.name))) return false;
  try {
    rmdirSync(folder);
    return true;
  } catch {
    return false;
  }
}

/** The folder of a container's memory cgroup, seen from outside the node. */
export function findContainerCgroup({ version }: Hierarchies, name: string, container: string): string | undefined {
  const base = join(CGROUPS, version === 'v1' ? 'memory' : '', name, 'kubepods');
  const found = readdirSync(base, { recursive: true, encoding: 'utf8' }).find((each) => basename(each) === container);
  return found === undefined ? undefined : join(base, found);
}
