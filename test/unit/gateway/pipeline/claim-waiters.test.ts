import { expect, test } from 'vitest';
import { ClaimWaiters } from '../../../../src/gateway/pipeline/claims.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

test('neither a client of one route nor the route itself takes the places of another one behind the same provider', async () => {
  const clock = new FakeClock();
  const waiters = new ClaimWaiters(
    256,
    () => undefined,
    (address) => address,
  );
  let count = 0;
  const wait = (route: string, client: string): Promise<object | string> =>
    waiters.wait(
      { client, key: `${route}:i:${count++}` },
      { route, clock, timeout: 10_000, poll: () => Promise.resolve(undefined) },
    );
  /** How many of 256 waits find a place. */
  const fill = async (route: string, toClient: (at: number) => string): Promise<number> => {
    let full = 0;
    for (let at = 0; at < 256; at++) {
      const isFull = await Promise.race([wait(route, toClient(at)), Promise.resolve('waiting')]);
      if (isFull === 'full') full++;
    }
    return 256 - full;
  };
  expect(await fill('a', () => '192.0.2.1')).toBe(129);
  expect(await fill('b', () => '192.0.2.1')).toBeGreaterThan(50);
  expect(await fill('a', (at) => `198.51.100.${at}`)).toBeLessThan(45);
  expect(await fill('c', () => '192.0.2.1')).toBeGreaterThan(5);
  await clock.advance(11_000);
  expect(await fill('a', (at) => `198.51.100.${at}`)).toBe(193);
});
