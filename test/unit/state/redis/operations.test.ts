import { createHash } from 'node:crypto';
import type { Command } from 'ioredis';
import { beforeEach, describe, expect, test } from 'vitest';
import type { RedisClient } from '../../../../src/state/redis/client.ts';
import { Script, StoreOperations } from '../../../../src/state/redis/operations.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const LIMIT = 1_000;
let clock: FakeClock;
let reply: (replies: unknown) => void;
let operations: StoreOperations;

beforeEach(() => {
  clock = new FakeClock();
  const sendCommand = (command: Command): Promise<unknown> => {
    reply = command.resolve;
    return command.promise;
  };
  const client = { isCluster: false, sendCommand } as unknown as RedisClient;
  operations = new StoreOperations(client, ({ message = '' }) => message, clock, LIMIT);
});

async function release(): Promise<{ readonly result: () => unknown }> {
  let result: unknown;
  operations.run({ name: 'release', key: 'k', args: [] }, Number).then(
    (value) => (result = value),
    (error: unknown) => (result = error),
  );
  await clock.advance(0);
  return { result: () => result };
}

test('a call without a reply fails exactly at its deadline, and a later reply changes nothing', async () => {
  const { result } = await release();
  await clock.advance(LIMIT - 1);
  expect(result()).toBeUndefined();
  await clock.advance(1);
  expect(result()).toMatchObject({ failure: 'timeout' });
  reply([1]);
  await clock.advance(0);
  expect([result(), clock.timers]).toEqual([expect.objectContaining({ failure: 'timeout' }), 0]);
});

test('a reply that is read in the turn of the deadline counts', async () => {
  const { result } = await release();
  const advanced = clock.advance(LIMIT);
  reply([1]);
  await advanced;
  await clock.advance(0);
  expect([result(), clock.timers]).toEqual([1, 0]);
});

test('a reply in time leaves no timer', async () => {
  const { result } = await release();
  await clock.advance(LIMIT - 1);
  reply([1]);
  await clock.advance(0);
  await clock.advance(1);
  expect([result(), clock.timers]).toEqual([1, 0]);
});

test.each([
  [null],
  [[]],
  [1],
  ['OK'],
  [[null]],
  [[1, 1]],
  [[[]]],
  [[[null, 1]]],
  [[['h x', null]]],
  [[[-1, 1]]],
  [[0.5]],
  [[2 ** 60]],
])('the reply %j, which the script never gives, is an outage of the store', async (given) => {
  const { result } = await release();
  reply(given);
  await clock.advance(0);
  expect([result(), clock.timers]).toEqual([expect.objectContaining({ failure: 'error' }), 0]);
});

test('a reply that an operation never has is an outage for it alone', async () => {
  const results = [1, 2].map((wanted) =>
    operations
      .run({ name: 'claim', key: 'k', args: [] }, (given) => {
        if (given !== wanted) throw new Error('unexpected');
        return given;
      })
      .catch((error: unknown) => error),
  );
  await clock.advance(0);
  reply([1, 1]);
  expect(await Promise.all(results)).toEqual([1, expect.objectContaining({ failure: 'error' })]);
});

describe('the script', () => {
  const TEXT = 'return 1';
  const DIGEST = createHash('sha1').update(TEXT).digest('hex');
  const script = new Script(TEXT);

  test('a script is called by its digest', async () => {
    const calls: unknown[] = [];
    const execute = async (...call: unknown[]): Promise<number> => calls.push(call);
    expect(await script.call(execute)).toBe(1);
    expect(calls).toEqual([['evalsha', DIGEST]]);
  });

  test('the text is sent if Redis does not have it', async () => {
    const execute = async (command: string, sent: string): Promise<string> => {
      if (command === 'evalsha') throw new Error('NOSCRIPT No matching script. Please use EVAL.');
      return sent;
    };
    expect(await script.call(execute)).toBe(TEXT);
  });

  test.each(['ERR unknown command', 'Command timed out', 'ERR NOSCRIPT'])('any other error is not repeated: %s', async (text) => {
    let calls = 0;
    const execute = async (): Promise<never> => {
      calls++;
      throw new Error(text);
    };
    await expect(script.call(execute)).rejects.toThrow(text);
    expect(calls).toBe(1);
  });

  test('an error of the text is passed on', async () => {
    const execute = async (command: string): Promise<never> => {
      throw new Error(command === 'evalsha' ? 'NOSCRIPT' : 'OOM command not allowed');
    };
    await expect(script.call(execute)).rejects.toThrow('OOM command not allowed');
  });
});
