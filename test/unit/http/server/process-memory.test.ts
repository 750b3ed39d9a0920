import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { SHRINK_DELAY_FLAG } from '../../../../src/http/server/process-memory.ts';

test('this version of Node has the flag that delays the shrinking of an idle heap, and accepts it at run time', () => {
  expect(SHRINK_DELAY_FLAG).toBeDefined();
  const script = `require('node:v8').setFlagsFromString('${SHRINK_DELAY_FLAG}=600000')`;
  const { status, stderr, stdout } = spawnSync(process.execPath, ['--eval', script], { encoding: 'utf8' });
  expect({ status, stderr, stdout }).toEqual({ status: 0, stderr: '', stdout: '' });
});
