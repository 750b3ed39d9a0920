/** The overview of the console in a real browser. */
import { writeFileSync } from 'node:fs';
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { makeDelivery, unixNow } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute } from '../support/gate.ts';
import { openBrowser } from './chromium.ts';
import { type ConsolePage, LAYOUTS, openConsole } from './console-page.ts';

const app = useApp();
let browser: Browser;
let gate: TestGate;
let view: ConsolePage;
beforeAll(async () => {
  browser = await openBrowser({ certificates: [] });
});
afterAll(() => browser.close());
beforeEach(async () => {
  gate = await startGate({ routes: [toRoute(app.port)] });
  for (let i = 0; i < 3; i++) await send(gate.port, makeDelivery());
  await send(gate.port, makeDelivery({ timestamp: unixNow() - 3_600 }));
});
afterEach(async () => {
  await view.context.close();
  await gate.stop();
});

test('the overview shows rates, reasons, times, clock differences and keys of each route', async () => {
  view = await openConsole(browser, gate.adminPort);
  await view.page.goto('/');
  await view.page.getByRole('link', { name: 'Overview' }).click();
  const route = view.page.getByRole('region', { name: 'billing' });
  await route.getByText('3 accepted since the start').waitFor();
  expect(await route.getByRole('table', { name: 'Recently rejected' }).innerText()).toMatch(/timestamp old\s+1/);
  expect(await route.getByRole('table', { name: 'Time' }).innerText()).toMatch(/p50\s+p95\s+p99\s+sidegate.*ms/);
  expect(await route.getByRole('table', { name: 'Difference of clocks' }).innerText()).toMatch(/more\s+1/);
  expect(await route.getByRole('table', { name: 'Keys' }).innerText()).toMatch(/current\s+used .*\s+3/);
  // Two intervals make the first line.
  await send(gate.port, makeDelivery());
  await route.getByRole('img', { name: 'Requests per second of billing' }).waitFor({ timeout: 40_000 });
  await route.getByRole('link', { name: 'billing' }).click();
  await view.page.getByRole('heading', { name: 'Deliveries' }).waitFor();
  expect(view.problems).toEqual([]);
});

for (const [name, layout] of Object.entries(LAYOUTS))
  test(`the overview shows a failed reload, and is accessible in the ${name} layout`, async () => {
    writeFileSync(gate.file, 'routes: [{ naem: <img/src=x> }]\n');
    await gate.gate.reload();
    view = await openConsole(browser, gate.adminPort, layout);
    await view.page.goto('/?view=overview');
    await view.page.getByText('The config before it stays in use').waitFor();
    await view.page.getByRole('img').waitFor({ timeout: 40_000 });
    expect(await view.findViolations()).toEqual([]);
    expect(await view.page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    await view.screenshot(`overview-${name}`);
    expect(view.problems).toEqual([]);
  });
