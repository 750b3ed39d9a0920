/** The site of the docs, built as a release builds it and opened in a browser. */
import { execFileSync } from 'node:child_process';
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { extname, join, resolve } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openBrowser } from './chromium.ts';
import { type ConsolePage, LAYOUTS, openConsole } from './console-page.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const BASE = '/sidegate/v1.2.3/';
const MIB = 1024 * 1024;
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
};

let folder: string;
let pages: string[];
let server: Server;
let browser: Browser;

const toFile = (path: string): string => join(folder, path.slice(BASE.length).replace(/(?:^|\/)$/, '$&index.html'));
const readPage = (page: string): string => readFileSync(join(folder, page), 'utf8');

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sidegate-site-'));
  buildSite('docs', '--outDir', folder);
  pages = globSync('**/*.html', { cwd: folder }).sort();
  server = createServer(({ url = '/' }, response) => {
    const { pathname } = new URL(url, 'http://127.0.0.1');
    const isFound = pathname.startsWith(BASE) && existsSync(toFile(pathname));
    const file = isFound ? toFile(pathname) : join(folder, '404.html');
    response.writeHead(isFound ? 200 : 404, { 'Content-Type': TYPES[extname(file)] ?? 'application/octet-stream' });
    response.end(readFileSync(file));
  }).listen(0, '127.0.0.1');
  browser = await openBrowser({ certificates: [] });
}, 90_000);
afterAll(async () => {
  await browser.close();
  server.close();
  rmSync(folder, { recursive: true });
});

function buildSite(...args: readonly string[]): void {
  execFileSync('vitepress', ['build', ...args], { cwd: ROOT, stdio: 'pipe', encoding: 'utf8' });
}

async function open(page: string, layout: keyof typeof LAYOUTS = 'light'): Promise<ConsolePage> {
  const opened = await openConsole(browser, (server.address() as AddressInfo).port, LAYOUTS[layout]);
  await opened.page.goto(`${BASE}${page}`, { waitUntil: 'networkidle' });
  return opened;
}

describe('the site of the docs', () => {
  test('has each page of docs/, and one for each sender', () => {
    for (const file of globSync('**/*.md', { cwd: join(ROOT, 'docs') }))
      expect(pages).toContain(file.replace(/^README\.md$/, 'index.md').replace(/md$/, 'html'));
    expect(pages).toContain('senders/stripe.html');
    expect(pages.filter((page) => page.startsWith('senders/')).length).toBeGreaterThan(100);
  });

  test('has no broken link', () => {
    const ids = new Map<string, Set<string | undefined>>();
    const idsOf = (file: string): Set<string | undefined> => {
      const found = ids.get(file) ?? new Set([...readFileSync(file, 'utf8').matchAll(/ id="([^"]+)"/g)].map(([, id]) => id));
      ids.set(file, found);
      return found;
    };
    const broken = new Set<string>();
    let checked = 0;
    for (const page of pages)
      for (const [, target = ''] of readPage(page).matchAll(/ (?:href|src)="([^"]+)"/g)) {
        const { origin, pathname, hash } = new URL(target.replaceAll('&amp;', '&'), `http://site${BASE}${page}`);
        if (origin !== 'http://site') continue;
        checked++;
        const isFile = pathname.startsWith(BASE) && existsSync(toFile(pathname));
        const id = decodeURIComponent(hash.slice(1));
        if (!isFile || (id !== '' && !idsOf(toFile(pathname)).has(id))) broken.add(`${page}: ${target}`);
      }
    expect(checked).toBeGreaterThan(10_000);
    expect([...broken]).toEqual([]);
  });

  test('has only pages below 1 MiB, with what they load', async () => {
    for (const page of pages) expect(readPage(page).length, page).toBeLessThan(MIB);
    for (const page of ['', 'config.html', 'presets.html', 'source-coverage.html']) {
      const { page: shown, context } = await open(page);
      const sizes = await shown.evaluate(() =>
        performance.getEntries().map((entry) => (entry as unknown as { decodedBodySize?: number }).decodedBodySize ?? 0),
      );
      expect(
        sizes.reduce((sum, size) => sum + size, 0),
        page,
      ).toBeLessThan(MIB);
      await context.close();
    }
  });

  test.each([
    ['rotate', 'how-to/rotate-keys.html'],
    ['Stripe', 'how-to/stripe.html'],
    ['407', 'how-to/egress-proxy.html'],
  ])('finds %s', async (words, expected) => {
    const { page, context, problems } = await open('');
    await page.click('.VPNavBarSearchButton');
    await page.fill('#localsearch-input', words);
    await page.waitForSelector('#localsearch-list a');
    const found = await page.$$eval('#localsearch-list a', (links) => links.map((link) => link.getAttribute('href') ?? ''));
    expect(found.map((link) => link.split('#')[0])).toContain(`${BASE}${expected}`);
    await page.keyboard.press('Enter');
    await page.waitForURL((url) => url.pathname.endsWith('.html'));
    await page.locator('main', { hasText: words }).waitFor();
    expect(problems).toEqual([]);
    await context.close();
  });

  test.each([
    ...['', 'how-to/rotate-keys.html', 'senders/stripe.html'].flatMap((page) =>
      (['light', 'dark', 'phone'] as const).map((layout) => ({ page, layout })),
    ),
    { page: 'config.html', layout: 'light' },
    { page: 'mutation.html', layout: 'dark' },
    { page: 'adr/0016-sql-queue.html', layout: 'light' },
  ] as const)(
    'shows /$page ($layout) without a violation, an error, or a request to another origin',
    async ({ page, layout }) => {
      const opened = await open(page, layout);
      await opened.screenshot(`site-${page.replaceAll(/\W/g, '-')}-${layout}`);
      expect(await opened.findViolations()).toEqual([]);
      expect(opened.problems).toEqual([]);
      await opened.context.close();
    },
  );
});
