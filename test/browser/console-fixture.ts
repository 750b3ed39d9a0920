/** The console of a gate in a real browser: one browser for a file, a gate and a page for each test. */
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import type { TestGate } from '../support/gate.ts';
import { openBrowser } from './chromium.ts';
import { type ConsolePage, openConsole } from './console-page.ts';

/** The parts that the running test has. */
export interface ConsoleFixture {
  readonly gate: TestGate;
  /** The page that `open` opened. */
  readonly view: ConsolePage;
  readonly page: Page;
  /** Opens an address of the console; `prepare`: before the browser requests it. */
  readonly open: (
    path?: string,
    options?: BrowserContextOptions,
    prepare?: (view: ConsolePage) => Promise<void>,
  ) => Promise<void>;
}

/** `start` starts the gate of each test. */
export function useConsole(start: () => Promise<TestGate>): ConsoleFixture {
  let browser: Browser;
  let gate: TestGate | undefined;
  let view: ConsolePage | undefined;
  beforeAll(async () => {
    browser = await openBrowser({ certificates: [] });
  });
  afterAll(() => browser.close());
  beforeEach(async () => {
    gate = await start();
  });
  afterEach(async () => {
    await view?.context.close();
    await gate?.stop();
    view = undefined;
    gate = undefined;
  });
  const find = <T>(part: T | undefined): T => {
    if (part === undefined) throw new Error('this part exists only in a test, and the page only once it is open');
    return part;
  };
  return {
    get gate() {
      return find(gate);
    },
    get view() {
      return find(view);
    },
    get page() {
      return find(view).page;
    },
    async open(path = '/', options = {}, prepare = async () => undefined) {
      view = await openConsole(browser, find(gate).adminPort, options);
      await prepare(view);
      await view.page.goto(path);
    },
  };
}
