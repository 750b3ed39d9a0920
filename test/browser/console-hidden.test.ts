/** The stream of a tab that is hidden, in a real browser. */
import { describe, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { startGate, toRoute, until } from '../support/gate.ts';
import { useConsole } from './console-fixture.ts';

const app = useApp();
const ui = useConsole(() => startGate({ routes: [toRoute(app.port)] }));

const STREAM = '/api/v1/deliveries/stream';
const rows = () => ui.page.locator('tbody tr');
/** The events in the list, newest first. */
const listEvents = (): Promise<string[]> => ui.page.locator('tbody tr td:last-child').allInnerTexts();
const isLive = () => ui.page.getByRole('status').filter({ hasText: 'Live' }).waitFor();
/** Newest first. */
const deliver = async (count: number): Promise<string[]> => {
  const ids: string[] = [];
  for (let i = 0; i < count; i++) {
    const delivery = makeDelivery();
    await send(ui.gate.port, delivery);
    ids.unshift(delivery.id);
  }
  return ids;
};
/** A browser without a window shows all of its tabs. */
const setHidden = (isHidden: boolean): Promise<unknown> =>
  ui.page.evaluate(`
    Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => '${isHidden ? 'hidden' : 'visible'}' });
    document.dispatchEvent(new Event('visibilitychange'));
  `);

/** Opens the list; gives what its streams did. */
async function open(): Promise<string[]> {
  const streams: string[] = [];
  await ui.open('/', {}, async ({ page }) => {
    await page.clock.install();
    page.on('request', (request) => void (request.url().includes(STREAM) && streams.push('opened')));
    page.on('requestfailed', (request) => void (request.url().includes(STREAM) && streams.push('closed')));
  });
  await isLive();
  return streams;
}

describe('a hidden tab', () => {
  test('closes its stream after 30 seconds, and continues with all that it missed, each once', async () => {
    const before = await deliver(2);
    const streams = await open();
    await until(async () => (await rows().count()) === 2);
    await setHidden(true);
    await ui.page.clock.fastForward(31_000);
    await until(() => streams.length === 2);
    const missed = await deliver(3);
    await setHidden(false);
    await isLive();
    const later = await deliver(1);
    await until(async () => (await rows().count()) === 6);
    expect(await listEvents()).toEqual([...later, ...missed, ...before]);
    expect(streams).toEqual(['opened', 'closed', 'opened']);
    expect(ui.view.problems).toEqual([]);
  });

  test('keeps its stream if it is shown again sooner', async () => {
    const streams = await open();
    for (let i = 0; i < 3; i++) {
      await setHidden(true);
      await ui.page.clock.fastForward(20_000);
      await setHidden(false);
      await ui.page.clock.fastForward(20_000);
    }
    await deliver(1);
    await until(async () => (await rows().count()) === 1);
    expect(streams).toEqual(['opened']);
  });

  test('that missed more than a page has no gap: older requests are loaded in order', async () => {
    const before = await deliver(10);
    const streams = await open();
    await until(async () => (await rows().count()) === 10);
    await setHidden(true);
    await ui.page.clock.fastForward(31_000);
    await until(() => streams.length === 2);
    const missed = await deliver(70);
    await setHidden(false);
    await isLive();
    await until(async () => (await listEvents())[0] === missed[0]);
    const shown = await listEvents();
    expect(shown).toEqual([...missed, ...before].slice(0, shown.length));
    await ui.page.getByRole('link', { name: 'Load older requests' }).click();
    await until(async () => (await rows().count()) === 80);
    expect(await listEvents()).toEqual([...missed, ...before]);
  });

  test('stays paused, and continues when its user resumes', async () => {
    const before = await deliver(1);
    const streams = await open();
    await until(async () => (await rows().count()) === 1);
    await ui.page.getByRole('button', { name: 'Pause' }).click();
    await setHidden(true);
    await ui.page.clock.fastForward(31_000);
    await until(() => streams.length === 2);
    const missed = await deliver(2);
    await setHidden(false);
    await until(() => streams.length === 3);
    await ui.page.getByRole('status').filter({ hasText: 'Paused' }).waitFor();
    expect(await listEvents()).toEqual(before);
    await ui.page.getByRole('button', { name: 'Resume' }).click();
    await until(async () => (await rows().count()) === 3);
    expect(await listEvents()).toEqual([...missed, ...before]);
  });
});
