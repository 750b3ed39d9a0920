import { expect, test } from 'vitest';
import { KeyEvidence } from '../../../../src/telemetry/log/key-evidence.ts';
import { createLogger } from '../../../../src/telemetry/log/logger.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const HOUR = 3_600_000;
const KEYS = [
  { route: 'a', key: 'new', source: 'file:new' },
  { route: 'a', key: 'old', source: 'file:old' },
];

function start() {
  const clock = new FakeClock();
  const lines: string[] = [];
  const logger = createLogger({ level: 'info', version: '1', destination: { write: (line: string) => void lines.push(line) } });
  const evidence = new KeyEvidence(clock, logger);
  evidence.take(KEYS);
  const use = (key = 'old', matches = 1): void =>
    evidence.oldKeyUsed({ route: 'a', key, first: 'new', at: clock.now(), matches });
  return { clock, evidence, use, log: () => lines.map((line) => JSON.parse(line) as Record<string, unknown>) };
}

test('logs once per hour for each key that it was used, and when', async () => {
  const { clock, use, log } = start();
  use('old', 5);
  use('old', 6);
  use('new');
  await clock.advance(HOUR - 1);
  use('old', 7);
  expect(log()).toHaveLength(2);
  await clock.advance(1);
  use('old', 8);
  expect(log()).toHaveLength(3);
  expect(log()[0]).toMatchObject({
    level: 'info',
    msg: 'key_match_by_old_key',
    route: 'a',
    key: 'old',
    first: 'new',
    neededAt: '2027-01-15T08:00:00.000Z',
    matches: 5,
  });
  expect(log()[2]).toMatchObject({ neededAt: '2027-01-15T09:00:00.000Z', matches: 8 });
});

test('logs nothing when keys are replaced, and does not repeat it because of a reload', () => {
  const { evidence, use, log } = start();
  use();
  evidence.take(KEYS);
  use();
  expect(log()).toHaveLength(1);
});

test('tracks a key from its first appearance, and again when its secret or its source changes', async () => {
  const { clock, evidence } = start();
  const began = clock.now();
  await clock.advance(HOUR);
  evidence.take([...KEYS, { route: 'b', key: 'old', source: 'env:B' }]);
  expect([evidence.since('a', 'old'), evidence.since('b', 'old')]).toEqual([began, began + HOUR]);
  await clock.advance(HOUR);
  evidence.renew('a', 'new');
  evidence.take(KEYS.map((each) => (each.key === 'old' ? { ...each, source: 'env:OLD' } : each)));
  expect([evidence.since('a', 'new'), evidence.since('a', 'old')]).toEqual([began + 2 * HOUR, began + 2 * HOUR]);
});

test('logs nothing about a key that was removed from the config', () => {
  const { evidence, use, log } = start();
  evidence.take([]);
  use();
  expect(log()).toEqual([]);
});
