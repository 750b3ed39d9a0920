import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { toOrderKey } from '../../src/provider/endpoints/endpoint.ts';
import { startApi, type TestApi } from '../support/provider/api.ts';
import { SECRET_TEXT } from '../support/provider/endpoints.ts';

const URL_TEXT = 'https://hooks.example/in';
const HOUR = 3_600_000;
const EITHER = 'an endpoint is for one tenant or for all: set either `tenant` or `allTenants: true`';

let api: TestApi;
beforeEach(async () => {
  api = await startApi();
});
afterEach(() => api.stop());

const create = (body: object = {}) => api.request('POST', '/v1/endpoints', { url: URL_TEXT, ...body });

describe('creating an endpoint', () => {
  test('gets 409 once the endpoints use as much of the heap as the next start can load; deletions make room, and smaller settings fit', async () => {
    api.stop();
    api = await startApi({ heapBytes: 100_000 });
    const statuses: number[] = [];
    for (let i = 0; i < 20; i++) statuses.push((await create({ id: `e${i}` })).status);
    const fitting = statuses.indexOf(409);
    expect(statuses).toEqual(statuses.map((_, i) => (i < fitting ? 201 : 409)));
    expect(fitting).toBeGreaterThan(9);
    const patterns = Array.from({ length: 100 }, (_, i) => `invoice.paid${i}`);
    const grown = await api.request('PATCH', '/v1/endpoints/e0', { events: patterns });
    expect([grown.status, grown.json.detail]).toEqual([409, expect.stringContaining('raise the memory limit (docs/sizing.md)')]);
    expect((await api.request('PATCH', '/v1/endpoints/e0', { url: `${URL_TEXT}?` })).status).toBe(200);
    expect((await api.request('POST', '/v1/endpoints/e0/disable')).status).toBe(200);
    expect((await api.request('DELETE', '/v1/endpoints/e1')).status).toBe(204);
    expect((await create({ id: 'e1' })).status).toBe(201);
    expect((await create()).status).toBe(409);
    const rotate = (at: number, body?: object) => api.request('POST', `/v1/endpoints/e${at}/rotate-secret`, body);
    const rotated: number[] = [];
    for (let i = 0; i < fitting; i++) rotated.push((await rotate(i)).status);
    expect([rotated[0], rotated.at(-1)]).toEqual([200, 409]);
    // Without the old secret, it needs no more room.
    expect((await rotate(fitting - 1, { grace: '0s' })).status).toBe(200);
  });

  test('gets 409 once the endpoints of its tenant use half of that; those of other tenants, and without one, do not', async () => {
    api.stop();
    api = await startApi({ heapBytes: 200_000 });
    const fill = async (tenant?: string): Promise<number> => {
      for (let i = 0; ; i++) if ((await create({ id: `${tenant}${i}`, ...(tenant && { tenant }) })).status === 409) return i;
    };
    const most = await fill('evil');
    const full = await api.request('PATCH', '/v1/endpoints/evil0', { events: ['a', 'b', 'c', 'd', 'e'] });
    expect([full.status, full.json.detail]).toEqual([409, expect.stringContaining('the endpoints of this tenant use half')]);
    expect((await create({ id: 'good', tenant: 'good' })).status).toBe(201);
    expect((await api.request('DELETE', '/v1/endpoints/evil1')).status).toBe(204);
    expect((await create({ id: 'evil1', tenant: 'evil' })).status).toBe(201);
    expect((await create({ id: 'again', tenant: 'evil' })).status).toBe(409);
    expect(Math.abs((await fill()) - most)).toBeLessThan(4);
  });

  test('shows the secret once, and never again', async () => {
    const { status, json, headers } = await create();
    expect(status).toBe(201);
    expect(json).toMatchObject({
      source: 'api',
      url: URL_TEXT,
      events: [],
      timeout: '15s',
      schedule: ['5s', '5m'],
      concurrency: 4,
    });
    expect(json.id).toMatch(/^ep_[0-9a-f]{24}$/);
    expect(json.secret).toMatch(/^whsec_/);
    expect([headers['etag'], headers['location']]).toEqual([
      `"${api.registry.find(json.id)?.version}"`,
      `/v1/endpoints/${json.id}`,
    ]);
    const others = [
      await api.request('GET', `/v1/endpoints/${json.id}`),
      await api.request('GET', '/v1/endpoints'),
      await api.request('PATCH', `/v1/endpoints/${json.id}`, { description: 'x' }),
      await api.request('POST', `/v1/endpoints/${json.id}/disable`),
    ];
    for (const { status: each, text } of others) {
      expect(each).toBe(200);
      expect(text).not.toContain(json.secret.slice(6));
      expect(text).not.toContain('whsec_');
    }
  });

  test('takes an ID, a secret and settings, and routes events to it at once', async () => {
    const { status, json } = await create({
      id: 'tenant-7',
      secret: SECRET_TEXT,
      events: ['user.*'],
      tenant: 't7',
      headers: { Authorization: 'Bearer hidden' },
      timeout: '3s',
      rateLimit: 0.5,
      schedule: ['1m', '90s', '2d'],
      retryClientErrors: 'all',
      orderBy: '$.data.user',
    });
    expect([status, json.secret, json.headerNames]).toEqual([201, SECRET_TEXT, ['Authorization']]);
    expect(json).toMatchObject({ timeout: '3s', rateLimit: 0.5, schedule: ['1m', '90s', '2d'], retryClientErrors: 'all' });
    expect((await api.request('GET', '/v1/endpoints/tenant-7')).text).not.toContain('hidden');
    await api.request('POST', '/v1/events', { type: 'user.new', data: { user: 'u1' }, id: 'x', tenant: 't7' });
    expect(api.queue.events.get('x')?.targets).toEqual([{ endpoint: 'tenant-7', orderKey: toOrderKey('tenant-7', 'u1') }]);
  });

  test.each([
    [
      { url: 'http://plain.example' },
      'url',
      'url: http:// would send events in clear text; write https://…, or set provider.egress.allowHttp for tests',
    ],
    [{ url: undefined }, 'url', undefined],
    [{ headers: { Host: 'x' } }, 'headers', undefined],
    [{ headers: { 'a b': 'x' } }, 'headers.a b', undefined],
    [
      { secret: 'plain' },
      'secret',
      'secret: the secret has no whsec_ prefix; write whsec_ and 24 to 64 random bytes in base64, for example "whsec_$(openssl rand -base64 32)"',
    ],
    [{ events: ['a.**'] }, 'events[0]', undefined],
    [{ timeout: '5 parsecs' }, 'timeout', undefined],
    [{ schedule: ['1m', 5] }, 'schedule[1]', undefined],
    [{ orderBy: 'customer' }, 'orderBy', undefined],
    [{ id: 'Not~Valid' }, 'id', undefined],
    [{ secrett: 'x' }, 'secrett', 'secrett: unknown member; did you mean secret?'],
    [{ disabled: true }, 'disabled', undefined],
    [{ tenant: 'a b' }, 'tenant', 'tenant: a tenant is 1 to 128 letters, digits and _ : . -, and neither . nor ..'],
    // No path of the API can carry these: clients remove them.
    [{ tenant: '.' }, 'tenant', undefined],
    [{ tenant: '..' }, 'tenant', undefined],
    [JSON.parse('{"headers":{"__proto__":"x"}}'), 'headers.__proto__', undefined],
    [{ tenant: '' }, 'tenant', undefined],
    [{ tenant: 'a', allTenants: true }, 'allTenants', `allTenants: ${EITHER}`],
  ])('rejects %j with 422 that names %s', async (body, field, detail) => {
    const { status, json } = await create(body);
    expect([status, json.field]).toEqual([422, field]);
    if (detail !== undefined) expect(json.detail).toBe(detail);
    expect(api.registry.list()).toHaveLength(1);
  });

  test('rejects an ID that is in use with 409, also one of the config', async () => {
    await create({ id: 'one' });
    expect((await create({ id: 'one' })).json).toMatchObject({ status: 409, code: 'conflict', field: 'id' });
    expect((await create({ id: 'acme' })).status).toBe(409);
  });
});

