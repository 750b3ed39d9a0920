/** Writes the figures of a long run for the documentation, with what is needed to repeat it. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeMachine } from '../../bench/machine.ts';

const ROOT = join(import.meta.dirname, '..', '..');

/** Adds the figures to `bench/RESULTS-<name>.json`; those of other parts of the run are kept. */
export function writeRunResults(name: string, figures: object): void {
  const file = join(ROOT, 'bench', `RESULTS-${name}.json`);
  const previous = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as object) : {};
  const git = (...args: string[]): string => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).trim();
  const results = {
    ...previous,
    date: new Date().toISOString().slice(0, 10),
    commit: git('rev-parse', '--short', 'HEAD'),
    machine: [...describeMachine(), `Node ${process.version}`].join('; '),
    ...figures,
  };
  writeFileSync(file, `${JSON.stringify(results, undefined, 2)}\n`);
}
