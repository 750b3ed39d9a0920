/** The list of deliveries in a real browser, against a gate with traffic. */
import { createHmac } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { makeDelivery, SECRET, unixNow } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { startGate, toRoute, until } from '../support/gate.ts';
import { useConsole } from './console-fixture.ts';
import { LAYOUTS } from './console-page.ts';

const KEYS = [{ name: 'key_1', secret: { file: 'secret' } }];
const OTHER_SECRET = `whsec_${Buffer.alloc(24, 7).toString('base64')}`;
const app = useApp();
const ui = useConsole(() =>
  startGate({
    routes: [
      toRoute(app.port, {
        webhook: { keys: KEYS, capture: 'failures', storeBody: { redact: ['$.card', '$.customers[*].email'] } },
      }),
      toRoute(app.port, { match: { path: '/hooks/orders' }, route: { name: 'orders' } }),
      toRoute(1, { match: { path: '/hooks/away' }, route: { name: 'away' } }),
      toRoute(app.port, { match: { path: '/hooks/trial' }, route: { name: 'trial', mode: 'observe' } }),
      toRoute(app.port, { match: { path: '/hooks/code' }, route: { name: 'code' }, webhook: { scheme: 'github' } }),
    ],
  }),
);

const sendValid = (): Promise<unknown> => send(ui.gate.port, makeDelivery());
const sendForged = (): Promise<unknown> => send(ui.gate.port, makeDelivery({ secret: OTHER_SECRET }));
const sendOld = (): Promise<unknown> => send(ui.gate.port, makeDelivery({ timestamp: unixNow() - 3_600 }));
const rows = () => ui.page.locator('tbody tr');
const waitForRows = async (count: number): Promise<void> => {
  await until(async () => (await rows().count()) === count);
};
const isLive = () => ui.page.getByRole('status').filter({ hasText: 'Live' }).waitFor();

