/** Writes the screenshots of docs/console.md: a gate with some traffic, in a real Chromium. `node scripts/console-screenshots.ts` after a build. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import type { BrowserContextOptions, Page } from 'playwright-core';
import { openBrowser } from '../test/browser/chromium.ts';
import { send } from '../test/support/client.ts';
import { makeDelivery, unixNow } from '../test/support/deliveries.ts';
import { startGate, toRoute } from '../test/support/gate.ts';

const FOLDER = resolve(import.meta.dirname, '..', 'docs', 'images');
const OTHER_SECRET = `whsec_${Buffer.alloc(24, 7).toString('base64')}`;
const TRAFFIC_MS = 400;

let count = 0;
const app = createServer((request, response) => {
  request.resume();
  setTimeout(() => response.writeHead(++count % 19 === 0 ? 503 : 200).end(), 3 + (count % 7) * 4);
}).listen(0, '127.0.0.1');
await new Promise((listening) => app.once('listening', listening));
const { port } = app.address() as AddressInfo;
const gate = await startGate({
  routes: [
    toRoute(port, { webhook: { capture: 'failures' } }),
    toRoute(port, { match: { path: '/hooks/orders' }, route: { name: 'orders' } }),
  ],
});

/** Mostly valid deliveries, and each kind of rejection. */
async function sendSome(): Promise<void> {
  const valid = makeDelivery();
  await send(gate.port, { ...makeDelivery(), path: '/hooks/orders' });
  await send(gate.port, makeDelivery({ secret: OTHER_SECRET }));
  await send(gate.port, valid);
  await send(gate.port, valid);
  await send(gate.port, makeDelivery({ timestamp: unixNow() - 3_600 }));
  for (let i = 0; i < 3; i++) await send(gate.port, { ...makeDelivery(), path: i === 0 ? '/hooks/orders' : '/hooks/billing' });
}

const browser = await openBrowser({ certificates: [] });

async function shoot(
  name: string,
  options: BrowserContextOptions,
  path: string,
  act: (page: Page) => Promise<void>,
): Promise<void> {
  const context = await browser.newContext({ ...options, baseURL: `http://127.0.0.1:${gate.adminPort}` });
  const page = await context.newPage();
  await page.goto(path);
  await act(page);
  await page.screenshot({ path: resolve(FOLDER, `console-${name}.png`) });
  await context.close();
}

try {
  for (let i = 0; i < 4; i++) await sendSome();
  const light = { viewport: { width: 1_280, height: 420 }, colorScheme: 'light' } as const;
  await shoot('deliveries', light, '/', (page) => page.getByRole('status').filter({ hasText: 'Live' }).waitFor());
  const dark = { viewport: { width: 900, height: 620 }, colorScheme: 'dark' } as const;
  await shoot('detail', dark, '/?outcome=rejected', async (page) => {
    await page.getByRole('row', { name: 'bad signature' }).first().getByRole('link').click();
    await page.getByText('Finding').waitFor();
  });
  const timer = setInterval(() => void sendSome(), TRAFFIC_MS);
  await shoot('overview', { ...light, viewport: { width: 1_120, height: 560 } }, '/?view=overview', async (page) => {
    await page.getByRole('slider').first().waitFor({ timeout: 40_000 });
    await new Promise((done) => setTimeout(done, 30_000));
  });
  clearInterval(timer);
  const phone = { viewport: { width: 375, height: 640 }, colorScheme: 'dark' } as const;
  await shoot('phone', phone, '/?outcome=rejected', (page) => page.getByRole('status').filter({ hasText: 'Live' }).waitFor());
} finally {
  await browser.close();
  await gate.stop();
  app.close();
}
