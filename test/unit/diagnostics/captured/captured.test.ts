/** Captured requests: each format is read as the tools that write it mean it, held against the tools themselves. */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { Captured } from '../../../../src/diagnostics/captured/captured.ts';
import { toWords } from '../../../../src/diagnostics/captured/curl.ts';
import { readCaptured } from '../../../../src/diagnostics/captured/read.ts';
import { useFolder, useServer } from '../../../support/fixtures.ts';
import { fc } from '../../../support/property.ts';
import { run } from '../../../support/run.ts';

const folder = useFolder();
const CONTENT = Buffer.from('{"a": 1,\r\n "é": "ü"}\n\u0000\u0001');
const content = join(folder, 'content.bin');
const text = join(folder, 'text.txt');
let received = Buffer.alloc(0);
writeFileSync(content, CONTENT);
writeFileSync(text, 'one\r\ntwo=&+ \n');

/** Responds once a whole request has come, and keeps its bytes as they are. */
const server = createServer((socket) => {
  received = Buffer.alloc(0);
  socket.on('data', (chunk) => {
    received = Buffer.concat([received, chunk]);
    const all = received.toString('latin1');
    const head = all.indexOf('\r\n\r\n');
    const length = Number(/content-length: (\d+)/i.exec(all)?.[1] ?? 0);
    const isWhole = /transfer-encoding: chunked/i.test(all) ? all.endsWith('0\r\n\r\n') : received.length >= head + 4 + length;
    if (head !== -1 && isWhole) socket.end('HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n');
  });
  socket.on('error', () => socket.destroy());
});
const app = useServer(server);

const read = (bytes: Buffer | string, options = {}): Captured =>
  readCaptured(Buffer.from(bytes), options, (file) => readFileSync(file));

function toFields({ headers }: Captured): Record<string, string> {
  return Object.fromEntries(headers.flatMap((name, i) => (i % 2 === 0 ? [[name.toLowerCase(), headers[i + 1] ?? '']] : [])));
}

describe('a command line of curl', () => {
  const rows: readonly string[] = [
    `curl URL/hooks -H 'Webhook-Id: a' --data-raw '{"a": "it'\\''s"}'`,
    `curl 'URL/hooks?x=1&y=%20' \\\n  -X PUT \\\n  -H 'content-type: application/json' \\\n  --data-binary @CONTENT`,
    `curl -sS -XPATCH -HX-A:b "URL/a b" --data-binary $'\\'{"a":"\\u00e9 \\x41\\101\\n\\t\\\\ \\u0021"}'`.replace('a b', 'ab'),
    `curl URL/hooks -d a=1 -d @TEXT --data-ascii 'c d'`,
    `curl URL/hooks --data-urlencode 'text=a b&c/é' --data-urlencode @TEXT --data-urlencode name@TEXT --data-urlencode =x=y`,
    `curl URL/hooks --json '{"a":1}' --json @CONTENT`,
    `curl -G URL/hooks?z=1 -d a=1 --data-urlencode 'b=c d'`,
    `curl -u user:pass -A agent -e http://ref.example/ -b 'k=v' URL/hooks -H 'Accept:' -H 'X-Empty;' -H 'Content-Type: text/plain' -d "a \\"b\\" \\$c \\d"`,
    `curl --compressed --location --max-time 5 --url URL/hooks --request POST --header "A: b"  --data 'x' | jq .`,
    `curl URL/hooks -H 'A: b' # a word that is no comment to curl`.replace(/ #.*/, ''),
    `$ curl URL -k --http1.1 --retry 0 --data-raw ''`,
  ];

  test.each(rows)('is read as curl sends it: %s', async (row) => {
    const line = row.replaceAll('URL', `http://127.0.0.1:${app.port}`).replaceAll('CONTENT', content).replaceAll('TEXT', text);
    const { code, stderr } = await run('bash', ['-c', line.replace(/^\$ /, '').replace('curl ', 'curl -q -s ')]);
    expect(stderr).toBe('');
    expect([0, 127].includes(code ?? -1)).toBe(true);
    const sent = read(received);
    const captured = read(line);
    expect({ method: captured.method, target: captured.target }).toEqual({ method: sent.method, target: sent.target });
    expect(captured.body.toString('latin1')).toBe(sent.body.toString('latin1'));
    const { accept: _, 'content-length': __, 'accept-encoding': ___, 'user-agent': agent, ...fields } = toFields(sent);
    const { accept, 'user-agent': own, ...read_ } = toFields(captured);
    expect(read_).toEqual(fields);
    if (own !== undefined) expect(own).toBe(agent);
    expect(accept === undefined || accept === toFields(sent)['accept']).toBe(true);
  });

  test('has the characters outside the basic plane that browsers write as two escapes', () => {
    expect(read(`curl http://h/ --data-raw $'\\ud83d\\ude00\\U1F600'`).body.toString()).toBe('😀😀');
  });

  test.each([
    ['curl -F a=b http://h/', 'multipart'],
    ['curl -T file http://h/', '--data-binary @FILE'],
    ['curl -d @- http://h/', 'put it into a file'],
    ['curl -d x', 'no URL'],
    [`curl http://h/ -d 'x`, 'without its end'],
    [`curl http://h/ -d "x`, 'without its end'],
    [`curl http://h/ -d $'x`, 'without its end'],
    ['curl http://h/ -H "A: $TOKEN"', 'put the value there'],
    ['curl http://h/ -d $(cat x)', 'put the value there'],
    ['curl http://h/ -H nonsense', 'is not a header such as Name: value'],
    ['curl http://h/ -d @/nowhere/x', 'ENOENT'],
  ])('that cannot be parsed is a clear error: %s', (line, message) => {
    expect(() => read(line)).toThrow(message);
  });

  test('has the same words as in bash, with any quoting', () => {
    const word = fc
      .oneof(fc.string({ unit: 'binary', maxLength: 12 }), fc.constantFrom("'", '"', '\\', '$', 'a b', '\n', 'é', '😀', '\t\x1b'))
      .filter((each) => !each.includes('\0') && each.isWellFormed());
    fc.assert(
      fc.property(fc.array(word, { minLength: 30, maxLength: 60, size: 'max' }), (words) => {
        const quoted = spawnSync('bash', ['-c', 'printf "%q " "$@"', 'bash', ...words], {
          env: { PATH: process.env['PATH'], LC_ALL: 'C.UTF-8' },
        }).stdout;
        const double = words.map((each) => `"${each.replace(/[\\"$`]/g, '\\$&')}"`).join(' ');
        const latin1 = words.map((each) => Buffer.from(each).toString('latin1'));
        expect(toWords(quoted.toString('latin1'))).toEqual(latin1);
        expect(toWords(Buffer.from(double).toString('latin1'))).toEqual(latin1);
      }),
      { numRuns: 5, endOnFailure: true },
    );
  });
});

