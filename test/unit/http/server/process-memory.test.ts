import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { toServiceFlags } from '../../../../src/http/server/memory.ts';
import { DEFAULT_MEMORY_LIMIT } from '../../../../src/kubernetes/injector/kubernetes-values.ts';

const DEFAULT_LIMIT = Number.parseInt(DEFAULT_MEMORY_LIMIT, 10) * 1024 * 1024;

test.each([
  ['without a limit', undefined, 1, '--no-maglev-destroy-on-background'],
  ["with the chart's default limit", DEFAULT_LIMIT, 1, '--no-maglev-destroy-on-background'],
  ['with less', DEFAULT_LIMIT - 1, 1, '--no-maglev'],
  ['with less for each worker', 2 * DEFAULT_LIMIT - 1, 2, '--no-maglev'],
])(
  'this version of Node has the flags of a process that serves requests, and accepts them at run time, %s',
  (_title, limit, workers, last) => {
    const flags = toServiceFlags(limit, workers);
    expect(flags.at(-1)).toBe(last);
    const script = flags.map((flag) => `require('node:v8').setFlagsFromString('${flag}');`).join('');
    const { status, stderr, stdout } = spawnSync(process.execPath, ['--eval', script], { encoding: 'utf8' });
    expect({ status, stderr, stdout }).toEqual({ status: 0, stderr: '', stdout: '' });
  },
);
