import { expect, test } from 'vitest';
import { explainReferences, findReferences } from '../../../../src/kubernetes/injector/sidecar-config.ts';

test.each([
  ['a resource attribute', { tracing: { resource: { env: 'production', passwordEnv: 'x', toString: 'y' } } }],
  ['a header of an endpoint', { provider: { endpoints: [{ headers: { env: 'prod' } }] } }],
  ['a field of a form', { routes: [{ webhook: { scheme: { signed: [{ sortedForm: { env: 'prod' } }] } } }] }],
  ['an inherited name', { tracing: { toString: 'x' } }],
])('%s is no reference to a variable', (_what, config) => {
  expect(findReferences(config)).toEqual([]);
});

test.each([
  [{ tracing: { otlp: { headers: { authorization: { env: 'TOKEN' } } } } }, 'tracing.otlp.headers.authorization.env', 'file'],
  [{ store: { redis: { passwordEnv: 'TOKEN' } } }, 'store.redis.passwordEnv', 'passwordFile'],
  [{ provider: { endpoints: [{ secret: { env: 'TOKEN' } }] } }, 'provider.endpoints.0.secret.env', 'file'],
])('a source is a reference: %j', (config, path, instead) => {
  const references = findReferences(config);
  expect(references).toEqual([{ path, variable: 'TOKEN' }]);
  expect(explainReferences(references)?.fix).toMatch(new RegExp(`^write ${instead}: \\.\\./secrets/NAME/KEY instead`));
});