describe('the list of deliveries', () => {
  test('says what to do while it is empty, then shows each delivery as it arrives, and where and why it stopped', async () => {
    await ui.open();
    await ui.page.getByText('No request has arrived yet').waitFor();
    await isLive();
    await sendValid();
    await sendForged();
    await waitForRows(2);
    expect(await rows().nth(0).innerText()).toMatch(/rejected\s+billing\s+[^]*signature[^]*bad signature/);
    expect(await rows().nth(0).locator('.stopped').innerText()).toMatch(/^signature[^]*bad signature$/);
    expect(await rows().nth(1).innerText()).toMatch(/forwarded\s+billing[^]*signature[^]*key_1/);
    expect(ui.view.problems).toEqual([]);
  });

  test('is filtered by outcome, route, ID and time, also for deliveries that arrive later, and by the address', async () => {
    const known = makeDelivery();
    await send(ui.gate.port, known);
    await sendForged();
    const typed = makeDelivery();
    await send(ui.gate.port, { ...typed, headers: { ...typed.headers, 'X-GitHub-Event': 'push' }, path: '/hooks/orders' });
    await ui.open();
    await waitForRows(3);
    await ui.page.getByLabel('rejected').check();
    await waitForRows(1);
    await isLive();
    await sendValid();
    await sendOld();
    await waitForRows(2);
    expect(await rows().nth(0).innerText()).toContain('3600 s old');
    await ui.page.getByRole('link', { name: 'Clear filters' }).click();
    // The link loads the page again; until then, the old one would take the next filter.
    await ui.page.waitForURL('/');
    await ui.page.getByLabel('Route').selectOption('orders');
    await waitForRows(1);
    await ui.page.goto('/');
    await ui.page.getByLabel('ID of request or event').fill(known.id);
    await ui.page.keyboard.press('Enter');
    await waitForRows(1);
    expect(new URL(ui.page.url()).searchParams.get('id')).toBe(known.id);
    await ui.page.reload();
    await waitForRows(1);
    for (const [name, value, count] of [
      ['reason', 'timestamp_old', 1],
      ['status', '2xx', 3],
      ['client', '127.0.0.9', 0],
      ['type', 'push', 1],
      ['last', '15m', 5],
    ] as const) {
      await ui.page.goto(`/?${name}=${value}`);
      await isLive();
      await waitForRows(count);
      expect(await ui.page.locator(`[name=${name}]`).inputValue()).toBe(value);
    }
    await ui.page.goto('/?to=2020-01-01T00:00');
    await ui.page.getByText('No recent request matches these filters').waitFor();
    await ui.page.goBack();
    await waitForRows(5);
  });

  test('opens a delivery: why it was rejected, its headers without secrets, and commands to copy', async () => {
    await sendForged();
    await ui.open();
    await ui.view.context.grantPermissions(['clipboard-read', 'clipboard-write']);
    await isLive();
    await rows().nth(0).getByRole('link').press('Enter');
    const dialog = ui.page.getByRole('dialog', { name: 'Request' });
    await dialog.getByText('Finding').waitFor();
    const text = await dialog.innerText();
    // Lines break only between words.
    expect(await dialog.locator('.word').allInnerTexts()).toContain('--config');
    expect(text).toMatch(/webhook-signature\s+hidden/);
    expect(text).toMatch(/signature stopped: bad signature/);
    expect(text).toContain('sidegate explain --config gate.yaml');
    await dialog.getByRole('button', { name: 'Copy' }).first().click();
    await dialog.getByRole('button', { name: 'Copied' }).waitFor();
    expect(await ui.page.evaluate('navigator.clipboard.readText()')).toMatch(
      /^sidegate send --config gate.yaml --route 'billing' /,
    );
    await ui.page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    await until(() => ui.page.evaluate<boolean>('document.activeElement.closest("tr") !== null'));
    expect(ui.view.problems).toEqual([]);
  });

  test('does not open another path of the API that a link names as a request', async () => {
    for (const id of ['stream', '../logins', '..%2Flogins']) {
      await ui.open(`/?request=${id}`);
      await ui.page.getByRole('dialog', { name: 'Request' }).getByText('no valid ID of a request').waitFor();
      await ui.view.context.close();
    }
  });

  test('opens a delivery with its body, without redacted values, or says why there is none', async () => {
    await send(ui.gate.port, makeDelivery({ body: '{"card":"4242","n":12345678901234567890,"customers":[{"email":"a@b"}]}' }));
    await sendForged();
    await ui.open();
    await rows().nth(1).getByRole('link').click();
    const dialog = ui.page.getByRole('dialog', { name: 'Request' });
    await dialog.getByText('2 values are redacted.').waitFor();
    expect(await dialog.getByRole('region', { name: 'Body' }).locator('code').innerText()).toBe(
      '{"card":"[redacted]","n":12345678901234567890,"customers":[{"email":"[redacted]"}]}',
    );
    expect(await ui.view.findViolations()).toEqual([]);
    await dialog.getByRole('region', { name: 'Body' }).scrollIntoViewIfNeeded();
    await ui.view.screenshot('body');
    await ui.page.keyboard.press('Escape');
    await rows().nth(0).getByRole('link').click();
    await dialog.getByText('only bodies of verified requests are stored').waitFor();
    expect(ui.view.problems).toEqual([]);
  });

  test('tells apart what the app did, that it was not there, and what only observe mode let through', async () => {
    app.handler = (_request, response) => response.writeHead(500).end();
    await sendValid();
    await send(ui.gate.port, { ...makeDelivery(), path: '/hooks/away' });
    app.handler = (_request, response) => response.writeHead(204).end();
    await send(ui.gate.port, { ...makeDelivery({ secret: OTHER_SECRET }), path: '/hooks/trial' });
    await ui.open('/?outcome=observed');
    await waitForRows(1);
    expect(await rows().nth(0).innerText()).toMatch(/observed\s+trial[^]*signature[^]*bad signature[^]*app[^]*204/);
    await ui.page.goto('/?outcome=failed');
    await waitForRows(2);
    expect(await rows().nth(0).locator('.stopped').innerText()).toMatch(/^app[^]*no connection$/);
    expect(await rows().nth(1).locator('.stopped').innerText()).toMatch(/^app[^]*500 in \d+ ms$/);
    expect(ui.view.problems).toEqual([]);
  });

  test('shows no stage that the sender does not have', async () => {
    const body = '{"ref":"main"}';
    const signature = `sha256=${createHmac('sha256', SECRET).update(body).digest('hex')}`;
    const headers = { 'Content-Type': 'application/json', 'X-GitHub-Delivery': 'a', 'X-Hub-Signature-256': signature };
    await send(ui.gate.port, { path: '/hooks/code', headers, body });
    await send(ui.gate.port, { path: '/hooks/code', headers: { 'Content-Type': 'application/json' }, body });
    await ui.open('/?route=code');
    await waitForRows(2);
    for (const index of [0, 1]) expect(await rows().nth(index).innerText()).not.toContain('timestamp');
  });

  test('shows local times if the user asks for them, and remembers it', async () => {
    await sendValid();
    await ui.open('/', { timezoneId: 'Asia/Kolkata' });
    await waitForRows(1);
    const utc = await rows().getByRole('link').first().innerText();
    await ui.page.getByRole('button', { name: 'Local time' }).click();
    await ui.page.getByRole('columnheader', { name: 'Time (local)' }).waitFor();
    await waitForRows(1);
    const local = await rows().getByRole('link').first().innerText();
    const toMinutes = (text: string): number => {
      const [, hours, minutes] = /(\d\d):(\d\d):/.exec(text) ?? [];
      return 60 * Number(hours) + Number(minutes);
    };
    expect((toMinutes(local) - toMinutes(utc) + 1_440) % 1_440).toBe(330);
    await ui.page.reload();
    await ui.page.getByRole('columnheader', { name: 'Time (local)' }).waitFor();
    expect(await ui.view.findViolations()).toEqual([]);
  });

  test('hides the filters on a phone until they are wanted', async () => {
    await ui.open('/?status=4xx', LAYOUTS.phone);
    await isLive();
    expect(await ui.page.getByLabel('Route').isVisible()).toBe(false);
    await ui.page.getByText('Filters (1)').click();
    await ui.page.getByLabel('Route').selectOption('orders');
    await ui.page.getByText('Filters (2)').waitFor();
    expect(await ui.page.getByLabel('Route').isVisible()).toBe(true);
  });

  test('pauses, and continues with what arrived meanwhile', async () => {
    await sendValid();
    await ui.open();
    await isLive();
    await ui.page.getByRole('button', { name: 'Pause' }).click();
    await sendValid();
    await ui.page.getByRole('button', { name: 'Resume (1 new)' }).waitFor();
    await expect.poll(() => rows().count()).toBe(1);
    await ui.page.getByRole('button', { name: 'Resume' }).click();
    await waitForRows(2);
  });

  test('loads older deliveries', async () => {
    for (let i = 0; i < 70; i++) await sendOld();
    await ui.open();
    await waitForRows(50);
    await ui.page.getByRole('link', { name: 'Load older requests' }).click();
    await waitForRows(70);
    await expect.poll(() => ui.page.getByRole('link', { name: 'Load older requests' }).count()).toBe(0);
  });

  test('says that sidegate does not respond, and what to do', async () => {
    await sendValid();
    await ui.open();
    await isLive();
    await ui.gate.stop();
    await ui.page.getByRole('status').filter({ hasText: 'Reconnecting' }).waitFor();
    await ui.page.getByLabel('rejected').check();
    await ui.page.getByRole('alert').filter({ hasText: 'Check that it runs' }).waitFor();
    expect(await ui.view.findViolations()).toEqual([]);
  });
});

