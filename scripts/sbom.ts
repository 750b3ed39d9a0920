/**
 * Writes what accompanies the bundles in every package and image: dist/sidegate.cdx.json, the CycloneDX bill of materials (the packages in
 * the bundles, and those installed with them), and dist/THIRD-PARTY-LICENSES.txt.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bundle } from './bundle.ts';
import { formatLicenses, readLicenses } from './licenses.ts';

const ROOT = join(import.meta.dirname, '..');

interface Component {
  readonly 'bom-ref': string;
  readonly name: string;
  readonly version: string;
  readonly purl?: string;
  readonly licenses?: readonly { readonly license?: { readonly id?: string } }[];
}

/** The parts of a CycloneDX document that this script reads. */
export interface Bom {
  readonly bomFormat: string;
  readonly specVersion: string;
  readonly serialNumber?: string;
  readonly metadata: { readonly component: Component; readonly timestamp?: string };
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
export async function createBom(bundled?: readonly string[]): Promise<Bom> {
  const args = ['sbom', '--sbom-format', 'cyclonedx', '--sbom-type', 'application', '--package-lock-only'];
  const text = execFileSync('npm', args, {
    cwd: ROOT,
    encoding: 'utf8',
    maxBuffer: 64 << 20,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const shipped = new Set(bundled ?? (await listBundled()));
  const bom = keepShipped(
    JSON.parse(text) as Bom,
    readJson<Lock>('package-lock.json'),
    readJson<Manifest>('package.json'),
    shipped,
  );
  return toReproducible(bom);
}

/** npm writes the current time and a random serial number. Here the number depends on the content, so that two builds write the same file. */
function toReproducible(bom: Bom): Bom {
  const { timestamp: _, ...metadata } = bom.metadata;
  const { serialNumber: __, ...rest } = { ...bom, metadata };
  const hex = createHash('sha256').update(JSON.stringify(rest)).digest('hex');
  // RFC 9562, section 5.8: version 8 is for numbers that an application computes.
  const parts = [hex.slice(0, 8), hex.slice(8, 12), `8${hex.slice(13, 16)}`, `8${hex.slice(17, 20)}`, hex.slice(20, 32)];
  return { ...bom, serialNumber: `urn:uuid:${parts.join('-')}`, metadata };
}

/** The folders of the packages that the bundles contain. */
export async function listBundled(): Promise<readonly string[]> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-sbom-'));
  try {
    return await bundle(folder);
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

/** Writes the bill of materials and the licenses of these packages into `dist`. */
export async function writeNotices(dist: string, bundled: readonly string[]): Promise<void> {
  const bom = await createBom(bundled);
  const licenses = readLicenses(ROOT, bundled);
  mkdirSync(dist, { recursive: true });
  writeFileSync(join(dist, 'sidegate.cdx.json'), `${JSON.stringify(bom, undefined, 2)}\n`);
  writeFileSync(join(dist, 'THIRD-PARTY-LICENSES.txt'), formatLicenses(licenses));
  console.log(`dist/: sidegate.cdx.json lists ${bom.components.length} packages, THIRD-PARTY-LICENSES.txt ${licenses.length}`);
}

if (import.meta.main) await writeNotices(join(ROOT, 'dist'), await listBundled());
