/** A page of the console in a real browser, and what a browser reports about it. */
import { mkdirSync } from 'node:fs';
import { resolve } from 'node:path';
import axe from 'axe-core';
import type { Browser, BrowserContext, BrowserContextOptions, Page } from 'playwright-core';

/** The views of the console in each layout, also for docs/images. */
const SCREENSHOTS = resolve(import.meta.dirname, '..', '..', '.cache', 'console');

/** The layouts that must be usable. */
export const LAYOUTS = {
  light: { viewport: { width: 1280, height: 860 }, colorScheme: 'light' },
  dark: { viewport: { width: 1280, height: 860 }, colorScheme: 'dark' },
  phone: { viewport: { width: 390, height: 844 }, colorScheme: 'light', hasTouch: true },
} as const satisfies Record<string, BrowserContextOptions>;

/** An open page. */
export interface ConsolePage {
  readonly page: Page;
  readonly context: BrowserContext;
  /** Errors, violations of the policy, dialogs, and requests to other origins. */
  readonly problems: readonly string[];
  /** Violations of WCAG 2.2 A and AA and of best practices. */
  readonly findViolations: () => Promise<string[]>;
  /** Writes `.cache/console/NAME.png`. */
  readonly screenshot: (name: string) => Promise<void>;
}

/** Opens the console of the gate. */
export async function openConsole(browser: Browser, port: number, options: BrowserContextOptions = {}): Promise<ConsolePage> {
  const problems: string[] = [];
  const origin = `http://127.0.0.1:${port}`;
  const context = await browser.newContext({ baseURL: origin, ...LAYOUTS.light, ...options });
  const page = await context.newPage();
  page.on('pageerror', (error) => problems.push(`error: ${error.message}`));
  page.on('console', (message) => {
    // Such as a response with 401, which a test may expect.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) problems.push(message.text());
  });
  page.on('dialog', (dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on('request', (request) => {
    if (new URL(request.url()).origin !== origin) problems.push(`request: ${request.url()}`);
  });
  return {
    page,
    context,
    problems,
    findViolations: () => findViolations(page),
    screenshot: async (name) => {
      mkdirSync(SCREENSHOTS, { recursive: true });
      await page.screenshot({ path: resolve(SCREENSHOTS, `${name}.png`) });
    },
  };
}

async function findViolations(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  return page.evaluate(async () => {
    const { axe } = globalThis as unknown as { axe: { run(): Promise<AxeResult> } };
    const { violations } = await axe.run();
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
  });
}

interface AxeResult {
  readonly violations: readonly { readonly id: string; readonly nodes: readonly { readonly html: string }[] }[];
}
