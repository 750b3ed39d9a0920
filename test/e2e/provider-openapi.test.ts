import { Validator } from '@seriousme/openapi-schema-validator';
import { afterEach, expect, test } from 'vitest';
import { SidegateError } from '../../src/core/errors.ts';
import { makeMutated, makeValid } from '../support/openapi-values.ts';
import { fc } from '../support/property.ts';
import { type ApiAnswer, startApi, type TestApi } from '../support/provider/api.ts';
import { type OpenapiOperation, readOpenapi } from '../support/provider/openapi.ts';

const RUNS = 600;
let api: TestApi;
afterEach(() => api.stop());

test('the document is valid OpenAPI 3.1, by an independent validator', async () => {
  api = await startApi({ token: 'x'.repeat(32) });
  const { status, json } = await api.request('GET', '/openapi.json');
  expect(status).toBe(200);
  const validator = new Validator();
  expect(await validator.validate(json)).toEqual({ valid: true });
  expect([validator.version, json.info.version]).toEqual(['3.1', '1.2.3']);
  const ids = Object.values(json.paths as Record<string, Record<string, OpenapiOperation>>).flatMap((methods) =>
    Object.values(methods).map(({ operationId }) => operationId),
  );
  expect(ids.toSorted()).toEqual([...new Set(ids)].toSorted());
  expect(ids).toHaveLength(22);
  const text = JSON.stringify(json);
  for (const [, name = ''] of text.matchAll(/"#\/components\/schemas\/(\w+)"/g))
    expect(json.components.schemas).toHaveProperty(name);
});

