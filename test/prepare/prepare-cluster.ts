/** Builds the Kubernetes programs that the cluster tests run from Go modules, unless they are in the user's cache. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CLUSTER_TOOLS, type ClusterTool, toBinFolder, toModuleFolder } from './cluster-tools.ts';

/** From this version on, Go fetches the newer toolchain that a module requires. */
const OLDEST_GO = 21;

/** Builds programs that are missing or outdated. Returns the reason of a failure, in one line. */
export function prepareCluster(tools: readonly ClusterTool[] = CLUSTER_TOOLS, bin: string = toBinFolder()): string | undefined {
  const stale = tools.filter((tool) => !isFresh(tool, bin));
  if (stale.length === 0) return undefined;
  const hindrance = judgeGo();
  if (hindrance !== undefined) return `${stale.map(({ name }) => name).join(', ')} must be built: ${hindrance}`;
  mkdirSync(bin, { recursive: true });
  for (const tool of stale) {
    console.log(`building ${tool.name} from its Go module, once: about ${tool.minutes} min on two cores`);
    const started = Date.now();
    if (!build(tool, bin)) return `${tool.name} could not be built in ${toModuleFolder(tool)}: Go's own words are above`;
    console.log(`built ${tool.name} in ${Math.round((Date.now() - started) / 1_000)} s`);
  }
  return undefined;
}

/** Whether the program was built completely, from the current version of the module. */
export function isFresh(tool: ClusterTool, bin: string): boolean {
  const mark = toMarkFile(tool, bin);
  return existsSync(join(bin, tool.name)) && existsSync(mark) && readFileSync(mark, 'utf8') === toMark(tool);
}

function toMarkFile(tool: ClusterTool, bin: string): string {
  return join(bin, `.${tool.name}.built`);
}

function toMark(tool: ClusterTool): string {
  const hash = createHash('sha256').update(JSON.stringify([tool.package, tool.flags]));
  for (const file of ['go.mod', 'go.sum']) hash.update(readFileSync(join(toModuleFolder(tool), file)));
  const program = join(toModuleFolder(tool), tool.package, 'main.go');
  if (existsSync(program)) hash.update(readFileSync(program));
  return hash.digest('hex');
}

function judgeGo(): string | undefined {
  const { status, stdout } = spawnSync('go', ['env', 'GOVERSION'], {
    encoding: 'utf8',
    env: { ...process.env, GOTOOLCHAIN: 'local' },
  });
  const install = 'apt-get install golang-go, or a newer one from go.dev/dl where the package is older';
  if (status !== 0) return `there is no go; ${install}`;
  const [, major = '0', minor = '0'] = /^go(\d+)\.(\d+)/.exec(stdout) ?? [];
  if (Number(major) > 1 || Number(minor) >= OLDEST_GO) return undefined;
  return `${stdout.trim()} is too old, 1.${OLDEST_GO} is the oldest that will do; ${install}`;
}

/** Renames the file at the end, so that an interrupted build leaves no incomplete program. */
function build(tool: ClusterTool, bin: string): boolean {
  const target = join(bin, tool.name);
  const unfinished = `${target}.${process.pid}.unfinished`;
  const { status } = spawnSync('go', ['build', ...tool.flags, '-o', unfinished, tool.package], {
    cwd: toModuleFolder(tool),
    env: { ...process.env, GOWORK: 'off', GOFLAGS: '' },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  if (status !== 0) {
    rmSync(unfinished, { force: true });
    return false;
  }
  rmSync(toMarkFile(tool, bin), { force: true });
  renameSync(unfinished, target);
  writeFileSync(toMarkFile(tool, bin), toMark(tool));
  return true;
}
