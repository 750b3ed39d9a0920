import { expect, test } from 'vitest';
import { isOfReplica } from '../../../../src/state/redis/client.ts';

const TEXT = "READONLY You can't write against a read only replica.";

test.each([
  ['a command', TEXT],
  ['a script of Redis 7', `${TEXT} script: 0f9c, on @user_script:66.`],
  ['a caught call in Redis 6.2', `@user_script: 66: -${TEXT}\r\n`],
  ['a script of Redis 6.2', `ERR Error running script (call to f_0f9c): @user_script:66: @user_script: 66: -${TEXT}`],
])('knows a replica by the error of %s', (_, text) => {
  expect(isOfReplica(text)).toBe(true);
});

test.each(["OOM command not allowed when used memory > 'maxmemory'.", 'Connection is closed.', 'WRONGTYPE of key READONLY x'])(
  'takes no other error for that of a replica: %s',
  (text) => {
    expect(isOfReplica(text)).toBe(false);
  },
);