test.each(['PATCH', 'PUT'] as const)('%s rejects a header that is called __proto__, instead of dropping it', async (method) => {
  await create({ id: 'e', headers: { 'X-A': '1' } });
  const body = JSON.parse(`{"url":"${URL_TEXT}","headers":{"__proto__":"x"}}`);
  const { status, json } = await api.request(method, '/v1/endpoints/e', body);
  expect([status, json.field]).toEqual([422, 'headers.__proto__']);
  expect(api.registry.get('e')?.headers).toEqual([['X-A', '1']]);
});

test('lists all endpoints in pages', async () => {
  for (let i = 0; i < 7; i++) await create({ id: `e${i}` });
  const ids: string[] = [];
  let iterator: string | null = '';
  for (let pages = 0; iterator !== null; pages++) {
    expect(pages).toBeLessThan(4);
    const { json } = await api.request('GET', `/v1/endpoints?limit=3${iterator === '' ? '' : `&iterator=${iterator}`}`);
    ids.push(...json.data.map(({ id }: { id: string }) => id));
    expect(json.done).toBe(json.iterator === null);
    iterator = json.iterator;
  }
  expect(ids).toEqual(['acme', 'e0', 'e1', 'e2', 'e3', 'e4', 'e5', 'e6']);
  for (const query of ['limit=0', 'limit=251', 'limit=x', 'limit=1&limit=2', 'page=2', 'iterator='.padEnd(1_040, 'a')])
    expect([query, (await api.request('GET', `/v1/endpoints?${query}`)).status]).toEqual([query, 422]);
});

