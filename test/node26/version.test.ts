import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { IMAGE_NODE_VERSION } from '../prepare/image-node.ts';

const EXPECTED = `v${IMAGE_NODE_VERSION}`;

test('runs the tests on the image’s Node', () => {
  expect(process.version).toBe(EXPECTED);
});

test.each([
  ['process.execPath', process.execPath, ['--version']],
  ['the PATH', 'node', ['--version']],
  ['npx', 'npx', ['--no', '--', 'node', '--version']],
])('runs a child process that is started by %s on the image’s Node', (_means, command, args) => {
  expect(execFileSync(command, args, { encoding: 'utf8' }).trim()).toBe(EXPECTED);
});

test('runs a thread on the image’s Node', async () => {
  const worker = new Worker("require('node:worker_threads').parentPort.postMessage(process.version)", { eval: true });
  expect(await once(worker, 'message')).toEqual([EXPECTED]);
});
