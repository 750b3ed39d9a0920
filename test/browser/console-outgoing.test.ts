/** The sending side, logins and actions of the console in a real browser. */
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { PASSWORD, startConsoleGate } from '../support/console.ts';
import { useApp } from '../support/fixtures.ts';
import { type TestGate, toRoute, until } from '../support/gate.ts';
import { postEvent } from '../support/provider/client.ts';
import { toBasic } from '../support/users.ts';
import { answerPrompts, openBrowser } from './chromium.ts';
import { type ConsolePage, LAYOUTS, openConsole } from './console-page.ts';

const USER = ['operator', PASSWORD] as const;
const app = useApp();
let browser: Browser;
let gate: TestGate;
let view: ConsolePage;
beforeAll(async () => {
  browser = await openBrowser({ certificates: [] });
});
afterAll(() => browser.close());
beforeEach(async () => {
  app.handler = (_request, response) => response.writeHead(503).end();
  const users = { name: 'users', match: { path: '/users' }, upstream: `http://127.0.0.1:${app.port}` };
  const basic = { realm: 'users', users: { file: 'operators' }, requireTls: false };
  gate = await startConsoleGate(app.port, { routes: [toRoute(app.port), { ...users, basic }] });
});
afterEach(async () => {
  await view.context.close();
  await gate.stop();
});

/** Opens a view; `isUser`: as a browser that has logged in. */
const open = async (name: string, isUser = true, layout = {}): Promise<void> => {
  view = await openConsole(browser, gate.adminPort, layout);
  if (isUser) {
    const prompts = await answerPrompts(view.context, view.page);
    prompts.answers.push(USER);
    await view.page.goto('/login');
    await view.page.getByText('Logged in as operator').waitFor();
  }
  await view.page.goto(`/?view=${name}`);
};
const confirm = async (label: string, of: string): Promise<void> => {
  const name = `${label} ${of}`;
  await view.page.getByRole('button', { name, exact: true }).click();
  await view.page.getByRole('dialog', { name }).getByRole('button', { name: label, exact: true }).click();
};
const makeDead = async (): Promise<string> => {
  const id = await postEvent(gate.providerPort);
  await until(async () => {
    const { text } = await send(gate.adminPort, { method: 'GET', path: '/api/v1/outgoing/deliveries?state=dead' });
    return text.includes(id);
  });
  return id;
};