test('ends a page after 256 KiB, so that a client that does not read keeps little memory in use', async () => {
  const made = Array.from({ length: 200 }, (_, i) => `e${String(i).padStart(3, '0')}`);
  for (const id of made) expect((await create({ id, url: `${URL_TEXT}/${'x'.repeat(2_000)}` })).status).toBe(201);
  const ids: string[] = [];
  const sizes: number[] = [];
  for (let iterator: string | null = ''; iterator !== null; ) {
    const { json, text } = await api.request('GET', `/v1/endpoints?limit=250${iterator === '' ? '' : `&iterator=${iterator}`}`);
    sizes.push(text.length);
    ids.push(...json.data.map(({ id }: { id: string }) => id));
    iterator = json.iterator;
  }
  expect(ids).toEqual(['acme', ...made]);
  expect(sizes).toHaveLength(2);
  expect(Math.max(...sizes)).toBeLessThan(270 * 1_024);
});

describe('changing an endpoint', () => {
  test('PATCH changes what it names, null restores the default', async () => {
    await create({ id: 'e', events: ['a'], timeout: '3s', rateLimit: 5, headers: { 'X-A': '1' }, description: 'd' });
    const { status, json } = await api.request('PATCH', '/v1/endpoints/e', { timeout: null, rateLimit: null, events: ['b.*'] });
    expect(status).toBe(200);
    expect(json).toMatchObject({ timeout: '15s', events: ['b.*'], description: 'd', headerNames: ['X-A'] });
    expect(json).not.toHaveProperty('rateLimit');
  });

  test.each<[string, object, Record<string, string>]>([
    ['sets one header and keeps the others', { 'X-C': '3' }, { 'X-A': '1', 'X-B': '2', 'X-C': '3' }],
    ['replaces the value of one header', { 'X-A': 'new' }, { 'X-A': 'new', 'X-B': '2' }],
    ['removes a header', { 'X-A': null, 'X-C': null }, { 'X-B': '2' }],
    ['finds names without case, and with _ as -', { 'x-a': 'new', X_B: null }, { 'x-a': 'new' }],
    ['removes and sets the same header in one request', { 'X-A': 'new', 'x-a': null }, { 'X-A': 'new', 'X-B': '2' }],
    ['keeps all for an empty object', {}, { 'X-A': '1', 'X-B': '2' }],
  ])('PATCH headers %s', async (_, headers, expected) => {
    await create({ id: 'e', headers: { 'X-A': '1', 'X-B': '2' } });
    const { status, json, text } = await api.request('PATCH', '/v1/endpoints/e', { headers });
    expect([status, json.headerNames.toSorted()]).toEqual([200, Object.keys(expected).toSorted()]);
    expect(Object.fromEntries(api.registry.get('e')?.headers ?? [])).toEqual(expected);
    expect(text).not.toContain('new');
  });

  test.each([[{ host: 'x' }], [{ 'X-C': '1', 'x-c': '2' }], [{ 'a b': null }], [{ 'X-C': 5 }], [null], [{ 'X-C': 'a\nb' }]])(
    'PATCH headers %j is rejected, and changes nothing',
    async (headers) => {
      await create({ id: 'e', headers: { 'X-A': '1' } });
      const { status, json } = await api.request('PATCH', '/v1/endpoints/e', { headers });
      expect([status, json.field.split('.')[0]]).toEqual([422, 'headers']);
      expect(api.registry.get('e')?.headers).toEqual([['X-A', '1']]);
    },
  );

  test.each([
    ['PATCH', { tenant: 'b' }, 'tenant'],
    ['PATCH', { tenant: null }, 'tenant'],
    ['PATCH', { allTenants: true }, 'allTenants'],
    ['PUT', { url: URL_TEXT, tenant: 'b' }, 'tenant'],
    ['PUT', { url: URL_TEXT, allTenants: true }, 'allTenants'],
  ])('%s of %j is 409: the tenant cannot be changed', async (method, body, field) => {
    await create({ id: 'e', tenant: 'a' });
    const { status, json } = await api.request(method, '/v1/endpoints/e', body);
    expect([status, json.field, json.detail]).toEqual([
      409,
      field,
      'the tenant of an endpoint cannot be changed, as events of the old one may be stored for it: create another endpoint',
    ]);
    expect(api.registry.get('e')).toMatchObject({ tenant: 'a', allTenants: false });
  });

  test('an endpoint for all tenants cannot be limited to one, and the same tenant can be repeated', async () => {
    await create({ id: 'all', allTenants: true });
    await create({ id: 'a', tenant: 'a' });
    expect((await api.request('PATCH', '/v1/endpoints/all', { allTenants: false })).status).toBe(409);
    expect((await api.request('PUT', '/v1/endpoints/all', { url: URL_TEXT, tenant: 'a' })).status).toBe(409);
    expect((await api.request('PATCH', '/v1/endpoints/all', { allTenants: true, description: 'd' })).json.allTenants).toBe(true);
    expect((await api.request('PUT', '/v1/endpoints/all', { url: URL_TEXT })).json.allTenants).toBe(true);
    expect((await api.request('PUT', '/v1/endpoints/a', { url: URL_TEXT })).json.tenant).toBe('a');
    expect((await api.request('PUT', '/v1/endpoints/a', { url: URL_TEXT, tenant: 'a' })).json.tenant).toBe('a');
  });

  test('PUT resets what it does not name, except headers and secret', async () => {
    await create({ id: 'e', events: ['a'], timeout: '3s', headers: { 'X-A': '1' }, secret: SECRET_TEXT });
    const { json } = await api.request('PUT', '/v1/endpoints/e', { url: 'https://new.example' });
    expect(json).toMatchObject({ url: 'https://new.example', events: [], timeout: '15s', headerNames: ['X-A'] });
    expect(api.registry.get('e')?.keys).toHaveLength(1);
    expect((await api.request('PUT', '/v1/endpoints/e', { url: 'https://new.example', headers: {} })).json.headerNames).toEqual(
      [],
    );
    expect((await api.request('PUT', '/v1/endpoints/e', {})).json.field).toBe('url');
  });

  test('rejects settings that are not allowed, and changes nothing', async () => {
    await create({ id: 'e' });
    const before = api.registry.find('e')?.version;
    for (const body of [{ url: 'ftp://x' }, { url: null }, { headers: { host: 'x' } }, { id: 'f' }, { secret: SECRET_TEXT }, []])
      expect([body, (await api.request('PATCH', '/v1/endpoints/e', body)).status]).toEqual([body, 422]);
    expect(api.registry.find('e')?.version).toBe(before);
  });

  test('with If-Match only succeeds for the current version', async () => {
    await create({ id: 'e' });
    const current = (): string => `"${api.registry.find('e')?.version}"`;
    const created = current();
    const patch = (ifMatch: string) => api.request('PATCH', '/v1/endpoints/e', { description: ifMatch }, { 'If-Match': ifMatch });
    const first = await patch(created);
    expect([first.status, first.headers['etag']]).toEqual([200, current()]);
    expect((await patch(created)).json.code).toBe('precondition_failed');
    expect((await patch(`W/${current()}`)).status).toBe(412);
    expect((await patch('*')).status).toBe(200);
    expect((await api.request('DELETE', '/v1/endpoints/e', undefined, { 'If-Match': created })).status).toBe(412);
    expect((await api.request('DELETE', '/v1/endpoints/e', undefined, { 'If-Match': current() })).status).toBe(204);
    expect((await api.request('DELETE', '/v1/endpoints/e')).status).toBe(404);
  });

  test('of the config is rejected with 409 that says where to change it', async () => {
    for (const [method, path, body] of [
      ['PATCH', '', {}],
      ['PUT', '', { url: URL_TEXT }],
      ['DELETE', '', undefined],
      ['POST', '/rotate-secret', undefined],
    ] as const) {
      const { status, json } = await api.request(method, `/v1/endpoints/acme${path}`, body);
      expect([method, status, json.code]).toEqual([method, 409, 'conflict']);
      expect(json.detail).toContain('provider.endpoints');
    }
  });

  test.each(['GET', 'PATCH', 'PUT', 'DELETE'])('that does not exist gets 404: %s', async (method) => {
    const body = method === 'PATCH' ? {} : method === 'PUT' ? { url: URL_TEXT } : undefined;
    expect((await api.request(method, '/v1/endpoints/none', body)).json).toMatchObject({ status: 404, code: 'not_found' });
  });
});

