/** The list of deliveries in a real browser, with a second replica and a real Redis. */
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { startRedis } from '../support/redis.ts';
import { openBrowser } from './chromium.ts';
import { openConsole } from './console-page.ts';

const app = useApp();
let browser: Browser;
beforeAll(async () => {
  browser = await openBrowser({ certificates: [] });
});
afterAll(() => browser.close());

async function start(redisPort: number): Promise<TestGate> {
  const redis = { url: `redis://127.0.0.1:${redisPort}`, commandTimeout: '500ms' };
  const storeBody = { redact: [] };
  const gate = await startGate({ store: { redis }, routes: [toRoute(app.port, { webhook: { storeBody } })] });
  onTestFinished(() => void gate.stop());
  await until(async () => (await gate.metric('sidegate_dedup_up')) === 1);
  return gate;
}

test('requests of another replica appear by themselves; an outage of the store is shown, and the list continues after it', async () => {
  const redis = await startRedis();
  onTestFinished(() => void redis.stop());
  const [first, second] = [await start(redis.port), await start(redis.port)];
  const view = await openConsole(browser, first.adminPort);
  onTestFinished(() => view.context.close());
  const rows = view.page.locator('tbody tr');
  await view.page.goto('/');
  await view.page.getByRole('status').filter({ hasText: 'Live' }).waitFor();
  await send(second.port, makeDelivery());
  await until(async () => (await rows.count()) === 1);
  await rows.nth(0).getByRole('link').click();
  await view.page.getByText('open the console of that replica').waitFor();
  await view.page.keyboard.press('Escape');
  await view.page.getByRole('link', { name: 'Overview' }).click();
  await view.page.getByText('of 2 replicas, worst route first').waitFor();
  await view.page.goBack();
  await redis.kill();
  const notice = view.page.getByRole('alert').filter({ hasText: 'Requests of other replicas are missing' });
  await notice.waitFor();
  await send(first.port, { ...makeDelivery(), path: '/own' });
  await until(async () => (await rows.count()) === 2);
  expect(await view.findViolations()).toEqual([]);
  await view.screenshot('replicas-missing');
  await redis.restart();
  await notice.waitFor({ state: 'detached' });
  await until(async () => (await second.metric('sidegate_dedup_up')) === 1);
  await send(second.port, { ...makeDelivery(), path: '/other' });
  await until(async () => (await rows.count()) === 3);
  expect(view.problems).toEqual([]);
}, 90_000);
