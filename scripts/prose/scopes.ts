/** The files whose prose is checked, by scope. An empty scope is an error: a moved folder must not switch the check off. */
import { globSync } from 'node:fs';
import { extractNotes, extractTemplate, extractYaml } from './extract-chart.ts';
import { extractMarkdown } from './extract-markdown.ts';
import { extractTypeScript } from './extract-typescript.ts';
import type { Passage } from './passage.ts';

export interface Scope {
  readonly name: string;
  /** Relative to the root of the project. */
  readonly globs: readonly string[];
  readonly extract: (source: string, file: string) => Passage[];
}

export const SCOPES: readonly Scope[] = [
  {
    name: 'pages',
    globs: [
      ...['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'ARCHITECTURE.md', 'SECURITY.md'],
      ...['GOVERNANCE.md', 'MAINTAINERS.md', 'CODE_OF_CONDUCT.md', 'RELEASE.md', '.github/*.md'],
    ],
    extract: extractMarkdown,
  },
  { name: 'docs', globs: ['docs/**/*.md'], extract: extractDocs },
  { name: 'pages of charts and examples', globs: ['chart/**/*.md', 'examples/**/*.md'], extract: extractMarkdown },
  {
    name: 'chart values',
    globs: ['chart/*/values.yaml', 'chart/*/values.schema.json', 'chart/*/Chart.yaml'],
    extract: extractYaml,
  },
  { name: 'alerts', globs: ['chart/*/rules/*.yaml'], extract: extractYaml },
  { name: 'dashboards', globs: ['chart/*/dashboards/*.json'], extract: extractYaml },
  { name: 'templates', globs: ['chart/*/templates/**/*.{yaml,tpl}'], extract: extractTemplate },
  { name: 'notes', globs: ['chart/*/templates/NOTES.txt'], extract: extractNotes },
  { name: 'examples', globs: ['examples/**/*.yaml', 'config/*.yaml'], extract: extractYaml },
  {
    name: 'sources',
    globs: ['src/**/*.ts', 'quickstart/*.ts', 'scripts/*.ts', 'chart/*.ts', 'bench/**/*.ts', 'test/prepare/*.ts'],
    extract: (source, file) => extractTypeScript(file, source),
  },
];

/** The headings of recipes are names of products. */
function extractDocs(source: string, file: string): Passage[] {
  const passages = extractMarkdown(source);
  return /^docs\/source-coverage/.test(file) ? passages.filter(({ kind }) => kind !== 'heading') : passages;
}

/** The files of `scope` below `root`, sorted. */
export function listFiles(root: string, { globs }: Scope): string[] {
  return globs.flatMap((glob) => globSync(glob, { cwd: root })).sort();
}
