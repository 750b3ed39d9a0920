import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { ClusterTool } from '../prepare/cluster-tools.ts';
import { prepareCluster } from '../prepare/prepare-cluster.ts';
import { makeFolder } from '../support/fixtures.ts';

let folder: string;
let bin: string;
let tool: ClusterTool;

beforeEach(() => {
  folder = makeFolder();
  bin = join(folder, 'bin');
  const module = join(folder, 'module');
  mkdirSync(module);
  tool = { name: 'greeter-v1', module, package: '.', flags: [], minutes: 1 };
  writeFileSync(join(module, 'go.mod'), 'module greeter\n\ngo 1.21\n');
  writeFileSync(join(module, 'go.sum'), '');
  write('package main\n\nfunc main() { println("hello") }\n');
  vi.spyOn(console, 'log').mockReturnValue();
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

const write = (text: string): void => writeFileSync(join(tool.module, 'main.go'), text);
const prepare = (): string | undefined => prepareCluster([tool], bin);
const builds = (): number => vi.mocked(console.log).mock.calls.filter(([line]) => String(line).startsWith('built ')).length;

test('builds a program once, and again when its module has changed', () => {
  expect(prepare()).toBeUndefined();
  expect(execFileSync(join(bin, 'greeter-v1'), { stdio: 'pipe' }).length).toBe(0);
  expect(prepare()).toBeUndefined();
  expect(builds()).toBe(1);
  writeFileSync(join(tool.module, 'go.mod'), 'module greeter\n\ngo 1.22\n');
  expect(prepare()).toBeUndefined();
  expect(builds()).toBe(2);
});

test('builds a program again when its source has changed, in the module or in a folder of it', () => {
  mkdirSync(join(tool.module, 'sub'));
  for (const [at, text] of [
    ['.', 'hello'],
    ['.', 'hi'],
    ['./sub', 'hello'],
    ['./sub', 'hi'],
  ] as const) {
    tool = { ...tool, package: at };
    writeFileSync(join(tool.module, at, 'main.go'), `package main\n\nfunc main() { println("${text}") }\n`);
    expect(prepare()).toBeUndefined();
    expect(execFileSync('sh', ['-c', `${join(bin, 'greeter-v1')} 2>&1`], { encoding: 'utf8' })).toBe(`${text}\n`);
  }
});

test('rejects a program whose build failed, and reports where it failed', () => {
  write('package main\n\nfunc main() { hello() }\n');
  expect(prepare()).toContain(`greeter-v1 could not be built in ${tool.module}`);
  expect(readdirSync(bin)).toEqual([]);
  // What lies there by the name alone is nothing either.
  writeFileSync(join(bin, 'greeter-v1'), 'half of it');
  expect(prepare()).toBeDefined();
});

test('names the package to install if Go is missing', () => {
  vi.stubEnv('PATH', folder);
  expect(prepare()).toMatch(/^greeter-v1 must be built: there is no go; apt-get install golang-go/);
  expect(existsSync(bin)).toBe(false);
});

test('reports that Go is too old, and which version is needed', () => {
  writeFileSync(join(folder, 'go'), '#!/bin/sh\necho go1.19.8\n', { mode: 0o755 });
  vi.stubEnv('PATH', folder);
  expect(prepare()).toMatch(
    /^greeter-v1 must be built: go1\.19\.8 is too old, 1\.21 is the oldest that will do; apt-get install/,
  );
});
