/**
 * `npm run docs:site`: the site of these pages, in dist/site. The pages stay as GitHub shows them: links that leave docs/ lead to the
 * repository, and the sidebar is the index in README.md. The page of each sender is generated, as `sidegate scheme NAME` prints it.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import type MarkdownIt from 'markdown-it';
import { defineConfig } from 'vitepress';
import { readRepository, readVersions } from '../../scripts/release-notes.ts';
import { isOfSender, renderSenderPage } from '../../src/cli/sender-page.ts';
import { PRESETS } from '../../src/verify/presets/catalogue.ts';
import { readSections, readTitles } from './navigation.ts';

const DOCS = join(import.meta.dirname, '..');
const ROOT = join(DOCS, '..');
const PAGES = join(ROOT, '.cache/site/pages');
const REPOSITORY = readRepository();
/** Of a release, its tag; before it, the commit. */
const [TAG, COMMIT] = [git('tag', '--points-at', 'HEAD', '--list', 'v*').split('\n')[0] ?? '', git('rev-parse', 'HEAD')];
const REVISION = TAG || COMMIT || 'main';
const VERSION = TAG || `v${readVersions()['package.json']} (${COMMIT.slice(0, 8)})`;
/** Each version is published below it, under its tag (release.yml). */
const SITE = REPOSITORY.replace(/^https:\/\/github\.com\/(.+?)\//, 'https://$1.github.io/');
const SENDERS = PRESETS.filter(isOfSender);

/** What a git command prints; nothing outside a repository. */
function git(...args: readonly string[]): string {
  try {
    return execFileSync('git', ['-C', ROOT, ...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  } catch {
    return '';
  }
}

/** Copies the pages, so that the generated ones do not stand among them. */
function writePages(): void {
  rmSync(PAGES, { recursive: true, force: true });
  cpSync(DOCS, PAGES, { recursive: true, filter: (path) => !path.startsWith(import.meta.dirname) });
  mkdirSync(join(PAGES, 'senders'), { recursive: true });
  for (const sender of SENDERS) writeFileSync(join(PAGES, 'senders', `${sender.name}.md`), renderSenderPage(sender, '../'));
  const names = new Set(SENDERS.map(({ name }) => name));
  const index = readFileSync(join(DOCS, 'senders.md'), 'utf8');
  writeFileSync(
    join(PAGES, 'senders.md'),
    index.replaceAll(/(?<=\| )`([\w-]+)`(?= \|)/g, (code, name) => (names.has(name) ? `[${code}](senders/${name}.md)` : code)),
  );
}

/** Where a link of a page leads: to a page, or to a file of the repository. */
function resolveLink(target: string, page: string): string {
  if (/^(?:[a-z]+:|#)/.test(target)) return target;
  const [path = '', fragment] = target.split('#');
  const file = join(dirname(page), path);
  const isPage = !file.startsWith('..') && (file.endsWith('.md') || file.endsWith('/'));
  const found = statSync(join(isPage ? PAGES : DOCS, file), { throwIfNoEntry: false });
  if (found === undefined) throw new Error(`docs/${page}: the link ${target} leads to a file that does not exist`);
  if (isPage) return target;
  const kind = found.isDirectory() ? 'tree' : 'blob';
  return `${REPOSITORY}/${kind}/${REVISION}/${join('docs', file)}${fragment === undefined ? '' : `#${fragment}`}`;
}

/** Text is text, as on GitHub: neither a tag nor an expression of Vue. */
function configureMarkdown(md: MarkdownIt): void {
  // The corner of a table is no heading.
  md.core.ruler.push('corners', ({ tokens }) => {
    for (const [i, { type, content }] of tokens.entries())
      if (type === 'inline' && content === '' && tokens[i - 1]?.type === 'th_open')
        for (const cell of [tokens[i - 1], tokens[i + 1]]) if (cell !== undefined) cell.tag = 'td';
  });
  md.disable('html_inline');
  const { text } = md.renderer.rules;
  md.renderer.rules.text = (...args) => (text?.(...args) ?? '').replaceAll('{{', '&#123;&#123;');
  md.core.ruler.push('links', ({ tokens, env }) => {
    for (const { children } of tokens)
      for (const token of children ?? []) {
        const target = token.type === 'link_open' ? token.attrGet('href') : null;
        if (target !== null) token.attrSet('href', resolveLink(target, env.relativePath));
      }
  });
}

/** The anchors of GitHub, which the links name. */
function toAnchor(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .trim()
    .replaceAll(/\s/g, '-');
}

writePages();
const sections = readSections(join(DOCS, 'README.md'), (target) => resolveLink(target, 'README.md'));
const forContributors = sections.findLast(({ text }) => text === 'For contributors') ?? { text: '', items: [] };
const decisions = { text: 'Decision records', items: readTitles(DOCS, 'adr') };
const runbooks = { text: 'Runbooks', collapsed: true, items: readTitles(DOCS, 'runbooks') };
const senders = { text: 'Senders', items: SENDERS.map(({ name, from }) => ({ text: from.title, link: `/senders/${name}` })) };
const home = { text: 'All documentation', link: '/' };
const ofContributors = [home, forContributors, decisions];
const contributorPages = ['/adr/', ...forContributors.items.flatMap((item) => ('link' in item ? item.link : []))];
const versions = git('tag', '--sort=-v:refname', '--list', 'v*.*.*').split('\n').filter(Boolean).slice(0, 10);

export default defineConfig({
  title: 'sidegate',
  description: 'An authenticating reverse proxy that lets only verified webhooks through, each one once',
  lang: 'en',
  // The same files are published below several paths (release.yml).
  base: './',
  srcDir: relative(DOCS, PAGES),
  outDir: '../dist/site',
  cacheDir: '../.cache/site/vite',
  rewrites: { 'README.md': 'index.md' },
  ignoreDeadLinks: 'localhostLinks',
  transformPageData: ({ filePath, headers, frontmatter }) => ({
    filePath: filePath.startsWith('senders/') ? 'src/cli/sender-notes.json' : `docs/${filePath}`,
    // A page that needs no outline has the place for a wide table.
    frontmatter: { aside: headers.length > 1, ...frontmatter },
  }),
  router: { prefetchLinks: false },
  markdown: {
    linkify: false,
    headers: true,
    attrs: false,
    emoji: false,
    anchor: { slugify: toAnchor },
    languageAlias: { caddyfile: 'nginx', conf: 'ini' },
    // Their contrast is sufficient.
    theme: { light: 'github-light-high-contrast', dark: 'github-dark' },
    config: configureMarkdown,
  },
  // The search index, which only a search loads.
  vite: { build: { chunkSizeWarningLimit: 2_000 } },
  themeConfig: {
    // A status is not similar to others: no mistake in words of less than five letters.
    search: { provider: 'local', options: { miniSearch: { searchOptions: { fuzzy: 0.1 } } } },
    outline: [2, 3],
    notFound: { linkLabel: 'Take me home' },
    nav: [
      { text: 'Tutorials', link: '/tutorials/vm', activeMatch: '^/tutorials/' },
      { text: 'Configuration', link: '/config' },
      { text: 'Senders', link: '/senders', activeMatch: '^/senders' },
      { text: 'Contributors', link: '/roadmap' },
      {
        text: VERSION,
        items: [
          { text: 'Changes', link: `${REPOSITORY}/blob/${REVISION}/CHANGELOG.md` },
          ...['latest', ...versions].map((name) => ({ text: name, link: `${SITE}/${name}/` })),
        ],
      },
    ],
    sidebar: {
      ...Object.fromEntries(contributorPages.filter((page) => page.startsWith('/')).map((page) => [page, ofContributors])),
      '/senders': [home, senders],
      '/': [...sections.filter((section) => section !== forContributors), runbooks],
    },
    editLink: { pattern: `${REPOSITORY}/edit/main/:path`, text: 'Edit this page' },
    socialLinks: [{ icon: 'github', link: REPOSITORY }],
  },
});
