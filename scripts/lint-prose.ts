/**
 * Checks the project's prose against the rules of scripts/prose/: words of the field, one spelling, short sentences that start with their
 * subject, sentence case in headings.
 *
 * A script, because no linter of prose fits: Vale is a Go program that its npm packages download during the installation, and textlint
 * brings 180 packages, none of which reads the messages of TypeScript or of Helm templates. Well-kept parsers (mdast, oxc, yaml) do that
 * part here; the rules are data.
 */
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type Finding, findAll } from './prose/rules.ts';
import { listFiles, SCOPES, type Scope } from './prose/scopes.ts';

/** A finding that may stay. */
interface AllowedFinding {
  /** Relative to the root of the project. */
  readonly file: string;
  /** As the finding quotes it. */
  readonly found: string;
  readonly reason: string;
}

export const ALLOWED: readonly AllowedFinding[] = [
  { file: 'docs/handshakes.md', found: 'Graph', reason: 'Microsoft Graph is a product' },
  { file: 'docs/handshakes.md', found: 'Event', reason: 'Azure Event Grid is a product' },
  { file: 'docs/handshakes.md', found: 'Grid', reason: 'Azure Event Grid is a product' },
  { file: 'docs/how-to/redis.md', found: 'Sentinel', reason: 'Redis Sentinel is a product' },
  { file: 'docs/how-to/redis.md', found: 'Cluster', reason: 'Redis Cluster is a product' },
];

interface FileFinding extends Finding {
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

/** Each problem of the prose below `root`, one line each; also scopes without files, and entries of `allowed` that nothing needs. */
export function lintProse(root: string, scopes = SCOPES, allowed = ALLOWED): string[] {
  const problems = findEmptyGlobs(root, scopes);
  const unused = new Set(allowed);
  for (const finding of scan(root, scopes)) {
    const allowance = allowed.find((each) => isAllowed(finding, each));
    if (allowance !== undefined) unused.delete(allowance);
    else problems.push(format(finding));
  }
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

function isAllowed({ file, found }: FileFinding, allowance: AllowedFinding): boolean {
  return allowance.file === file && allowance.found.toLowerCase() === found.toLowerCase();
}

function locate(source: string, offset: number): { line: number; column: number } {
  const before = source.slice(0, offset);
  return { line: before.split('\n').length, column: offset - before.lastIndexOf('\n') };
}

function format({ file, line, column, rule, found, instead }: FileFinding): string {
  return `${file}:${line}:${column}: ${rule}: "${found}"; write: ${instead}`;
}

if (import.meta.main) {
  const problems = lintProse(resolve(import.meta.dirname, '..'));
  for (const problem of problems) console.error(problem);
  process.exitCode = problems.length === 0 ? 0 : 1;
}
