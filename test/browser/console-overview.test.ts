/** The overview of the console in a real browser. */
import { writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { send } from '../support/client.ts';
import { makeDelivery, unixNow } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { startGate, toRoute, until } from '../support/gate.ts';
import { useConsole } from './console-fixture.ts';
import { LAYOUTS } from './console-page.ts';

const app = useApp();
/** Intervals pass fifty times as fast, so that the history of rates has some. */
const hastyClock: Clock = { ...systemClock, every: (interval, action) => systemClock.every(interval / 50, action) };
const ui = useConsole(async () => {
  const gate = await startGate({ routes: [toRoute(app.port)] }, hastyClock);
  for (let i = 0; i < 3; i++) await send(gate.port, makeDelivery());
  await send(gate.port, makeDelivery({ timestamp: unixNow() - 3_600 }));
  return gate;
});

test('the overview shows rates, reasons, times, clock differences and keys of each route', async () => {
  await ui.open();
  await ui.page.getByRole('link', { name: 'Overview' }).click();
  const route = ui.page.getByRole('region', { name: 'billing' });
  await route.getByText('3 passed the checks since the start').waitFor();
  expect(await route.getByRole('table', { name: 'Recently rejected' }).innerText()).toMatch(/timestamp old\s+1/);
  expect(await route.getByRole('table', { name: 'Time' }).innerText()).toMatch(/p50\s+p95\s+p99\s+sidegate.*ms/);
  expect(await route.getByRole('table', { name: 'Difference of clocks' }).innerText()).toMatch(/more\s+1/);
  expect(await route.getByRole('table', { name: 'Keys' }).innerText()).toMatch(/current\s+used .*\s+3/);
  // The history began before the page was opened.
  await route.getByRole('slider', { name: 'Requests per second of billing' }).waitFor({ timeout: 10_000 });
  // Its figures can be read without a mouse.
  const newest = await route.locator('figcaption').innerText();
  await route.getByRole('slider').focus();
  await ui.page.keyboard.press('Home');
  await route.locator('.cursor').waitFor({ state: 'attached' });
  expect(await route.locator('figcaption').innerText()).not.toBe(newest);
  await ui.page.getByText('The last minute, worst route first').waitFor();
  expect(await ui.page.getByRole('row', { name: 'All routes' }).innerText()).toMatch(/25 % 1/);
  await route.getByRole('link', { name: 'billing' }).click();
  await ui.page.getByRole('heading', { name: 'Deliveries' }).waitFor();
  expect(ui.view.problems).toEqual([]);
});

test('eight routes fit on one screen, the worst first; failures are a series, and lead to the requests', async () => {
  const routes = [...'abcdefgh'].map((name) =>
    toRoute(name === 'g' ? 1 : app.port, { match: { path: `/hooks/${name}` }, route: { name } }),
  );
  ui.gate.writeConfig({ routes });
  await ui.gate.gate.reload();
  await ui.open('/?view=overview');
  const rows = ui.page.locator('.routes tbody tr');
  await until(async () => {
    // The history of a new route begins after the reload.
    for (const name of 'acg') await send(ui.gate.port, { ...makeDelivery(), path: `/hooks/${name}` });
    await send(ui.gate.port, { ...makeDelivery({ timestamp: unixNow() - 3_600 }), path: '/hooks/c' });
    const [first = '', second = ''] = await rows.allInnerTexts();
    return /^g\b[^]*100 %/.test(first) && /^c\b[^]* %/.test(second);
  });
  await expect.poll(() => rows.count()).toBe(8);
  const last = await ui.page.getByRole('row', { name: 'All routes' }).boundingBox();
  expect((last?.y ?? Number.POSITIVE_INFINITY) + (last?.height ?? 0)).toBeLessThan(LAYOUTS.light.viewport.height);
  // The worst one is open.
  await ui.page.getByRole('region', { name: 'g' }).locator('polyline.failed').waitFor({ state: 'attached', timeout: 10_000 });
  await ui.page.getByRole('button', { name: 'c', exact: true }).click();
  await ui.page.getByRole('region', { name: 'c' }).waitFor();
  await rows.filter({ hasText: '100 %' }).getByRole('link').click();
  await ui.page.getByText('no connection').first().waitFor();
  expect(new URL(ui.page.url()).search).toBe('?route=g&outcome=failed');
  expect(ui.view.problems).toEqual([]);
});

for (const [name, layout] of Object.entries(LAYOUTS))
  test(`the overview shows a failed reload, and is accessible in the ${name} layout`, async () => {
    writeFileSync(ui.gate.file, 'routes: [{ naem: <img/src=x> }]\n');
    await ui.gate.gate.reload();
    await ui.open('/?view=overview', layout);
    await ui.page.getByText('The config before it stays in use').waitFor();
    await ui.page.getByRole('slider').waitFor({ timeout: 10_000 });
    expect(await ui.view.findViolations()).toEqual([]);
    expect(await ui.page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    await ui.view.screenshot(`overview-${name}`);
    expect(ui.view.problems).toEqual([]);
  });
