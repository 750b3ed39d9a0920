import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CREDENTIAL_ROWS } from '../../league/credential-rows.ts';
import { FORWARDING_ROWS } from '../../league/forwarding-rows.ts';
import { MEASURED_ROWS } from '../../league/measured-rows.ts';
import { parseMessage, type Recorder, startRecorder } from '../../league/recorder.ts';
import { toReport } from '../../league/report.ts';
import { makeUsers } from '../../league/requests.ts';
import { isMatch, playRow } from '../../league/row.ts';
import { type System, startSystem } from '../../league/systems.ts';

const ROWS = [...CREDENTIAL_ROWS, ...FORWARDING_ROWS];

describe('sidegate’s column', () => {
  let gate: System;
  beforeAll(async () => {
    gate = await startSystem('sidegate', await makeUsers());
  });
  afterAll(() => gate.stop());

  test.each(ROWS.map((row) => [row.title, row] as const))('is correct: %s', async (_title, row) => {
    expect(row.column).toContain(await playRow(row, gate));
  });
});

test('a server that forwards everything unchanged has almost no matches', async () => {
  const app: Recorder = await startRecorder();
  const opponent = { port: app.port, app, isAlive: () => true };
  const matched: string[] = [];
  for (const row of ROWS) if (isMatch(row, await playRow(row, opponent))) matched.push(row.title);
  app.close();
  expect(matched).toEqual(['`basic` / `BASIC`', 'two spaces after the scheme', 'chunked DELETE']);
});

test('a stopped server matches nothing', async () => {
  const app = await startRecorder();
  app.close();
  const opponent = { port: app.port, app, isAlive: () => false };
  for (const row of ROWS) expect(row.column, row.title).not.toContain(await playRow(row, opponent));
});

describe('the app', () => {
  test.each([
    ['no message before its end is there', 'POST /x HTTP/1.1\r\nContent-Length: 5\r\n\r\nhell', undefined],
    [
      'no message before its last chunk is there',
      'POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n',
      undefined,
    ],
    ['no message in half a chunk', 'POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel', undefined],
    [
      'content of chunks without trailer lines',
      'POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;x=1\r\na\r\n2\r\nbc\r\n0\r\nX: y\r\n\r\nGET',
      { method: 'POST', target: '/x', framing: 'chunked', content: 'abc', rest: 'GET' },
    ],
    [
      'what stands behind a length of 0 as the start of something else',
      'DELETE /x HTTP/1.1\r\nContent-Length: 0\r\n\r\nGET /evil',
      { method: 'DELETE', framing: 'Content-Length', content: '', rest: 'GET /evil' },
    ],
    [
      'both framings as both',
      'POST /x HTTP/1.1\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      { framing: 'both' },
    ],
  ])('reads %s', (_title, bytes, expected) => {
    const message = parseMessage(bytes);
    if (expected === undefined) expect(message).toBeUndefined();
    else expect(message).toMatchObject(expected);
  });
});

describe('the report', () => {
  test('marks mismatches and counts matches, by RFC and by policy', () => {
    const line = (title: string, ground: string, ...cells: readonly [string, boolean][]) => ({
      title,
      column: '401',
      ground,
      cells: cells.map(([text, isMatch]) => ({ text, isMatch })),
    });
    const text = toReport({
      entrants: [
        { name: 'sidegate', version: '1' },
        { name: 'nginx', version: '2' },
      ],
      credentials: [line('a', 'RFC 1', ['401', true], ['200', false])],
      forwarding: [line('b', 'policy (RFC 1)', ['401', true], ['401', true])],
      absent: ['Caddy is left out'],
      machine: [],
      busyBefore: 0,
    });
    expect(text).toContain('| a | 401 | 401 | ✗ 200 | RFC 1 |');
    expect(text).toContain('| sidegate | 2 of 2 | 1 of 1 | 1 of 1 |');
    expect(text).toContain('| nginx | 1 of 2 | 0 of 1 | 1 of 1 |');
    expect(text).toContain('- Caddy is left out');
  });

  test('in docs/ has exactly the existing rows', () => {
    const page = readFileSync(join(import.meta.dirname, '..', '..', 'docs', 'league.md'), 'utf8').split('\n');
    const shown = page.filter((line) => line.startsWith('| ')).map((line) => line.slice(2, -2).split(' | '));
    const rows = [...ROWS.map((row) => ({ ...row, column: row.column.join(' or ') })), ...MEASURED_ROWS];
    for (const { title, column, ground } of rows) {
      const cells = shown.find(([first]) => first === title) ?? [];
      expect([cells[1], cells.at(-1)], title).toEqual([column, ground]);
    }
    // Each table has a head and a line below it.
    expect(shown.filter((cells) => cells.length > 4)).toHaveLength(rows.length + 4);
  });
});
