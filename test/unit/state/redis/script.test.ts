import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { Script } from '../../../../src/state/redis/operations.ts';

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
