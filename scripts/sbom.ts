/** Writes dist/sidegate.cdx.json, the CycloneDX bill of materials: the packages in sidegate's bundles, and those installed with it. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { bundle } from './bundle.ts';

const ROOT = join(import.meta.dirname, '..');

interface Component {
  readonly 'bom-ref': string;
  readonly name: string;
  readonly version: string;
  readonly purl?: string;
  readonly licenses?: readonly unknown[];
}

/** The parts of a CycloneDX document that this script reads. */
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
 * The bill of materials of the lock file, without the packages that only development needs. Not `npm sbom --omit dev`: the packages in the
 * bundles are development dependencies, because an installation needs only the bundles.
 */
export async function createBom(): Promise<Bom> {
  const args = ['sbom', '--sbom-format', 'cyclonedx', '--sbom-type', 'application', '--package-lock-only'];
  const text = execFileSync('npm', args, {
    cwd: ROOT,
    encoding: 'utf8',
    maxBuffer: 64 << 20,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const bundled = await listBundled();
  return keepShipped(JSON.parse(text) as Bom, readJson<Lock>('package-lock.json'), readJson<Manifest>('package.json'), bundled);
}

/** The folders of the packages that the bundles contain. */
async function listBundled(): Promise<ReadonlySet<string>> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-sbom-'));
  try {
    return new Set(await bundle(folder));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function keepShipped(bom: Bom, { packages }: Lock, { name }: Manifest, bundled: ReadonlySet<string>): Bom {
  const shipped = new Set<string>();
  for (const [path, locked] of Object.entries(packages)) {
    const isInstalled = path !== '' && locked.dev !== true && locked.devOptional !== true;
    if (!isInstalled && !bundled.has(path)) continue;
    shipped.add(`${locked.name ?? path.split('node_modules/').at(-1)}@${locked.version}`);
  }
  const components = bom.components.filter((component) => shipped.has(component['bom-ref']));
  const root = bom.metadata.component['bom-ref'];
  const refs = new Set([root, ...components.map((component) => component['bom-ref'])]);
  return {
    ...bom,
    // npm uses the name of the folder for the root.
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
  const bom = await createBom();
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `${JSON.stringify(bom, undefined, 2)}\n`);
  console.log(`dist/sidegate.cdx.json lists ${bom.components.length} packages`);
}
