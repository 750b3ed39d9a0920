import { expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const toProblems = (limits: object, webhook: object = {}): string[] => {
  const keys = [{ name: 'current', secret: { file: 'secret' } }];
  const routes = [{ name: 'a', match: { path: '/hooks' }, upstream: 'http://127.0.0.1:3000', webhook: { keys, ...webhook } }];
  const { problems } = parseConfig('f', stringify({ limits, routes }), new FakeClock());
  return problems.filter(({ severity }) => severity === 'error').map(({ message }) => message);
};

test.each([
  [{ maxHeaderFields: 9 }, 10],
  [{ maxHeaderBytes: 100 }, 1_024],
  [{ headTimeout: '1ms' }, '100ms'],
  [{ bodyMinRate: 10_000_000_000 }, 10_000_000],
  [{ maxTarget: 5 }, 'limits.maxTarget is 5'],
])('rejects %j, as no request could pass', (limits, part) => {
  expect(toProblems(limits)).toEqual([expect.stringContaining(String(part))]);
});

test('rejects a maxBody that is shorter than any delivery', () => {
  expect(toProblems({}, { maxBody: 1 })).toEqual([expect.stringContaining('at least 16')]);
  expect(toProblems({ maxTarget: 6 }, { maxBody: 16 })).toEqual([]);
});