/** Those that a user sees: others need JavaScript. */
const listButtons = () => ui.page.getByRole('button').allInnerTexts();

test('the console works without JavaScript: list, filters, detail and pages', async () => {
  await sendForged();
  for (let i = 0; i < 60; i++) await sendValid();
  await ui.open('/', { javaScriptEnabled: false });
  await expect.poll(() => rows().count()).toBe(50);
  await ui.view.screenshot('deliveries-without-javascript');
  expect(await ui.page.locator('main').innerText()).toContain('does not update itself');
  expect(await listButtons()).toEqual(['Filter']);
  await ui.page.getByRole('link', { name: 'Load older requests' }).click();
  await waitForRows(11);
  await ui.page.getByRole('link', { name: 'sidegate' }).click();
  await ui.page.getByLabel('rejected').check();
  await ui.page.getByLabel('failed').check();
  await ui.page.getByRole('button', { name: 'Filter' }).click();
  await waitForRows(1);
  expect(await ui.page.getByLabel('failed').isChecked()).toBe(true);
  expect(await rows().innerText()).toMatch(/rejected\s+billing[^]*bad signature/);
  await ui.page.goto('/?outcome=forwarded');
  expect(await rows().nth(0).innerText()).toContain('key_1');
  await ui.page.goBack();
  await rows().getByRole('link').click();
  expect(await ui.page.locator('main').innerText()).toMatch(/stopped: bad signature[^]*Arrived[^]*Headers/);
  expect(await listButtons()).toEqual([]);
  await ui.view.screenshot('detail-without-javascript');
  await ui.page.getByRole('link', { name: 'All requests' }).click();
  await waitForRows(1);
  await ui.page.setViewportSize(LAYOUTS.phone.viewport);
  await ui.view.screenshot('without-javascript-phone');
  expect(await ui.page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
  await ui.page.goto('/?outcome=nothing');
  expect(await ui.page.locator('main').innerText()).toContain('A filter cannot be used: outcome');
  expect(ui.view.problems).toEqual([]);
});

const HOSTILE = `"'><img/src=x/onerror=alert(1)><script>alert(2)</script>`;
for (const javaScriptEnabled of [true, false])
  test(`hostile IDs, paths and headers stay texts ${javaScriptEnabled ? 'with' : 'without'} JavaScript`, async () => {
    const delivery = makeDelivery({ id: HOSTILE, body: JSON.stringify({ [HOSTILE]: `</pre>${HOSTILE}` }) });
    await send(ui.gate.port, { ...delivery, headers: { ...delivery.headers, 'User-Agent': HOSTILE } });
    await send(ui.gate.port, { method: 'GET', path: `/%22%3E<img/src=x/onerror=alert(3)>` });
    await ui.open('/', { javaScriptEnabled });
    await rows().nth(1).getByText(HOSTILE).waitFor();
    await rows().nth(0).getByText('<img/src=x/onerror=alert(3)>').waitFor();
    await rows().nth(1).getByRole('link').click();
    await ui.page.locator('dd').getByText(HOSTILE).first().waitFor();
    await ui.page.locator('pre').getByText('</pre>').waitFor();
    await ui.page.goto(`/?id=${encodeURIComponent(HOSTILE)}&route=${encodeURIComponent(HOSTILE)}`);
    await expect.poll(() => ui.page.locator('img, main script').count()).toBe(0);
    expect(ui.view.problems).toEqual([]);
  });

for (const [name, layout] of Object.entries(LAYOUTS))
  test(`the ${name} layout is accessible`, async () => {
    await sendValid();
    await sendForged();
    await sendOld();
    const delivery = makeDelivery();
    await send(ui.gate.port, delivery);
    await send(ui.gate.port, delivery);
    app.handler = (_request, response) => response.writeHead(503).end();
    await sendValid();
    await send(ui.gate.port, { method: 'GET', path: '/elsewhere' });
    await ui.open('/', layout);
    await waitForRows(7);
    await isLive();
    expect(await ui.view.findViolations()).toEqual([]);
    await ui.view.screenshot(`deliveries-${name}`);
    expect(await ui.page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    await rows().filter({ hasText: 'bad signature' }).getByRole('link').click();
    await ui.page.getByText('Finding').waitFor();
    expect(await ui.view.findViolations()).toEqual([]);
    await ui.view.screenshot(`detail-${name}`);
    expect(ui.view.problems).toEqual([]);
  });
