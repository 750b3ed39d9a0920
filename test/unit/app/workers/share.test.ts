import { expect, test } from 'vitest';
import { stringify } from 'yaml';
import { toShare } from '../../../../src/app/workers/share.ts';
import { type LoadedConfig, parseConfig } from '../../../../src/config/load/load.ts';
import { DIVIDED_LIMITS } from '../../../../src/config/rules/validate.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import type { Sections } from '../../../support/gate.ts';

const load = (sections: Sections): LoadedConfig => {
  const routes = [{ name: 'app', match: { path: '/' }, upstream: 'http://127.0.0.1:3000', allow: 'anyone' }];
  const store = { redis: { url: 'redis://127.0.0.1:6379' } };
  const loaded = parseConfig('f', stringify({ routes, store, ...sections }), new FakeClock());
  if (loaded.config === undefined) throw new Error(JSON.stringify(loaded.problems));
  return loaded;
};

test('the shares of all workers add up to the limit, and none is empty', () => {
  const limits = Object.fromEntries(DIVIDED_LIMITS.map((name, index) => [name, 10 + index]));
  const loaded = load({ workers: 4, limits });
  const shares = [0, 1, 2, 3].map((index) => toShare(loaded, { index }).config.limits);
  for (const [index, name] of DIVIDED_LIMITS.entries()) {
    const values = shares.map((share) => share[name] ?? 0);
    expect(values.reduce((sum, value) => sum + value)).toBe(10 + index);
    expect(Math.max(...values) - Math.min(...values)).toBeLessThanOrEqual(1);
  }
});

test('limits that follow from the machine are divided as well, and 0 stays 0', () => {
  const loaded = load({ workers: 2, limits: { maxQueued: 0 } });
  const { limits } = toShare(loaded, { index: 1 }).config;
  expect(limits.maxQueued).toBe(0);
  expect(limits.maxBufferedBytes).toBeLessThanOrEqual(32 * 1024 * 1024);
  expect(limits.maxLargeBodies).toBeGreaterThanOrEqual(1);
  expect(limits.passwordThreads).toBeGreaterThanOrEqual(1);
  expect(limits.headTimeout).toBe(loaded.config.limits.headTimeout);
});

test('the analyses of all workers use as much CPU as those of one', () => {
  const loaded = load({ workers: 5, explain: { perMinute: 3, cpuShare: 0.05, cpuSharePerClient: 0.02 } });
  const { explain } = toShare(loaded, { index: 4 }).config;
  expect(explain).toMatchObject({ perMinute: 1, cpuShare: 0.01, cpuSharePerClient: 0.004 });
  expect(toShare(load({ workers: 2, explain: 'off' }), { index: 0 }).config.explain).toBe('off');
});

test('the first worker opens the ports, and the others join those that it got', () => {
  const loaded = load({ workers: 2, listen: { address: '127.0.0.1:0' }, authz: { address: '127.0.0.1:0' } });
  const ports = { listen: 4_001, proxy: undefined, authz: 4_002, own: [4_001, 4_002] };
  const first = toShare(loaded, { index: 0 }).config;
  const second = toShare(loaded, { index: 1, ports }).config;
  expect([first.listen.address.port, first.listen.address.sharing]).toEqual([0, 'first']);
  expect([second.listen.address.port, second.listen.address.sharing]).toEqual([4_001, 'joined']);
  expect([second.authz?.address.port, second.proxy]).toEqual([4_002, undefined]);
});

test('one worker has the config as it is', () => {
  const loaded = load({});
  expect(toShare(loaded, { index: 0 })).toBe(loaded);
});
