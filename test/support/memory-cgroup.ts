/** Runs sidegate as the image does, in a memory cgroup of its own: what the kernel kills in a pod, it kills here. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { stringify } from 'yaml';
import { provideBundle } from './bundle.ts';
import { type CgroupVersion, MEMORY_FILES, readMemory } from './cgroup-memory.ts';
import { SECRET } from './deliveries.ts';
import { type Sections, until } from './gate.ts';
import { readImageFlags } from './image-flags.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const MIB = 1024 * 1024;
const V2 = '/sys/fs/cgroup';
const V1 = '/sys/fs/cgroup/memory';

interface Layout {
  /** The cgroup that new ones are made in. */
  readonly parent: string;
  readonly version: CgroupVersion;
}

/** Bounds swap, or memory and swap together; some kernels cannot. */
const SWAP: Readonly<Record<CgroupVersion, readonly [file: string, toValue: (bytes: number) => number]>> = {
  v1: ['memory.memsw.limit_in_bytes', (bytes) => bytes],
  v2: ['memory.swap.max', () => 0],
};

/** A process in a memory cgroup. */
export interface CgroupProcess {
  readonly child: ChildProcess;
  /** Bytes charged to the cgroup now. */
  readonly usage: () => number;
  /** The most bytes that were ever charged; 0 where the kernel does not say. */
  readonly peak: () => number;
  /** Bytes charged that the kernel cannot take back at once: the working set that Kubernetes shows. */
  readonly workingSet: () => number;
  /** How many processes of the cgroup the kernel killed. */
  readonly oomKills: () => number;
  readonly isAlive: () => boolean;
  /** Kills it and removes the cgroup. */
  readonly stop: () => Promise<void>;
}

/** A gate in a memory cgroup. */
export interface CgroupGate extends CgroupProcess {
  readonly port: number;
  readonly adminPort: number;
  /** The path of its config. */
  readonly config: string;
  readonly log: () => Record<string, unknown>[];
}

/** Why no memory cgroup can be made here; undefined where one can. Pass it to `describe.skipIf`. */
export const NO_CGROUPS: string | undefined = findLayout() === undefined ? 'no writable memory cgroup' : undefined;
if (NO_CGROUPS !== undefined) console.log(`${NO_CGROUPS}: the tests under a memory limit are skipped`);

let made = 0;
const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** Starts a command in a new cgroup of `mebibytes`, without swap. */
export function startInCgroup(
  mebibytes: number,
  command: readonly string[],
  env: Readonly<Record<string, string>> = {},
): CgroupProcess {
  const layout = findLayout();
  if (layout === undefined) throw new Error('no writable memory cgroup');
  const folder = join(layout.parent, `sidegate-test-${process.pid}-${made++}`);
  mkdirSync(folder);
  const { version } = layout;
  writeFileSync(join(folder, MEMORY_FILES[version].limit), String(mebibytes * MIB));
  const [swap, toValue] = SWAP[version];
  if (existsSync(join(folder, swap))) writeFileSync(join(folder, swap), String(toValue(mebibytes * MIB)));
  const child = spawn('/bin/sh', ['-c', 'echo $$ > "$0/cgroup.procs" && exec "$@"', folder, ...command], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { PATH: process.env['PATH'], ...readImageEnv(), ...env },
  });
  running.add(child);
  const ended = new Promise<void>((done) =>
    child.once('exit', () => {
      running.delete(child);
      done();
    }),
  );
  return {
    child,
    usage: () => readMemory(folder, version).usage,
    peak: () => readMemory(folder, version).peak,
    workingSet: () => readMemory(folder, version).workingSet,
    oomKills: () => readMemory(folder, version).oomKills,
    isAlive: () => child.exitCode === null && child.signalCode === null,
    async stop() {
      child.kill('SIGKILL');
      await ended;
      await until(() => isRemoved(folder));
    },
  };
}

/** A command line that runs sidegate as the image does. */
export async function toImageCommand(...args: readonly string[]): Promise<readonly string[]> {
  return [process.execPath, ...readImageFlags(), await provideBundle(), ...args];
}

/** Starts a gate in a cgroup of `mebibytes`, with `files` beside its config, on this Node or another, and waits until it listens. */
export async function startGateInCgroup(
  mebibytes: number,
  sections: Sections,
  files: Readonly<Record<string, string>> = {},
  node = process.execPath,
): Promise<CgroupGate> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-cgroup-'));
  const base = { listen: { address: '127.0.0.1:0' }, admin: { address: '127.0.0.1:0' }, shutdown: { grace: '0ms' } };
  for (const [name, text] of Object.entries({ secret: SECRET, ...files })) writeFileSync(join(folder, name), text);
  const config = join(folder, 'gate.yaml');
  writeFileSync(config, stringify({ ...base, ...sections }));
  const flags = readImageFlags(execFileSync(node, ['-p', 'process.versions.node'], { encoding: 'utf8' }));
  const running = startInCgroup(mebibytes, [node, ...flags, await provideBundle(), 'run', '--config', config]);
  running.child.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const lines = collectLines(running.child);
  const listening = await until(() => {
    if (!running.isAlive()) throw new Error('the gate ended before it listened');
    return lines().find(({ msg }) => msg === 'listening');
  });
  return { ...running, port: Number(listening['port']), adminPort: Number(listening['adminPort']), config, log: lines };
}

/** Every log line of a process so far. Only the first mebibyte is kept: a flood logs much. */
export function collectLines(child: ChildProcess): () => Record<string, unknown>[] {
  let text = '';
  child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
    if (text.length < MIB) text += chunk;
  });
  return () =>
    text
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Record<string, unknown>);
}

function readDockerfile(): string {
  return readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
}

function readImageEnv(): Record<string, string> {
  const lines = readDockerfile().matchAll(/^ENV (.+)$/gm);
  const pairs = [...lines].flatMap(([, text = '']) => text.split(' '));
  return Object.fromEntries(pairs.map((pair) => pair.split('=', 2) as [string, string]));
}

/** A cgroup can only be removed once the kernel has let go of its last process. */
function isRemoved(folder: string): boolean {
  try {
    rmdirSync(folder);
    return true;
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code === 'ENOENT';
  }
}

function findLayout(): Layout | undefined {
  const isV2 = existsSync(join(V2, 'cgroup.controllers'));
  const version = isV2 ? 'v2' : 'v1';
  const mount = isV2 ? V2 : V1;
  const own = /^(?:0:|\d+:(?:[^:]*,)?memory(?:,[^:]*)?):(.+)$/m.exec(readFileSync('/proc/self/cgroup', 'utf8'))?.[1] ?? '';
  const parent = [join(mount, own), mount].find((folder) => canHold(folder, version));
  return parent === undefined ? undefined : { parent, version };
}

/** Tries it: rights alone do not tell, as a cgroup of version 2 with processes of its own can have no limited children. */
function canHold(parent: string, version: CgroupVersion): boolean {
  const probe = join(parent, `sidegate-probe-${process.pid}`);
  try {
    if (version === 'v2') writeFileSync(join(parent, 'cgroup.subtree_control'), '+memory');
    mkdirSync(probe);
    writeFileSync(join(probe, MEMORY_FILES[version].limit), String(64 * MIB));
    return true;
  } catch {
    return false;
  } finally {
    if (existsSync(probe)) rmdirSync(probe);
  }
}
