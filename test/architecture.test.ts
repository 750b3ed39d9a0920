import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { lintHouse } from '../scripts/lint-house.ts';

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

function lint(files: Record<string, string>): string[] {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-house-'));
  folders.push(folder);
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(join(folder, dirname(file)), { recursive: true });
    writeFileSync(join(folder, file), text);
  }
  return lintHouse(folder);
}

test.each([
  [
    'an import from a higher floor',
    { 'core/a.ts': "import { b } from '../gates/b.ts';\n", 'gates/b.ts': '' },
    'core/a.ts: imports gates/b.ts',
  ],
  [
    'an import from the same floor',
    { 'store/a.ts': "import type { B } from '../config/b.ts';\n", 'config/b.ts': '' },
    'store/a.ts: imports config/b.ts',
  ],
  [
    'a dynamic import from a higher floor',
    { 'gates/a.ts': "void import('../app/b.ts');\n", 'app/b.ts': '' },
    'gates/a.ts: imports app/b.ts',
  ],
  [
    'a cycle',
    { 'core/a.ts': "import { b } from './b.ts';\n", 'core/b.ts': "import { a } from './a.ts';\n" },
    'import cycle: core/a.ts → core/b.ts → core/a.ts',
  ],
  ['a clock of its own', { 'gates/a.ts': 'const now = Date.now();\n' }, 'gates/a.ts: reads time'],
  ['a bare listener', { 'listen/a.ts': "socket.on('data', take);\n" }, 'listen/a.ts: adds a listener'],
  ['a bare listener for one event', { 'listen/a.ts': "socket?.once('close', take);\n" }, 'listen/a.ts: adds a listener'],
  ['a bare next turn', { 'store/a.ts': 'setImmediate(send);\n' }, 'store/a.ts: runs a callback'],
  ['a bare handler property', { 'store/a.ts': 'port.onmessage = take;\n' }, 'store/a.ts: runs a callback'],
  [
    'a bare decision for Node',
    { 'listen/a.ts': 'const a = { SNICallback: (name) => 1 };\n' },
    'listen/a.ts: gives Node a callback',
  ],
  [
    'a bare callback of a server',
    { 'listen/a.ts': 'createServer({}, (request) => take(request));\n' },
    'listen/a.ts: gives Node',
  ],
  ['a bare callback of a write', { 'listen/a.ts': 'socket.write(chunk, () => take());\n' }, 'listen/a.ts: gives Node'],
  ['a promise that nobody waits for', { 'gates/a.ts': 'const a = () => void take();\n' }, 'gates/a.ts: drops a promise'],
  ['a signal handler below cli', { 'app/a.ts': "process.on('SIGHUP', take);\n" }, 'app/a.ts: handles signals'],
  ['a timer of its own', { 'forward/a.ts': 'setTimeout(() => 1, 2);\n' }, 'forward/a.ts: reads time'],
  ['the environment', { 'listen/a.ts': 'const x = process.env;\n' }, 'listen/a.ts: reads the environment'],
  ['files', { 'observe/a.ts': "import { readFileSync } from 'node:fs';\n" }, 'observe/a.ts: reads files'],
  [
    'a comparison of its own',
    { 'gates/a.ts': "import { timingSafeEqual } from 'node:crypto';\n" },
    'gates/a.ts: compares secrets',
  ],
  [
    'a forged proof',
    { 'gates/a.ts': "import { admit, type Admitted } from '../core/admitted.ts';\n", 'core/admitted.ts': '' },
    'gates/a.ts: mints an Admitted',
  ],
  ['state at module level', { 'core/a.ts': 'let count = 0;\n' }, 'core/a.ts: has mutable state'],
  ['a file that is too long', { 'core/a.ts': '\n'.repeat(301) }, 'core/a.ts: 301 lines'],
])('finds %s', (_title, files, expected) => {
  expect(lint(files).join('\n')).toContain(expected);
});

test('finds nothing in a house that keeps to its plan', () => {
  expect(
    lint({
      'core/a.ts': 'export const a = 1;\n',
      'gatehouse/pipeline.ts': "import { admit } from '../core/admitted.ts';\nimport { a } from '../core/a.ts';\n",
      'core/admitted.ts': '',
    }),
  ).toEqual([]);
});
