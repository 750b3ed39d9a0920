import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { lintLayers } from '../scripts/lint-layers.ts';
import { makeFolder } from './support/fixtures.ts';

function lint(files: Record<string, string>): string[] {
  const folder = makeFolder();
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(join(folder, dirname(file)), { recursive: true });
    writeFileSync(join(folder, file), text);
  }
  return lintLayers(folder);
}

test.each([
  [
    'an import from a higher layer',
    { 'core/a.ts': "import { b } from '../http/server/b.ts';\n", 'http/server/b.ts': '' },
    'core/a.ts: imports http/server/b.ts',
  ],
  [
    'an import from another area of the same layer',
    { 'users/a.ts': "import type { B } from '../verify/keys/b.ts';\n", 'verify/keys/b.ts': '' },
    'users/a.ts: imports verify/keys/b.ts',
  ],
  [
    'an import from a higher layer inside an area',
    { 'gateway/upstream/a.ts': "import { b } from '../pipeline/gates/b.ts';\n", 'gateway/pipeline/gates/b.ts': '' },
    'gateway/upstream/a.ts: imports gateway/pipeline/gates/b.ts',
  ],
  [
    'an import from the composition root below it',
    { 'admin/a.ts': "import { b } from '../app/b.ts';\n", 'app/b.ts': '' },
    'admin/a.ts: imports app/b.ts',
  ],
  [
    'a lookup of names by the system',
    { 'gateway/a.ts': "import { lookup } from 'node:dns/promises';\n" },
    'gateway/a.ts: looks up names',
  ],
  [
    'a name that takes a thread',
    { 'gateway/a.ts': 'const found = await systemResolve(host);\n' },
    'gateway/a.ts: takes a thread for each name',
  ],
  [
    'a connection without a limit on lookups',
    { 'gateway/a.ts': "import { connect, type Socket } from 'node:net';\nconnect({ host, port });\n" },
    'gateway/a.ts: connects to names without a limit',
  ],
  [
    'an import from an area that has no layer',
    { 'cli/a.ts': "import { b } from '../unknown/b.ts';\n", 'unknown/b.ts': '' },
    'cli/a.ts: imports unknown/b.ts',
  ],
  [
    'a dynamic import from a higher layer',
    { 'gateway/pipeline/a.ts': "void import('../../app/b.ts');\n", 'app/b.ts': '' },
    'gateway/pipeline/a.ts: imports app/b.ts',
  ],
  [
    'a cycle',
    { 'core/a.ts': "import { b } from './b.ts';\n", 'core/b.ts': "import { a } from './a.ts';\n" },
    'import cycle: core/a.ts → core/b.ts → core/a.ts',
  ],
  [
    'a clock of its own',
    { 'gateway/pipeline/gates/a.ts': 'const now = Date.now();\n' },
    'gateway/pipeline/gates/a.ts: reads time',
  ],
  [
    'a comparison of names that ignores the case only of some letters',
    { 'verify/schemes/a.ts': 'const isAlike = name.toLowerCase() === other.toLowerCase();\n' },
    'verify/schemes/a.ts: converts case',
  ],
  [
    'JSON of a sender that is not verified, parsed without bounds',
    { 'verify/schemes/a.ts': "const value = JSON.parse(body.toString('utf8'));\n" },
    'verify/schemes/a.ts: parses JSON of others',
  ],
  ['a bare listener', { 'http/server/a.ts': "socket.on('data', take);\n" }, 'http/server/a.ts: adds a listener'],
  [
    'a bare listener for one event',
    { 'http/server/a.ts': "socket?.once('close', take);\n" },
    'http/server/a.ts: adds a listener',
  ],
  ['a bare next turn', { 'state/a.ts': 'setImmediate(send);\n' }, 'state/a.ts: runs a callback'],
  ['a bare handler property', { 'state/a.ts': 'port.onmessage = take;\n' }, 'state/a.ts: runs a callback'],
  [
    'a bare decision for Node',
    { 'http/server/a.ts': 'const a = { SNICallback: (name) => 1 };\n' },
    'http/server/a.ts: gives Node a callback',
  ],
  [
    'a bare callback of a server',
    { 'http/server/a.ts': 'createServer({}, (request) => take(request));\n' },
    'http/server/a.ts: gives Node',
  ],
  ['a bare callback of a write', { 'http/server/a.ts': 'socket.write(chunk, () => take());\n' }, 'http/server/a.ts: gives Node'],
  [
    'a promise that nobody waits for',
    { 'gateway/pipeline/gates/a.ts': 'const a = () => void take();\n' },
    'gateway/pipeline/gates/a.ts: drops a promise',
  ],
  ['a signal handler below cli', { 'app/a.ts': "process.on('SIGHUP', take);\n" }, 'app/a.ts: handles signals'],
  ['a timer of its own', { 'gateway/upstream/a.ts': 'setTimeout(() => 1, 2);\n' }, 'gateway/upstream/a.ts: reads time'],
  ['the environment', { 'http/server/a.ts': 'const x = process.env;\n' }, 'http/server/a.ts: reads the environment'],
  ['files', { 'telemetry/log/a.ts': "import { readFileSync } from 'node:fs';\n" }, 'telemetry/log/a.ts: reads files'],
  [
    'a file of any size',
    { 'config/sources/a.ts': "import { readFile, stat } from 'node:fs/promises';\n" },
    'config/sources/a.ts: reads a file or standard input of any size',
  ],
  [
    'an input of any size',
    { 'cli/a.ts': 'for await (const chunk of io.stdin) chunks.push(chunk);\n' },
    'cli/a.ts: reads a file or standard input of any size',
  ],
  [
    'a comparison of its own',
    { 'gateway/pipeline/gates/a.ts': "import { timingSafeEqual } from 'node:crypto';\n" },
    'gateway/pipeline/gates/a.ts: compares secrets',
  ],
  [
    'a parser of IP addresses of its own',
    { 'http/server/a.ts': 'const MAPPED = /^::ffff:/;\n' },
    'http/server/a.ts: parses or compares IP addresses',
  ],
  [
    'a forged proof',
    {
      'gateway/pipeline/gates/a.ts': "import { admit, type Admitted } from '../../../core/admitted.ts';\n",
      'core/admitted.ts': '',
    },
    'gateway/pipeline/gates/a.ts: creates an Admitted',
  ],
  [
    'a pause without a deadline',
    { 'gateway/upstream/a.ts': 'socket.pause();\n' },
    'gateway/upstream/a.ts: pauses a stream, perhaps forever',
  ],
  ['a pipe', { 'http-api/a.ts': 'stream?.pipe(response);\n' }, 'http-api/a.ts: pauses a stream, perhaps forever'],
  [
    'a wait for a writer without a deadline',
    { 'gateway/egress-proxy/a.ts': "onceEvent(server, 'drain', () => proceed());\n" },
    'gateway/egress-proxy/a.ts: waits for a writer, perhaps forever',
  ],
  [
    'a deadline that never comes',
    { 'gateway/upstream/a.ts': 'this.#deadline = Number.POSITIVE_INFINITY;\n' },
    'gateway/upstream/a.ts: has a deadline that never comes',
  ],
  [
    'the name of such a deadline',
    { 'gateway/upstream/a.ts': 'const NEVER = Number.POSITIVE_INFINITY;\n' },
    'gateway/upstream/a.ts: has a deadline that never comes',
  ],
  [
    'a function that is assigned to a property',
    { 'http/server/a.ts': 'tracked.onEnd = () => body.free();\n' },
    'http/server/a.ts: assigns a function to a property',
  ],
  [
    'a typed function that is assigned to a private field',
    { 'http/server/a.ts': 'this.#push ??= async (chunk: Buffer | null): Promise<boolean> => flush(chunk);\n' },
    'http/server/a.ts: assigns a function to a property',
  ],
  [
    'a function with a callback that is assigned on the next line',
    { 'http/server/a.ts': 'tracked.onEnd =\n  (callback: () => void): void => body.afterFree(callback);\n' },
    'http/server/a.ts: assigns a function to a property',
  ],
  ['state at module level', { 'core/a.ts': 'let count = 0;\n' }, 'core/a.ts: has mutable state'],
  ['a file that is too long', { 'core/a.ts': '\n'.repeat(501) }, 'core/a.ts: 501 lines'],
])('finds %s', (_title, files, expected) => {
  expect(lint(files).join('\n')).toContain(expected);
});

test('finds nothing in a source tree that follows the layout', () => {
  expect(
    lint({
      'core/a.ts': 'export const a = 1;\n',
      'gateway/pipeline/guarded-request.ts':
        "import { admit } from '../../core/admitted.ts';\nimport { a } from '../../core/a.ts';\n",
      'app/a.ts': "import { a } from '../gateway/pipeline/guarded-request.ts';\n",
      'core/admitted.ts': '',
    }),
  ).toEqual([]);
});