describe('a raw request', () => {
  // A pattern that looks again from every blank takes minutes, and the test ends before that.
  test('may have blanks in a field, and loses only those around its value', () => {
    const blanks = ' \t'.repeat(150_000);
    const { headers } = read(`POST / HTTP/1.1\r\nA:${blanks}x${blanks}y${blanks}\r\n\r\n`);
    expect(headers).toEqual(['A', `x${blanks}y`]);
  });

  test('is exactly what was sent, with its body byte for byte', async () => {
    await run('curl', [
      '-q',
      '-s',
      `http://127.0.0.1:${app.port}/hooks?a=b`,
      '-H',
      'Webhook-Id: x',
      '--data-binary',
      `@${content}`,
    ]);
    expect(read(received)).toMatchObject({ method: 'POST', origin: undefined, target: '/hooks?a=b', body: CONTENT, notes: [] });
    expect(toFields(read(received))['webhook-id']).toBe('x');
  });

  test('may be chunked', async () => {
    const args = [
      '-q',
      '-s',
      `http://127.0.0.1:${app.port}/`,
      '-H',
      'Transfer-Encoding: chunked',
      '--data-binary',
      `@${content}`,
    ];
    await run('curl', args);
    expect(received.toString('latin1')).toContain('chunked');
    expect(read(received).body).toEqual(CONTENT);
    expect(read('POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{"decoded":1}').body.toString()).toBe('{"decoded":1}');
  });

  test.each([
    ['POST http://hooks.example.com/a?b HTTP/1.1\nHost: x\n\nbody', { origin: 'http://hooks.example.com', target: '/a?b' }],
    ['\r\n\nPOST /a HTTP/2\nA: b\n\n', { target: '/a' }],
    ['GET / HTTP/1.0', { method: 'GET', headers: [] }],
    [
      'POST / HTTP/1.1\nContent-Length: 2\n\n{}\n',
      { body: Buffer.from('{}'), notes: [expect.stringContaining('1 bytes after the 2')] },
    ],
    [
      'POST / HTTP/1.1\nContent-Length: 9\n\n{}',
      { body: Buffer.from('{}'), notes: [expect.stringContaining('it is truncated')] },
    ],
  ])('may be edited by hand: %j', (bytes, expected) => {
    expect(read(bytes)).toMatchObject(expected);
  });
});