describe('rotating a secret', () => {
  const rotate = (body?: object) => api.request('POST', '/v1/endpoints/e/rotate-secret', body);
  const expiries = () => api.registry.get('e')?.keys.map(({ expiresAt }) => expiresAt) ?? [];

  test('signs with the old one for the grace period', async () => {
    const { json: created } = await create({ id: 'e' });
    const { status, json } = await rotate();
    expect(status).toBe(200);
    expect(json.secret).toMatch(/^whsec_/);
    expect(json.secret).not.toBe(created.secret);
    const [current, old] = expiries();
    expect(current).toBeUndefined();
    expect(Math.abs((old ?? 0) - Date.now() - 24 * HOUR)).toBeLessThan(10_000);
    const { json: shown } = await api.request('GET', '/v1/endpoints/e');
    expect(shown.signatures).toEqual([{ version: 'v1' }, { version: 'v1', expiresAt: expect.any(String) }]);
  });

  test('stops signing with all old ones at once if they leaked', async () => {
    await create({ id: 'e' });
    await rotate();
    await rotate({ secret: SECRET_TEXT, grace: '0s' });
    expect(expiries()).toEqual([undefined]);
    expect(api.registry.get('e')?.keys[0]?.secret.expose().toString('base64')).toBe(SECRET_TEXT.slice(6));
  });

  test('keeps at most 4 old ones, and never extends their time', async () => {
    await create({ id: 'e' });
    await rotate({ grace: '1h' });
    const [, old] = expiries();
    await rotate({ grace: '7d' });
    expect(expiries()[2]).toBe(old);
    for (let i = 0; i < 6; i++) await rotate();
    expect(expiries()).toHaveLength(5);
  });

  test('rejects an invalid secret', async () => {
    await create({ id: 'e' });
    expect((await rotate({ secret: 'x' })).json).toMatchObject({ status: 422, field: 'secret' });
    expect((await rotate({ grace: 'long' })).json).toMatchObject({ status: 422, field: 'grace' });
  });
});

