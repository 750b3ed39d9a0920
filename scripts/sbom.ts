/** Writes dist/sidegate.cdx.json: the CycloneDX bill of materials of what sidegate ships, its production dependencies and nothing else. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');

interface Component {
  readonly 'bom-ref': string;
  readonly name: string;
  readonly version: string;
  readonly purl?: string;
  readonly licenses?: readonly unknown[];
}

/** A CycloneDX document, as far as this script reads it. */
export interface Bom {
  readonly bomFormat: string;
  readonly specVersion: string;
  readonly metadata: { readonly component: Component };
  readonly components: readonly Component[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

interface LockedPackage {
  readonly name?: string;
  readonly version?: string;
  readonly dev?: boolean;
  readonly devOptional?: boolean;
}

interface Lock {
  readonly packages: Readonly<Record<string, LockedPackage>>;
}

interface Manifest {
  readonly name: string;
}

/**
 * The bill of materials of the lock file. Not `npm sbom --omit dev`: npm 11 also omits a production dependency
 * that any development dependency needs too (pino, yaml and zod here).
 */
export function createBom(): Bom {
  const args = ['sbom', '--sbom-format', 'cyclonedx', '--sbom-type', 'application', '--package-lock-only'];
  const text = execFileSync('npm', args, {
    cwd: ROOT,
    encoding: 'utf8',
    maxBuffer: 64 << 20,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  return keepShipped(JSON.parse(text) as Bom, readJson<Lock>('package-lock.json'), readJson<Manifest>('package.json'));
}

function keepShipped(bom: Bom, { packages }: Lock, { name }: Manifest): Bom {
  const shipped = new Set<string>();
  for (const [path, locked] of Object.entries(packages)) {
    if (path === '' || locked.dev === true || locked.devOptional === true) continue;
    shipped.add(`${locked.name ?? path.split('node_modules/').at(-1)}@${locked.version}`);
  }
  const components = bom.components.filter((component) => shipped.has(component['bom-ref']));
  const root = bom.metadata.component['bom-ref'];
  const refs = new Set([root, ...components.map((component) => component['bom-ref'])]);
  return {
    ...bom,
    // npm names the root after the folder that it is in.
    metadata: { ...bom.metadata, component: { ...bom.metadata.component, name } },
    components,
    dependencies: bom.dependencies
      .filter(({ ref }) => refs.has(ref))
      .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((each) => refs.has(each)) })),
  };
}

function readJson<T>(file: string): T {
  return JSON.parse(readFileSync(join(ROOT, file), 'utf8')) as T;
}

if (import.meta.main) {
  const file = join(ROOT, 'dist', 'sidegate.cdx.json');
  const bom = createBom();
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `${JSON.stringify(bom, undefined, 2)}\n`);
  console.log(`dist/sidegate.cdx.json lists ${bom.components.length} packages`);
}
