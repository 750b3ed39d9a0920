import { expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { formatProblem } from '../../../../src/core/problem.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const ROUTES = [{ name: 'app', match: { path: '/' }, upstream: 'http://127.0.0.1:3000', open: true }];

test.each([
  ['0ms', []],
  ['10s', []],
  ['11s', ['f:2:10: error log.flush: lines of the log may wait for 10s at most\n  hint: flush: 250ms']],
])('log.flush: %s', (flush, expected) => {
  const { problems } = parseConfig('f', stringify({ log: { flush }, routes: ROUTES }), new FakeClock());
  expect(problems.map(formatProblem).filter((problem) => problem.includes('log'))).toEqual(expected);
});