test('every response of a day of work is as the document says', async () => {
  api = await startApi();
  const checker = await readOpenapi(api);
  const call = async (method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<ApiAnswer> => {
    const answer = await api.request(method, path, body, headers);
    expect([method, path, checker.check(method, path, answer)]).toEqual([method, path, []]);
    return answer;
  };
  await call('GET', '/openapi.json');
  const { json: created } = await call('POST', '/v1/endpoints', {
    tenant: 'c',
    url: 'https://a.example',
    events: ['a.*'],
    rateLimit: 2,
    orderBy: '$.data.id',
  });
  const path = `/v1/endpoints/${created.id}`;
  await call('POST', '/v1/endpoints', { url: 'nonsense' });
  await call('POST', '/v1/endpoints', { id: 'acme', url: 'https://a.example' });
  await call('GET', path);
  await call('GET', '/v1/endpoints?limit=1');
  await call('GET', '/v1/endpoints?limit=0');
  await call('PATCH', path, { description: 'x', timeout: null });
  await call('PATCH', path, { description: 7 });
  await call('PATCH', path, { description: 'y' }, { 'If-Match': '"1"' });
  await call('PUT', path, { url: 'https://b.example' });
  await call('POST', `${path}/rotate-secret`, { grace: '1h' });
  await call('POST', `${path}/rotate-secret`);
  await call('GET', path);
  await call('POST', '/v1/events', { type: 'a.b', data: {}, id: 'x', tenant: 'c' });
  await call('POST', '/v1/events', { type: 'a.b', data: {}, id: 'x' });
  await call('POST', '/v1/events', { type: '' });
  await call('POST', '/v1/events', '{');
  await call('POST', '/v1/events', 'a=b', { 'Content-Type': 'text/plain' });
  await call('POST', '/v1/events', { type: 'a.b', data: { a: 'x'.repeat(300_000) } });
  await call('POST', '/v1/events:batch', { events: [{ type: 'a.b', data: {} }] });
  await call('GET', '/v1/events/x');
  await call('GET', '/v1/events/none');
  await call('GET', `/v1/endpoints/${created.id}/stats`);
  await call('GET', '/v1/deliveries');
  await call('GET', `/v1/deliveries/x~${created.id}`);
  api.queue.settle('x', created.id, {
    state: 'dead',
    attempts: 1,
    settledAt: 1,
    lastAttempt: { at: 1, duration: 1.5, outcome: 'timeout' },
  });
  await call('GET', '/v1/deliveries?limit=1');
  await call('GET', `/v1/deliveries/x~${created.id}`);
  await call('POST', `/v1/deliveries/x~${created.id}/retry`);
  await call('GET', '/v1/events');
  await call('GET', '/v1/events?limit=1&unrouted=true');
  await call('POST', '/v1/events', { type: 'a.b', data: { other: true }, id: 'x', tenant: 'c' });
  await call('POST', '/v1/events:batch', { events: [{ type: 'a.b', data: { other: true }, id: 'x', tenant: 'c' }] });
  await call('POST', '/v1/events', { type: 'a.b', data: {}, id: 'y' });
  await call('POST', `/v1/deliveries/y~${created.id}/retry`);
  for (const action of ['cancel', 'retry', 'purge'])
    for (const dryRun of [true, false]) await call('POST', '/v1/repairs', { action, endpoint: created.id, dryRun });
  await call('POST', '/v1/repairs', { action: 'recover', endpoint: created.id, from: '2020-01-01T00:00:00Z' });
  await call('POST', '/v1/repairs', {});
  await call('DELETE', '/v1/events/x/payload');
  await call('DELETE', '/v1/events/none/payload');
  await call('GET', '/v1/events/x');
  await call('DELETE', '/v1/tenants/c/payloads');
  await call('POST', `${path}/test`);
  await call('POST', `${path}/disable`);
  await call('POST', `${path}/test`);
  await call('GET', path);
  await call('POST', `${path}/enable`);
  await call('PATCH', '/v1/endpoints/acme', {});
  await call('DELETE', path, undefined, { Origin: 'https://evil.example' });
  await call('DELETE', path);
  await call('DELETE', path);
  api.queue.failure = new SidegateError('system', 'queue_unavailable', 'down');
  await call('POST', '/v1/events', { type: 'a', data: {} });
  await call('GET', '/v1/deliveries');
  api.queue.failure = new Error('bug');
  await call('GET', '/v1/events/x');
  const operations = Object.values(checker.document.paths).flatMap((methods) => Object.values(methods));
  const succeeded = operations.filter(({ operationId, responses }) =>
    Object.keys(responses).some((status) => status.startsWith('2') && checker.seen.has(`${operationId} ${status}`)),
  );
  expect(operations.filter((each) => !succeeded.includes(each)).map(({ operationId }) => operationId)).toEqual([]);
});

test('no request that the schemas describe, or almost, gets a 5xx or an undescribed response', async () => {
  api = await startApi();
  const checker = await readOpenapi(api);
  const calls = Object.entries(checker.document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => {
      const body = operation.requestBody?.content['application/json'].schema;
      const ids = fc.record({
        event: fc.constantFrom('x', 'none', 'a:b'),
        endpoint: fc.constantFrom('acme', 'one', 'none'),
        tenant: fc.constantFrom('t', 'none'),
        receiver: fc.constantFrom('acme', 'one', 'inbox:a', 'none'),
      });
      const query = fc.record(
        Object.fromEntries(
          operation.parameters
            .filter((each) => each.in === 'query')
            .map(({ name, schema }) => [name, makeValid(schema, checker)]),
        ),
        { requiredKeys: [] },
      );
      const content = body === undefined ? fc.constant(undefined) : makeMutated(makeValid(body, checker));
      return fc.tuple(fc.constant(method.toUpperCase()), fc.constant(path), ids, query, content);
    }),
  );
  await api.request('POST', '/v1/endpoints', { id: 'one', url: 'https://a.example' });
  await api.request('POST', '/v1/events', { type: 'invoice.paid', data: {}, id: 'x' });
  let succeeded = 0;
  await fc.assert(
    fc.asyncProperty(fc.oneof(...calls), async ([method, template, ids, query, body]) => {
      const search = new URLSearchParams();
      for (const [name, value] of Object.entries(query)) for (const each of [value].flat()) search.append(name, String(each));
      const path = template.replaceAll(/\{(\w+)\}/g, (_, name: 'event' | 'endpoint' | 'receiver' | 'tenant') =>
        encodeURIComponent(ids[name]),
      );
      const text = search.toString();
      const answer = await api.request(
        method,
        text === '' ? path : `${path}?${text}`,
        body === undefined ? undefined : JSON.stringify(body),
      );
      expect(answer.status).toBeLessThan(500);
      expect(checker.check(method, path, answer)).toEqual([]);
      if (answer.status >= 400) expect(answer.json).toMatchObject({ status: answer.status, code: expect.any(String) });
      else succeeded++;
    }),
    { numRuns: RUNS },
  );
  expect(api.reported.errors).toEqual([]);
  // About 130; enough of the requests are valid.
  expect(succeeded).toBeGreaterThan(RUNS / 10);
}, 120_000);