describe('outgoing deliveries', () => {
  test('a dead letter is shown with its attempts, and replayed by a user', async () => {
    const id = await makeDead();
    await open('outgoing');
    const row = view.page.getByRole('row', { name: id });
    expect(await row.innerText()).toMatch(/acme[^]*503/);
    await row.getByRole('button', { name: id, exact: true }).click();
    await view.page.getByRole('dialog', { name: 'Delivery' }).getByText('(503)').waitFor();
    await view.page.keyboard.press('Escape');
    app.handler = (_request, response) => response.end();
    await confirm('Replay', id);
    await view.page.getByRole('dialog').getByText('It is due again').waitFor();
    await view.page.keyboard.press('Escape');
    await row.waitFor({ state: 'detached' });
    await view.page.getByRole('combobox', { name: 'State' }).selectOption('delivered');
    await row.waitFor();
    expect(view.problems).toEqual([]);
  });

  test('all deliveries of an endpoint are replayed with progress', async () => {
    for (let i = 0; i < 3; i++) await makeDead();
    app.handler = (_request, response) => response.end();
    await open('outgoing');
    await confirm('Replay all', 'acme');
    await view.page.getByRole('dialog').getByText('3 deliveries are due again').waitFor();
    await view.page.keyboard.press('Escape');
    await view.page.getByText('No delivery is dead').waitFor();
  });

  test('an endpoint is disabled and enabled', async () => {
    await open('outgoing');
    await confirm('Disable', 'acme');
    await view.page.getByRole('dialog').getByText('It is disabled').waitFor();
    await view.page.keyboard.press('Escape');
    const row = view.page.getByRole('row', { name: 'acme' });
    await row.getByText('disabled').waitFor();
    await confirm('Enable', 'acme');
    await view.page.getByRole('dialog').getByText('It is enabled').waitFor();
    await view.page.keyboard.press('Escape');
    await row.getByText('enabled').waitFor();
  });

  test('an endpoint of the API gets a new secret, which is shown once', async () => {
    const headers = { 'Content-Type': 'application/json' };
    const body = JSON.stringify({ id: 'shop', url: `http://127.0.0.1:${app.port}/shop` });
    await send(gate.providerPort, { method: 'POST', path: '/v1/endpoints', headers, body });
    await open('outgoing');
    expect(await view.page.getByRole('button', { name: 'Rotate secret acme' }).count()).toBe(0);
    await confirm('Rotate secret', 'shop');
    await view.page.getByRole('dialog').getByText('whsec_').waitFor();
  });

  test('nothing happens without a login, and the login leads back', async () => {
    const id = await makeDead();
    await open('outgoing', false);
    const prompts = await answerPrompts(view.context, view.page);
    const status = await view.page.evaluate(
      "fetch('/api/v1/outgoing/endpoints/acme/disable', { method: 'POST' }).then((response) => response.status)",
    );
    expect(status).toBe(401);
    await view.page.getByRole('button', { name: `Replay ${id}` }).click();
    const dialog = view.page.getByRole('dialog');
    await dialog.getByText('Only users can act').waitFor();
    expect(await dialog.getByRole('button', { name: 'Replay' }).count()).toBe(0);
    prompts.answers.push(USER);
    await dialog.getByRole('link', { name: 'Log in' }).click();
    await view.page.getByText('Logged in as operator').waitFor();
    await view.page.getByRole('heading', { name: 'Outgoing' }).waitFor();
    expect(prompts.asked).toEqual(['Server basic console', 'Server basic console']);
  });
});

test('failed logins are listed, and a ban is lifted', async () => {
  const logIn = (user: string): Promise<{ status: number }> =>
    send(gate.port, { method: 'GET', path: '/users', headers: toBasic(user, PASSWORD) });
  for (let i = 0; i < 12; i++) await logIn(`nobody${i}`);
  expect((await logIn('operator')).status).toBe(429);
  await open('logins');
  const row = view.page.getByRole('row', { name: '127.0.0.1' });
  expect(await row.innerText()).toMatch(/users[^]*s left/);
  await confirm('Release', '127.0.0.1');
  await view.page.getByRole('dialog').getByText('It can log in again').waitFor();
  await view.page.keyboard.press('Escape');
  await row.getByText('not banned').waitFor();
  expect((await logIn('operator')).status).toBe(503);
  expect(view.problems).toEqual([]);
});

for (const [name, layout] of Object.entries(LAYOUTS))
  test(`outgoing deliveries, dialogs and logins are accessible in the ${name} layout`, async () => {
    await makeDead();
    await send(gate.port, { method: 'GET', path: '/users', headers: toBasic('operator', 'wrong') });
    await open('outgoing', true, layout);
    await view.page.getByRole('button', { name: 'Replay all acme' }).waitFor();
    expect(await view.findViolations()).toEqual([]);
    await view.screenshot(`outgoing-${name}`);
    expect(await view.page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    await view.page.getByRole('button', { name: 'Replay all acme' }).click();
    await view.page.getByRole('dialog').waitFor();
    expect(await view.findViolations()).toEqual([]);
    await view.screenshot(`action-${name}`);
    await view.page.goto('/?view=logins');
    await view.page.getByRole('row', { name: '127.0.0.1' }).waitFor();
    expect(await view.findViolations()).toEqual([]);
    await view.screenshot(`logins-${name}`);
    expect(view.problems).toEqual([]);
  });
