import { Validator } from '@seriousme/openapi-schema-validator';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { LOGIN, startConsoleGate } from '../support/console.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { type TestGate, toRoute } from '../support/gate.ts';
import { makeMutated, makeValid } from '../support/openapi-values.ts';
import { fc } from '../support/property.ts';
import type { ApiAnswer } from '../support/provider/api.ts';
import { OpenapiChecker } from '../support/provider/openapi.ts';

const app = useApp();
let gate: TestGate;
let checker: OpenapiChecker;
beforeEach(async () => {
  const storeBody = { redact: ['$.data'], maxBytes: 200 };
  gate = await startConsoleGate(app.port, { routes: [toRoute(app.port, { webhook: { storeBody } })] });
  checker = new OpenapiChecker((await call('GET', '/api/v1/openapi.json')).json);
});
afterEach(() => gate.stop());

async function call(method: string, path: string, body?: string): Promise<ApiAnswer> {
  const headers = { ...LOGIN, ...(body !== undefined && { 'Content-Type': 'application/json' }) };
  const answer = await send(gate.adminPort, { method, path, headers, ...(body !== undefined && { body }) });
  const isJson = answer.text !== '' && /^application\/(?:problem\+)?json$/.test(answer.headers['content-type'] ?? '');
  return { ...answer, json: isJson ? JSON.parse(answer.text) : undefined };
}

test('the document is valid OpenAPI 3.1, by an independent validator', async () => {
  const validator = new Validator();
  expect(await validator.validate(checker.document as never)).toEqual({ valid: true });
  expect(validator.version).toBe('3.1');
  const ids = Object.values(checker.document.paths).flatMap((methods) =>
    Object.values(methods).map(({ operationId }) => operationId),
  );
  expect(new Set(ids).size).toBe(ids.length);
});

test('no request that the schemas describe, or almost, gets a 5xx or an undescribed response', async () => {
  for (const body of ['{"data":1}', '{"data":1,"data":2}', `"${'x'.repeat(300)}"`]) await send(gate.port, makeDelivery({ body }));
  const list = await call('GET', '/api/v1/deliveries');
  expect(checker.check('GET', '/api/v1/deliveries', list)).toEqual([]);
  const requests = [...list.json.data.map(({ id }: { id: string }) => id), '00000000-0000-4000-8000-000000000000', 'x', '../x'];
  const calls = Object.entries(checker.document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, operation]) => {
      // The stream does not end.
      if (operation.operationId === 'streamRecentDeliveries') return [];
      const body = operation.requestBody?.content['application/json'].schema;
      const inQuery = operation.parameters.filter((each) => each.in === 'query');
      const query = fc.record(Object.fromEntries(inQuery.map(({ name, schema }) => [name, makeValid(schema, checker)])), {
        requiredKeys: [],
      });
      const content = body === undefined ? fc.constant(undefined) : makeMutated(makeValid(body, checker));
      return [
        fc.tuple(
          fc.constant(method.toUpperCase()),
          fc.constant(path),
          fc.constantFrom(...requests, 'acme', 'x~acme'),
          query,
          content,
        ),
      ];
    }),
  );
  await fc.assert(
    fc.asyncProperty(fc.oneof(...calls), async ([method, template, id, query, body]) => {
      const search = new URLSearchParams();
      for (const [name, value] of Object.entries(query)) for (const each of [value].flat()) search.append(name, String(each));
      const path = template.replace('{event}~{receiver}', 'x~acme').replaceAll(/\{\w+\}/g, encodeURIComponent(id));
      const text = search.toString();
      const answer = await call(
        method,
        text === '' ? path : `${path}?${text}`,
        body === undefined ? undefined : JSON.stringify(body),
      );
      expect(answer.status).toBeLessThan(500);
      expect(checker.check(method, path, answer)).toEqual([]);
    }),
    { numRuns: 300 },
  );
  expect(gate.logText()).not.toContain('internal_error');
  const operations = Object.values(checker.document.paths).flatMap((methods) => Object.values(methods));
  const untested = operations.filter(({ operationId }) => ![...checker.seen].some((seen) => seen.startsWith(`${operationId} `)));
  expect(untested.map(({ operationId }) => operationId)).toEqual(['streamRecentDeliveries']);
}, 60_000);
