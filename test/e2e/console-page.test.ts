/** The console's page without a browser: who gets it, what it contains, and its login. */
import { afterEach, describe, expect, test } from 'vitest';
import { bundlePage } from '../../scripts/bundle.ts';
import { type Answer, send } from '../support/client.ts';
import { LOGIN, startConsoleGate } from '../support/console.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute } from '../support/gate.ts';
import { postEvent } from '../support/provider/client.ts';
import { toBasic } from '../support/users.ts';

const app = useApp();
const folder = useFolder();
let gate: TestGate;
afterEach(() => gate.stop());

const ask = (path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Answer> =>
  send(gate.adminPort, { method, path, headers });

describe('the page', () => {
  test('lists recent requests, filtered, and shows one', async () => {
    gate = await startGate({ routes: [toRoute(app.port)] });
    await send(gate.port, makeDelivery());
    await send(gate.port, { method: 'GET', path: '/none' });
    const { status, headers, text } = await ask('/');
    expect([status, headers['content-type']]).toEqual([200, 'text/html; charset=utf-8']);
    expect(text).toMatch(/rejected[^]*GET \/none[^]*forwarded[^]*billing/);
    expect((await ask('/?outcome=forwarded&id=&from=&to=&request=')).text).not.toContain('/none');
    expect((await ask('/?outcome=forwarded&outcome=rejected')).text).toMatch(
      /value="rejected" checked[^]*value="forwarded" checked[^]*\/none[^]*billing/,
    );
    expect((await ask('/?to=2020-01-01T00:00')).text).toContain('No recent request matches');
    expect((await ask('/?route=billing&last=15m')).text).toMatch(/selected value="billing"[^]*selected value="15m"/);
    const [, id = ''] = /\?request=([0-9a-f-]+)/.exec(text) ?? [];
    const shown = await ask(`/?outcome=rejected&request=${id}`);
    expect(shown.text).toMatch(
      /<a href="\/\?outcome=rejected">All requests[^]*<dialog open[^]*stopped<[^]*: route not found[^]*<dd>GET \/none/,
    );
    const unknown = await ask(`/?request=${id.replaceAll(/\d/g, 'a')}`);
    expect([unknown.status, unknown.text]).toEqual([404, expect.stringContaining('The journal has no such request')]);
  });

  test('explains filters that are invalid, and repeats no markup of them', async () => {
    gate = await startGate({ routes: [toRoute(app.port)] });
    for (const query of ['outcome=x', 'from=yesterday', 'limit=0', 'cursor=x', '<b>=1', 'route=<b>']) {
      const { status, text } = await ask(`/?${encodeURI(query)}`);
      expect([query, status]).toEqual([query, 422]);
      expect(text).toContain('A filter cannot be used');
      expect(text).not.toContain('<b>');
    }
    expect((await ask('/?id=%22%3E%3Cb%3E')).text).toContain('value="&quot;>&lt;b>"');
  });

  test('says that other views need JavaScript, whatever their parameters', async () => {
    gate = await startGate({ routes: [toRoute(app.port)] });
    for (const view of ['overview', 'outgoing', 'logins']) {
      const { status, text } = await ask(`/?view=${view}&state=dead`);
      expect([view, status]).toEqual([view, 200]);
      expect(text).toContain('This view needs JavaScript');
    }
    expect((await ask('/?view=other')).status).toBe(422);
  });

  test('lists the events of the sending side in pages, filtered', async () => {
    gate = await startConsoleGate(app.port, {}, { events: ['invoice.*'] });
    await postEvent(gate.providerPort, { id: 'unrouted', type: 'user.added', tenant: 'acme' });
    for (let i = 0; i < 51; i++) await postEvent(gate.providerPort, { id: `event${i}` });
    const list = async (query = ''): Promise<string[]> => {
      const { text } = await ask(`/?view=events${query}`);
      const next = /<a href="\/\?view=events&amp;([^"]+)">Older events</.exec(text)?.[1];
      const rows = [...text.matchAll(/<th scope="row"><span class="id">(\w+)/g)].map(([, id = '']) => id);
      return next === undefined ? rows : [...rows, '|', ...(await list(`&${next.replaceAll('&amp;', '&')}`))];
    };
    const newest = Array.from({ length: 51 }, (_, i) => `event${50 - i}`);
    expect(await list()).toEqual([...newest.slice(0, 50), '|', 'event0', 'unrouted']);
    expect(await list('&type=&tenant=&from=&to=&unrouted=true')).toEqual(['unrouted']);
    expect(await list('&type=user.added')).toEqual(['unrouted']);
    expect(await list('&to=2020-01-01T00:00')).toEqual([]);
    const { text } = await ask('/?view=events&tenant=acme&unrouted=true');
    expect(text).toMatch(/name="tenant"[^>]* value="acme"[^]*value="true" checked[^]*user\.added[^]*"Tenant">acme<[^]*>none</);
  });

  test('explains filters of events that are invalid, and repeats no markup of them', async () => {
    gate = await startConsoleGate(app.port);
    for (const query of [
      'type=..',
      'from=yesterday',
      'limit=0',
      'iterator=x',
      '<b>=1',
      'tenant=<b>',
      'outcome=x',
      '__proto__=x',
    ]) {
      const { status, text } = await ask(`/?view=events&${encodeURI(query)}`);
      expect([query, status]).toEqual([query, 422]);
      expect(text).toMatch(/<h1>Events<[^]*role="alert">/);
      expect(text).not.toContain('<b>');
    }
    await gate.stop();
    gate = await startGate({ routes: [toRoute(app.port)] });
    expect(await ask('/?view=events')).toMatchObject({
      status: 404,
      text: expect.stringContaining('this gate sends no webhooks'),
    });
  });

  test('is read-only: HEAD works, other methods do not, and unknown files do not exist', async () => {
    gate = await startGate({ routes: [toRoute(app.port)] });
    expect(await ask('/', {}, 'HEAD')).toMatchObject({ status: 200, text: '' });
    expect(await ask('/', {}, 'POST')).toMatchObject({ status: 405, headers: { allow: 'GET, HEAD' } });
    expect((await ask('/console/none')).status).toBe(404);
    expect((await ask('/console/__proto__')).status).toBe(404);
    expect(await ask('/console/icon.svg')).toMatchObject({ status: 200, headers: { 'content-type': 'image/svg+xml' } });
  });

  test('lets users log in, and then names them', async () => {
    gate = await startConsoleGate(app.port);
    expect((await ask('/')).text).toContain('data-can-log-in="true" data-has-outgoing="true" data-user=""');
    expect(await ask('/login')).toMatchObject({
      status: 401,
      headers: { 'www-authenticate': 'Basic realm="console", charset="UTF-8"' },
    });
    expect((await ask('/login', toBasic('operator', 'wrong'))).status).toBe(401);
    expect(await ask('/login', LOGIN)).toMatchObject({ status: 303, headers: { location: '/' } });
    expect((await ask('/', LOGIN)).text).toContain('data-user="operator"');
  });

  test('makes a browser forget its password, without a failed login, and not for other pages', async () => {
    gate = await startConsoleGate(app.port);
    for (let i = 0; i < 15; i++) {
      const { status, headers, text } = await ask('/logout', i % 2 === 0 ? LOGIN : toBasic('logged-out', 'logged-out'));
      expect([status, headers['www-authenticate']]).toEqual([401, 'Basic realm="console", charset="UTF-8"']);
      expect(text).toContain('This browser has forgotten the password');
    }
    expect((await ask('/login', LOGIN)).status).toBe(303);
    const foreign = await ask('/logout', { ...LOGIN, 'Sec-Fetch-Site': 'cross-site' });
    expect([foreign.status, foreign.headers['www-authenticate']]).toEqual([403, undefined]);
    expect((await ask('/logout', LOGIN, 'POST')).status).toBe(405);
  });

  test('says to a browser what to configure if only a token is accepted', async () => {
    const token = { secret: { file: 'token' } };
    gate = await startConsoleGate(app.port, { admin: { address: '127.0.0.1:0', token } });
    expect(await ask('/')).toMatchObject({
      status: 401,
      text: expect.stringContaining('A browser cannot send admin.token. Set admin.basic, too'),
    });
    expect((await ask('/logout')).status).toBe(404);
  });

  test('offers no login without users', async () => {
    gate = await startGate({ routes: [toRoute(app.port)] });
    expect((await ask('/', toBasic('<b>', 'x'))).text).toContain(
      'data-can-log-in="false" data-has-outgoing="false" data-user=""',
    );
    expect(await ask('/login')).toMatchObject({ status: 403, text: expect.stringContaining('set admin.basic') });
  });
});

test('the files that a browser loads have at most 100 KiB', async () => {
  gate = await startGate({ routes: [toRoute(app.port)] });
  const outputs = Object.entries(await bundlePage(folder)).filter(([file]) => !file.endsWith('console-render.cjs'));
  const built = outputs.map(([, { bytes }]) => bytes);
  expect(built).toHaveLength(2);
  const served = await Promise.all(['/', '/console/icon.svg'].map(async (path) => Buffer.byteLength((await ask(path)).text)));
  expect([...built, ...served].reduce((sum, bytes) => sum + bytes)).toBeLessThanOrEqual(100 * 1_024);
});
