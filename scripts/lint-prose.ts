/**
 * Checks the project's prose against the rules of scripts/prose/: words of the field, one spelling, short sentences that start with their
 * subject, sentence case in headings. `--write-baseline` writes the list of files that are not clean yet.
 *
 * A script, because no linter of prose fits: Vale is a Go program that its npm packages download during the installation, and textlint
 * brings 180 packages, none of which reads the messages of TypeScript or of Helm templates. Well-kept parsers (mdast, oxc, yaml) do that
 * part here; the rules are data.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { ALLOWED, type Allowed } from './prose/allowed.ts';
import { type Finding, findAll } from './prose/rules.ts';
import { listFiles, SCOPES, type Scope } from './prose/scopes.ts';

/** Files that had findings when this linter was added, one per line. The list may only shrink: a listed file that is clean is an error. */
const BASELINE = 'scripts/prose/baseline.txt';

interface FileFinding extends Finding {
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

export interface Options {
  readonly scopes?: readonly Scope[];
  readonly allowed?: readonly Allowed[];
  /** Files that are not clean yet. */
  readonly baseline?: readonly string[];
}

/** Each problem of the prose below `root`, one line each; also scopes without files, and entries that nothing needs. */
export function lintProse(
  root: string,
  { scopes = SCOPES, allowed = ALLOWED, baseline = readBaseline(root) }: Options = {},
): string[] {
  const problems = findEmptyGlobs(root, scopes);
  const unused = new Set(allowed);
  const unclean = new Set<string>();
  for (const finding of scan(root, scopes)) {
    const allowance = allowed.find((each) => isAllowed(finding, each));
    if (allowance !== undefined) unused.delete(allowance);
    else {
      unclean.add(finding.file);
      if (!baseline.includes(finding.file)) problems.push(format(finding));
    }
  }
  for (const file of baseline) if (!unclean.has(file)) problems.push(`${BASELINE}: ${file} is clean or gone; remove the line`);
  for (const { file, found } of unused) problems.push(`${file}: "${found}" is allowed but not found; remove it from ALLOWED`);
  return problems;
}

function findEmptyGlobs(root: string, scopes: readonly Scope[]): string[] {
  return scopes.flatMap((scope) => {
    const empty = scope.globs.filter((glob) => listFiles(root, { ...scope, globs: [glob] }).length === 0);
    return empty.map((glob) => `scope ${scope.name}: no file matches ${glob}`);
  });
}

function scan(root: string, scopes: readonly Scope[]): FileFinding[] {
  return scopes.flatMap((scope) =>
    listFiles(root, scope).flatMap((file) => {
      const source = readFileSync(join(root, file), 'utf8');
      const findings = scope.extract(source, file).flatMap((passage) => findAll(passage));
      return findings
        .sort((a, b) => a.offset - b.offset)
        .map((finding) => ({ ...finding, file, ...locate(source, finding.offset) }));
    }),
  );
}

function isAllowed({ file, found }: FileFinding, allowance: Allowed): boolean {
  return allowance.file === file && allowance.found.toLowerCase() === found.toLowerCase();
}

function locate(source: string, offset: number): { line: number; column: number } {
  const before = source.slice(0, offset);
  return { line: before.split('\n').length, column: offset - before.lastIndexOf('\n') };
}

function format({ file, line, column, rule, found, instead }: FileFinding): string {
  return `${file}:${line}:${column}: ${rule}: "${found}"; write: ${instead}`;
}

function readBaseline(root: string): string[] {
  return readFileSync(join(root, BASELINE), 'utf8')
    .split('\n')
    .filter((line) => line !== '');
}

function listUnclean(root: string): string[] {
  const findings = scan(root, SCOPES).filter((finding) => !ALLOWED.some((each) => isAllowed(finding, each)));
  return [...new Set(findings.map(({ file }) => file))].sort();
}

if (import.meta.main) {
  const root = resolve(import.meta.dirname, '..');
  if (process.argv.includes('--write-baseline'))
    writeFileSync(
      join(root, BASELINE),
      listUnclean(root)
        .map((file) => `${file}\n`)
        .join(''),
    );
  const problems = lintProse(root);
  for (const problem of problems) console.error(problem);
  process.exitCode = problems.length === 0 ? 0 : 1;
}
