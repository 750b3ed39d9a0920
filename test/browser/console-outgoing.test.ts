/** The sending side, logins and actions of the console in a real browser. */
import { describe, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { PASSWORD, startConsoleGate } from '../support/console.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { toRoute, until } from '../support/gate.ts';
import { postEvent } from '../support/provider/client.ts';
import { toBasic } from '../support/users.ts';
import { answerPrompts } from './chromium.ts';
import { useConsole } from './console-fixture.ts';
import { LAYOUTS } from './console-page.ts';

const USER = ['operator', PASSWORD] as const;
const app = useApp();
const ui = useConsole(() => {
  app.handler = (_request, response) => response.writeHead(503).end();
  const users = { name: 'users', match: { path: '/users' }, upstream: `http://127.0.0.1:${app.port}` };
  const basic = { realm: 'users', users: { file: 'operators' }, requireTls: false };
  const ledger = toRoute(1, { match: { path: '/hooks/ledger' }, route: { name: 'ledger' }, webhook: { ack: 'onAccept' } });
  return startConsoleGate(app.port, { routes: [toRoute(app.port), ledger, { ...users, basic }] }, { events: ['invoice.*'] });
});

/** Opens a view; `isUser`: as a browser that has logged in. */
const open = (name: string, isUser = true, layout = {}): Promise<void> =>
  ui.open(`/?view=${name}`, layout, async ({ context, page }) => {
    if (!isUser) return;
    const prompts = await answerPrompts(context, page);
    prompts.answers.push(USER);
    await page.goto('/login');
    await page.getByText('Logged in as operator').waitFor();
  });
const confirm = async (label: string, of: string): Promise<void> => {
  const name = `${label} ${of}`;
  await ui.page.getByRole('button', { name, exact: true }).click();
  await ui.page.getByRole('dialog', { name }).getByRole('button', { name: label, exact: true }).click();
};
const makeUnrouted = (): Promise<string> =>
  postEvent(ui.gate.providerPort, { id: 'unrouted', type: 'user.added', tenant: 'acme' });
const makeDead = async (): Promise<string> => {
  const id = await postEvent(ui.gate.providerPort);
  await until(async () => {
    const { text } = await send(ui.gate.adminPort, { method: 'GET', path: '/api/v1/outgoing/deliveries?state=dead' });
    return text.includes(id);
  });
  return id;
};

describe('outgoing deliveries', () => {
  test('a queued request leads to its delivery and back; its endpoint has a row, and waits until the app is there', async () => {
    const delivery = { ...makeDelivery(), path: '/hooks/ledger' };
    expect((await send(ui.gate.port, delivery)).status).toBe(202);
    await open('deliveries');
    const request = ui.page.getByRole('row', { name: delivery.id });
    expect(await request.innerText()).toMatch(/queued\s+ledger[^]*queued[^]*202 in/);
    await request.getByRole('link', { name: 'queued' }).click();
    const dialog = ui.page.getByRole('dialog', { name: 'Delivery' });
    await dialog.getByText('waiting').waitFor();
    expect(await ui.view.findViolations()).toEqual([]);
    await dialog.getByRole('link', { name: delivery.id }).click();
    await request.waitFor();
    await expect.poll(() => ui.page.locator('tbody tr').count()).toBe(1);
    await ui.page.goto('/?view=outgoing');
    const endpoint = ui.page.getByRole('row', { name: 'inbox:ledger app of the route ledger' });
    await endpoint.waitFor();
    expect(await endpoint.getByRole('button').allInnerTexts()).toEqual(['Retry all', 'Cancel all']);
    await endpoint.getByText('connect').waitFor();
    // Those that wait are shown without a choice.
    await ui.page.getByRole('row', { name: /^in_.* waiting/ }).waitFor();
    await confirm('Cancel all', 'inbox:ledger');
    await ui.page.getByRole('dialog').getByText('1 delivery is canceled').waitFor();
    expect(ui.view.problems).toEqual([]);
  });

  test('are filtered by type and time', async () => {
    const id = await makeDead();
    await open('outgoing');
    const row = ui.page.getByRole('row', { name: id });
    await row.waitFor();
    await ui.page.getByLabel('Type').fill('invoice.other');
    await ui.page.keyboard.press('Enter');
    await ui.page.getByText('Nothing waits').waitFor();
    await ui.page.goto('/?view=outgoing&type=invoice.paid&from=2020-01-01T00:00');
    await row.waitFor();
    await ui.page.goto('/?view=outgoing&to=2020-01-01T00:00');
    await ui.page.getByText('Nothing waits').waitFor();
  });

  test('a dead letter is shown with its attempts, and retried by a user', async () => {
    const id = await makeDead();
    await open('outgoing');
    const row = ui.page.getByRole('row', { name: id });
    expect(await row.innerText()).toMatch(/acme[^]*503/);
    const endpoint = ui.page.getByRole('row', { name: 'acme http' });
    await endpoint.getByText('1 failure since').waitFor();
    expect(await endpoint.innerText()).toMatch(/failing[^]*last: server error \(503\)/);
    await row.getByRole('button', { name: id, exact: true }).click();
    await ui.page.getByRole('dialog', { name: 'Delivery' }).getByText('(503)').waitFor();
    await ui.page.keyboard.press('Escape');
    app.handler = (_request, response) => response.end();
    await confirm('Retry', id);
    await ui.page.getByRole('dialog').getByText('It is due now').waitFor();
    await ui.page.keyboard.press('Escape');
    await row.waitFor({ state: 'detached' });
    await ui.page.getByRole('combobox', { name: 'State' }).selectOption('delivered');
    await row.waitFor();
    expect(ui.view.problems).toEqual([]);
  });

  test('all deliveries of an endpoint are retried with progress', async () => {
    for (let i = 0; i < 3; i++) await makeDead();
    app.handler = (_request, response) => response.end();
    await open('outgoing');
    await ui.page.getByRole('button', { name: 'Retry all acme', exact: true }).click();
    await ui.page.getByRole('dialog').getByText('3 deliveries are concerned').waitFor();
    await ui.page.getByRole('dialog').getByRole('button', { name: 'Retry all', exact: true }).click();
    await ui.page.getByRole('dialog').getByText('3 deliveries are due now').waitFor();
    await ui.page.keyboard.press('Escape');
    await ui.page.getByText('No delivery is dead').waitFor();
  });

  test('dead letters are listed in pages, and one opens by its address', async () => {
    // Unlike other failures, a rejected event slows nothing down.
    app.handler = (_request, response) => response.writeHead(422).end();
    const first = await makeDead();
    for (let i = 0; i < 50; i++) await postEvent(ui.gate.providerPort);
    await until(async () => {
      const { text } = await send(ui.gate.adminPort, { method: 'GET', path: '/api/v1/outgoing/deliveries?state=dead&limit=250' });
      return (JSON.parse(text) as { data: unknown[] }).data.length === 51;
    });
    await open('outgoing', false);
    await expect.poll(() => ui.page.getByRole('row', { name: first }).count()).toBe(0);
    await ui.page.getByRole('button', { name: 'More deliveries' }).click();
    await ui.page.getByRole('row', { name: first }).waitFor();
    await ui.page.getByRole('button', { name: 'First deliveries' }).click();
    await ui.page.getByRole('row', { name: first }).waitFor({ state: 'detached' });
    await ui.page.goto(`/?view=outgoing&delivery=${first}~acme`);
    await ui.page.getByRole('dialog', { name: 'Delivery' }).getByText('(422)').waitFor();
    expect(ui.view.problems).toEqual([]);
  });

  test('events are listed in pages, filtered, and those that no endpoint selects are found', async () => {
    await makeUnrouted();
    for (let i = 0; i < 50; i++) await postEvent(ui.gate.providerPort, { id: `event${i}` });
    await open('outgoing', false);
    await ui.page.getByRole('link', { name: 'All accepted events' }).click();
    await ui.page.getByRole('row', { name: 'event49' }).waitFor();
    const unrouted = ui.page.getByRole('row', { name: 'unrouted' });
    await expect.poll(() => unrouted.count()).toBe(0);
    await ui.page.getByRole('link', { name: 'Older events' }).click();
    await unrouted.waitFor();
    await ui.page.reload();
    await unrouted.waitFor();
    await ui.page.getByRole('link', { name: 'First events' }).click();
    await unrouted.waitFor({ state: 'detached' });
    await ui.page.getByRole('link', { name: 'Older events' }).click();
    await unrouted.waitFor();
    // Other filters start at the first page.
    await ui.page.getByRole('checkbox', { name: 'Only without an endpoint' }).check();
    await unrouted.waitFor();
    expect(await unrouted.innerText()).toMatch(/user\.added[^]*acme[^]*none/);
    await expect.poll(() => ui.page.getByRole('row').count()).toBe(2);
    await ui.page.getByRole('textbox', { name: 'Type' }).fill('invoice.paid');
    await ui.page.keyboard.press('Enter');
    await ui.page.getByText('No event matches.').waitFor();
    expect(new URL(ui.page.url()).search).toBe('?view=events&type=invoice.paid&unrouted=true');
    await ui.page.getByRole('link', { name: 'Clear filters' }).click();
    await ui.page.getByRole('row', { name: 'event49' }).waitFor();
    await ui.page.getByRole('textbox', { name: 'Type' }).fill('..');
    await ui.page.keyboard.press('Enter');
    await ui.page.getByText('an event type consists of').waitFor();
    expect(await ui.page.getByRole('link', { name: 'Outgoing' }).first().getAttribute('aria-current')).toBe('true');
    expect(ui.view.problems).toEqual([]);
  });

  test('events are listed without JavaScript', async () => {
    await makeUnrouted();
    for (let i = 0; i < 50; i++) await postEvent(ui.gate.providerPort, { id: `event${i}` });
    await ui.open('/?view=outgoing', { javaScriptEnabled: false });
    await ui.page.getByRole('link', { name: 'list of events' }).click();
    await ui.page.getByRole('row', { name: 'event49' }).waitFor();
    await ui.view.screenshot('events-without-javascript');
    await ui.page.getByRole('link', { name: 'Older events' }).click();
    await ui.page.getByRole('row', { name: 'unrouted' }).waitFor();
    await ui.page.getByRole('link', { name: 'Clear' }).click();
    await ui.page.getByRole('checkbox', { name: 'Only without an endpoint' }).check();
    await ui.page.getByRole('button', { name: 'Filter' }).click();
    await ui.page.getByRole('row', { name: 'unrouted' }).waitFor();
    await expect.poll(() => ui.page.getByRole('row').count()).toBe(2);
    expect(ui.view.problems).toEqual([]);
  });

  test('an endpoint is disabled and enabled', async () => {
    await open('outgoing');
    await confirm('Disable', 'acme');
    await ui.page.getByRole('dialog').getByText('It is disabled').waitFor();
    // A keyboard user goes on where the button was.
    expect(await ui.page.evaluate("document.activeElement.closest('dialog') !== null")).toBe(true);
    await ui.page.keyboard.press('Escape');
    const row = ui.page.getByRole('row', { name: 'acme' });
    await row.getByText('disabled').waitFor();
    await confirm('Enable', 'acme');
    await ui.page.getByRole('dialog').getByText('It is enabled').waitFor();
    await ui.page.keyboard.press('Escape');
    await row.getByText('enabled').waitFor();
  });

  test('an endpoint of the API gets a new secret, which is shown once', async () => {
    const headers = { 'Content-Type': 'application/json' };
    const body = JSON.stringify({ id: 'shop', url: `http://127.0.0.1:${app.port}/shop` });
    await send(ui.gate.providerPort, { method: 'POST', path: '/v1/endpoints', headers, body });
    await open('outgoing');
    await expect.poll(() => ui.page.getByRole('button', { name: 'Rotate secret acme' }).count()).toBe(0);
    await confirm('Rotate secret', 'shop');
    await ui.page.getByRole('dialog').getByText('whsec_').waitFor();
  });

  test('nothing happens without a login, and the login leads back', async () => {
    const id = await makeDead();
    await open('outgoing', false);
    const prompts = await answerPrompts(ui.view.context, ui.page);
    const status = await ui.page.evaluate(
      "fetch('/api/v1/outgoing/endpoints/acme/disable', { method: 'POST' }).then((response) => response.status)",
    );
    expect(status).toBe(401);
    const retry = ui.page.getByRole('button', { name: `Retry ${id}` });
    await retry.waitFor();
    expect(await retry.isDisabled()).toBe(true);
    await ui.page.getByText('Log in to act.').waitFor();
    prompts.answers.push(USER);
    await ui.page.getByRole('link', { name: 'Log in' }).click();
    await ui.page.getByText('Logged in as operator').waitFor();
    await ui.page.getByRole('heading', { name: 'Outgoing' }).waitFor();
    expect(prompts.asked).toEqual(['Server basic console', 'Server basic console']);
    expect(await retry.isEnabled()).toBe(true);
  });
});

test('a user logs out: the browser forgets the password, which counts as no failed login', async () => {
  await open('logins', false);
  const prompts = await answerPrompts(ui.view.context, ui.page);
  // More often than logins may fail.
  for (let i = 0; i < 11; i++) {
    prompts.answers.push(USER);
    await ui.page.getByRole('link', { name: 'Log in' }).click();
    await ui.page.getByText('Logged in as operator').waitFor();
    const { length } = prompts.asked;
    await ui.page.getByRole('button', { name: 'Log out' }).click();
    await ui.page.getByRole('link', { name: 'Log in' }).waitFor();
    expect(prompts.asked).toHaveLength(length);
  }
  const status = await ui.page.evaluate(
    "fetch('/api/v1/outgoing/endpoints/acme/disable', { method: 'POST' }).then((response) => response.status)",
  );
  expect(status).toBe(401);
  expect(ui.view.problems).toEqual([]);
});

test('failed logins are listed, and a ban is lifted', async () => {
  const logIn = (user: string): Promise<{ status: number }> =>
    send(ui.gate.port, { method: 'GET', path: '/users', headers: toBasic(user, PASSWORD) });
  for (let i = 0; i < 12; i++) await logIn(`nobody${i}`);
  expect((await logIn('operator')).status).toBe(429);
  await open('logins');
  const row = ui.page.getByRole('row', { name: '127.0.0.1' });
  expect(await row.innerText()).toMatch(/users[^]*s left/);
  await confirm('Release', '127.0.0.1');
  await ui.page.getByRole('dialog').getByText('It can log in again').waitFor();
  await ui.page.keyboard.press('Escape');
  await row.getByText('not banned').waitFor();
  expect((await logIn('operator')).status).toBe(503);
  expect(ui.view.problems).toEqual([]);
});

for (const [name, layout] of Object.entries(LAYOUTS))
  test(`outgoing deliveries, dialogs and logins are accessible in the ${name} layout`, async () => {
    await makeDead();
    await send(ui.gate.port, { method: 'GET', path: '/users', headers: toBasic('operator', 'wrong') });
    await open('outgoing', true, layout);
    await ui.page.getByRole('button', { name: 'Retry all acme' }).waitFor();
    expect(await ui.view.findViolations()).toEqual([]);
    await ui.view.screenshot(`outgoing-${name}`);
    expect(await ui.page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    await ui.page.getByRole('button', { name: 'Retry all acme' }).click();
    await ui.page.getByRole('dialog').waitFor();
    expect(await ui.view.findViolations()).toEqual([]);
    await ui.view.screenshot(`action-${name}`);
    await makeUnrouted();
    await ui.page.goto('/?view=events');
    await ui.page.getByRole('row', { name: 'unrouted' }).waitFor();
    expect(await ui.view.findViolations()).toEqual([]);
    await ui.view.screenshot(`events-${name}`);
    expect(await ui.page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    await ui.page.goto('/?view=logins');
    await ui.page.getByRole('row', { name: '127.0.0.1' }).waitFor();
    expect(await ui.view.findViolations()).toEqual([]);
    await ui.view.screenshot(`logins-${name}`);
    expect(ui.view.problems).toEqual([]);
  });