test.each(['acme', 'e'])('disables and enables %s, and skips its events meanwhile', async (id) => {
  await create({ id: 'e', events: ['invoice.*'] });
  const act = (name: string) => api.request('POST', `/v1/endpoints/${id}/${name}`);
  const disabled = await act('disable');
  expect([disabled.status, disabled.json.disabled.reason]).toEqual([200, 'manual']);
  expect((await act('disable')).status).toBe(200);
  await api.request('POST', '/v1/events', { type: 'invoice.paid', data: {}, id: 'x' });
  expect(api.queue.events.get('x')?.targets).toContainEqual({ endpoint: id, isSkipped: true });
  expect((await act('test')).json).toMatchObject({ status: 409, detail: 'the endpoint is disabled: enable it first' });
  expect((await act('enable')).json).not.toHaveProperty('disabled');
  expect((await act('enable')).status).toBe(200);
  expect(api.reported.changes.filter(([, change]) => change !== 'created')).toEqual([
    [id, 'disabled'],
    [id, 'enabled'],
  ]);
});

test('sends a test event to one endpoint only, whatever it selects', async () => {
  await create({ id: 'e' });
  const { status, json } = await api.request('POST', '/v1/endpoints/acme/test');
  expect(status).toBe(202);
  const event = api.queue.events.get(json.id);
  expect(event).toMatchObject({ type: 'sidegate.test', targets: [{ endpoint: 'acme' }] });
  expect(JSON.parse(event?.body.toString() ?? '')).toMatchObject({
    type: 'sidegate.test',
    id: json.id,
    data: { message: expect.any(String) },
  });
  const own = await api.request('POST', '/v1/endpoints/acme/test', { data: { a: 1 } });
  expect(JSON.parse(api.queue.events.get(own.json.id)?.body.toString() ?? '').data).toEqual({ a: 1 });
  expect((await api.request('POST', '/v1/endpoints/none/test')).status).toBe(404);
});

