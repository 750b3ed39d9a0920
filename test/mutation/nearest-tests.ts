/** Finds the test files that reach a source file by their imports, the nearest first. */
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type Round, UNUSED_TESTS } from './targets.ts';

/** How a thread is started from a file whose ending depends on the build. */
const THREAD = /new URL\(`(\.[^`$]+\.)\$/g;
const IMPORT = /^(?:import|export)\s+(?!type\s)(?:[^'"]*?\sfrom\s+)?['"](\.[^'"]+)['"]|\bimport\(['"](\.[^'"]+)['"]\)/gm;

/** Distances between test files and source files, in imports that exist at run time. */
export class ImportGraph {
  readonly #importers = new Map<string, string[]>();

  constructor(root: string) {
    for (const file of globSync(['src/**/*.ts', 'test/**/*.ts'], { cwd: root })) {
      const source = readFileSync(join(root, file), 'utf8');
      const imports = [...source.matchAll(IMPORT)].map(([, from, dynamic]) => from ?? dynamic ?? '');
      const threads = [...source.matchAll(THREAD)].map(([, start]) => `${start}ts`);
      for (const specifier of [...imports, ...threads]) {
        const imported = join(dirname(file), specifier);
        this.#importers.set(imported, [...(this.#importers.get(imported) ?? []), file]);
      }
    }
  }

  /** Test files that import `file`, directly or through others, with how many imports lie between. */
  testsOf(file: string): ReadonlyMap<string, number> {
    const distances = new Map([[file, 0]]);
    for (const [each, distance] of distances)
      for (const importer of this.#importers.get(each) ?? []) if (!distances.has(importer)) distances.set(importer, distance + 1);
    return new Map([...distances].filter(([each]) => each.endsWith('.test.ts') && !UNUSED_TESTS.includes(each)));
  }
}

/** The test files of one round, without those of earlier rounds. */
export function pickTests(tests: ReadonlyMap<string, number>, round: Round, done: ReadonlySet<string>): string[] {
  return [...tests]
    .filter(([file, distance]) => distance <= round.maxDistance && !done.has(file))
    .filter(([file]) => round.folders.some((folder) => file.startsWith(folder)))
    .toSorted(([a, near], [b, far]) => near - far || a.localeCompare(b))
    .slice(0, round.maxFiles)
    .map(([file]) => file);
}