describe('a trace of curl', () => {
  test.each([['--trace'], ['--trace-time', '--trace']])('written by %j contains the bytes that it sent', async (...options) => {
    const file = join(folder, 'trace');
    await run('curl', [
      '-q',
      '-s',
      `http://127.0.0.1:${app.port}/hooks`,
      ...options,
      file,
      '-H',
      'Webhook-Id: x',
      '--data-binary',
      `@${content}`,
    ]);
    const captured = read(readFileSync(file));
    expect(captured).toMatchObject({ method: 'POST', target: '/hooks', body: CONTENT });
    expect(captured.headers).toEqual(read(received).headers);
  });

  test('without the bytes is an error that names the option to write them', async () => {
    const file = join(folder, 'ascii');
    await run('curl', ['-q', '-s', `http://127.0.0.1:${app.port}/hooks`, '--trace-ascii', file, '-d', 'x']);
    expect(() => read(readFileSync(file))).toThrow('use --trace, because');
  });
});

describe('an HTTP Archive', () => {
  const entry = (postData: unknown, more = {}): unknown => ({
    startedDateTime: '2026-11-21T10:00:00.000Z',
    request: {
      method: 'POST',
      url: 'https://hooks.example.com/a?b=c#d',
      httpVersion: 'HTTP/2',
      headers: [
        { name: ':authority', value: 'hooks.example.com' },
        { name: 'Webhook-Id', value: 'x' },
      ],
      postData,
      ...more,
    },
    response: { status: 200 },
  });
  const har = (...entries: unknown[]): string => JSON.stringify({ log: { version: '1.2', creator: {}, entries } });

  test('contains text, base64 or form parts, and its time', () => {
    const expected = { method: 'POST', origin: 'https://hooks.example.com', target: '/a?b=c', headers: ['Webhook-Id', 'x'] };
    expect(read(har(entry({ mimeType: 'application/json', text: '{"é":1}\r\n' })))).toMatchObject({
      ...expected,
      body: Buffer.from('{"é":1}\r\n'),
      at: Date.parse('2026-11-21T10:00:00Z'),
      notes: [],
    });
    expect(read(`\ufeff${har(entry({ text: CONTENT.toString('base64'), encoding: 'base64' }))}`).body).toEqual(CONTENT);
    const form = read(har(entry({ params: [{ name: 'a', value: 'b c' }] })));
    expect([form.body.toString(), form.notes.length]).toEqual(['a=b+c', 1]);
    expect(read(har(entry(undefined))).body).toHaveLength(0);
    expect(read(har(entry({ text: 'a\ufffd' }))).notes[0]).toContain('are lost');
  });

  test('with several requests is an error that asks which one', () => {
    const several = har(entry({ text: 'one' }), entry({ text: 'two' }));
    expect(read(several, { entry: '2' }).body.toString()).toBe('two');
    expect(() => read(several)).toThrow(
      'contains 2 requests; select one with --entry NUMBER:\n  1: POST https://hooks.example.com/a',
    );
    expect(() => read(several, { entry: '3' })).toThrow('--entry');
  });

  test.each([
    ['{', 'not valid JSON'],
    ['{"log":{}}', 'not an HTTP Archive: log.entries'],
    ['{"id":1}', 'give the whole request with its headers'],
  ])('that is not valid is a clear error: %s', (bytes, message) => {
    expect(() => read(bytes)).toThrow(message);
  });
});

test.each([
  ['', {}, 'unknown format'],
  ['hello', {}, 'unknown format'],
  ['hello', { inputFormat: 'xml' }, '--input-format xml is not one of http, har, curl, trace'],
  ['hello', { inputFormat: 'http' }, 'not METHOD TARGET HTTP/1.1'],
  ['GET / HTTP/1.1', { entry: '1' }, '--entry is only for HAR files'],
])('%j with %j is a usage error', (bytes, options, message) => {
  expect(() => read(bytes, options)).toThrow(message);
});

test('any text is either parsed or rejected with a reason', () => {
  const formats = fc.constantFrom(undefined, 'http', 'har', 'curl', 'trace');
  fc.assert(
    fc.property(
      fc.uint8Array({ maxLength: 80 }),
      formats,
      fc.constantFrom('', 'curl ', '{"log":', 'POST / HTTP/1.1\n', '=> Send header\n0000: '),
      (bytes, format, start) => {
        const all = Buffer.concat([Buffer.from(start), bytes]);
        try {
          expect(
            Buffer.isBuffer(readCaptured(all, format === undefined ? {} : { inputFormat: format }, () => Buffer.alloc(0)).body),
          ).toBe(true);
        } catch (thrown) {
          expect(thrown).toMatchObject({ kind: 'user' });
        }
      },
    ),
    { numRuns: 300 },
  );
});