test('shows the backlog of an endpoint', async () => {
  expect((await api.request('GET', '/v1/endpoints/acme/stats')).json).toEqual({ waiting: 0 });
  await api.request('POST', '/v1/events', { type: 'invoice.paid', data: {} });
  expect((await api.request('GET', '/v1/endpoints/acme/stats')).json).toEqual({ waiting: 1, oldestDue: expect.any(String) });
  const lastFailure = { at: 1_800_000_000_000, duration: 5, status: 503, outcome: 'server_error', detail: 'responded 503' };
  const enabledAt = api.registry.get('acme')?.enabledAt ?? 0;
  const state = { failures: 3, firstFailureAt: 1_700_000_000_000, lastFailure, isProven: true, since: enabledAt };
  api.queue.states.set('acme', state);
  expect((await api.request('GET', '/v1/endpoints/acme/stats')).json.failing).toEqual({
    failures: 3,
    since: '2023-11-14T22:13:20.000Z',
    lastAttempt: { at: '2027-01-15T08:00:00.000Z', durationMs: 5, status: 503, outcome: 'server_error', detail: 'responded 503' },
  });
  api.queue.states.set('acme', { ...state, failures: 0 });
  expect((await api.request('GET', '/v1/endpoints/acme/stats')).json.failing).toBeUndefined();
});
