import { execFileSync } from 'node:child_process';
import { pbkdf2 } from 'node:crypto';
import fs, { closeSync, constants, createReadStream, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { LogBatches, toTextLines } from '../../../../src/telemetry/log/log-batches.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { useFolder } from '../../../support/fixtures.ts';
import { until } from '../../../support/gate.ts';

const folder = useFolder();

test('writes every line once, whether a batch is full or not', async () => {
  const file = join(folder, 'log');
  const fd = openSync(file, 'w');
  const batches = new LogBatches(fd, { clock: new FakeClock(), flushAfter: 250 });
  const lines = Array.from({ length: 2_000 }, (_, i) => `line ${i}\n`);
  for (const line of lines) batches.write(line);
  batches.flushSync();
  // A batch that was under way may land behind the last words; it is written all the same.
  const written = (): string[] => readFileSync(file, 'utf8').split('\n').slice(0, -1);
  await until(() => written().length === lines.length);
  expect(new Set(written().map((line) => `${line}\n`))).toEqual(new Set(lines));
  expect(batches.takeDropped()).toBe(0);
});

test('what must be written at once is in the file, in order, when the call returns, although all threads are busy', async () => {
  const file = join(folder, 'last-words');
  const batches = new LogBatches(openSync(file, 'w'), { clock: new FakeClock(), flushAfter: 250 });
  const busy = Array.from({ length: 8 }, () => promisify(pbkdf2)('password', 'salt', 100_000, 32, 'sha256'));
  const seen = ['draining\n', 'stopped\n'].map((line) => {
    batches.write(line);
    batches.flushSync();
    return readFileSync(file, 'utf8');
  });
  await Promise.all(busy);
  expect(seen).toEqual(['draining\n', 'draining\nstopped\n']);
});

test('writes what does not fill a batch after the configured time, and has no timer while nothing waits', async () => {
  const file = join(folder, 'quiet-log');
  const clock = new FakeClock();
  const batches = new LogBatches(openSync(file, 'w'), { clock, flushAfter: 250 });
  expect(clock.timers).toBe(0);
  batches.write('first\n');
  await clock.advance(200);
  batches.write('second\n');
  await clock.advance(49);
  expect([readFileSync(file, 'utf8'), clock.timers]).toEqual(['', 1]);
  await clock.advance(1);
  expect(clock.timers).toBe(0);
  await until(() => readFileSync(file, 'utf8') === 'first\nsecond\n');
  batches.write(`${'x'.repeat(70_000)}\n`);
  expect(clock.timers).toBe(0);
});

test('buffers a limited amount for a reader that does not read, and counts the dropped lines', async () => {
  const fifo = join(folder, 'fifo');
  execFileSync('mkfifo', [fifo]);
  const fd = openSync(fifo, constants.O_RDWR | constants.O_NONBLOCK);
  const batches = new LogBatches(fd, { clock: new FakeClock(), flushAfter: 250 });
  const written = 60_000;
  for (let i = 0; i < written; i++) batches.write(`${String(i).padStart(99)}\n`);
  batches.flush();
  const dropped = batches.takeDropped();
  expect(dropped).toBeGreaterThan(0);
  expect(batches.takeDropped()).toBe(0);

  const kept = written - dropped;
  let text = '';
  const reader = createReadStream(fifo, { encoding: 'utf8' });
  for await (const part of reader) {
    text += String(part);
    if (text.length >= kept * 100) break;
  }
  closeSync(fd);
  const lines = text.split('\n').slice(0, -1);
  expect(lines).toHaveLength(kept);
  expect(lines.every((line) => line.length === 99)).toBe(true);
});

test('does not wait for a reader that has gone', () => {
  const fifo = join(folder, 'gone');
  execFileSync('mkfifo', [fifo]);
  const reader = openSync(fifo, constants.O_RDONLY | constants.O_NONBLOCK);
  const fd = openSync(fifo, constants.O_WRONLY | constants.O_NONBLOCK);
  const batches = new LogBatches(fd, { clock: new FakeClock(), flushAfter: 250 });
  closeSync(reader);
  batches.write('under way\n');
  batches.flush();
  batches.write('last words\n');
  const { writeSync } = fs;
  expect(() => batches.flushSync()).toThrow('EPIPE');
  expect(fs.writeSync).toBe(writeSync);
  expect(() => batches.flushSync()).not.toThrow();
});

describe('toTextLines', () => {
  const line = (fields: object): string =>
    `${JSON.stringify({ level: 'info', time: 0, service: 'sidegate', version: '1', msg: 'request', ...fields })}\n`;

  test('a line has the time, the level, the event and its fields', () => {
    expect(toTextLines(line({ route: 'a', status: 200, hint: 'two words' }) + line({ level: 'warn', msg: 'draining' }))).toBe(
      '00:00:00 info  request route=a status=200 hint="two words"\n00:00:00 warn  draining\n',
    );
  });

  test.each(['\u001b]0;x\u0007', 'a\nb', 'a\rb', 'x status=500', '"', ''])(
    'a value from a client adds neither a line nor a field: %j',
    (value) => {
      const [text = '', ...more] = toTextLines(line({ user: value })).split('\n');
      expect(more).toEqual(['']);
      expect(text).toBe(`00:00:00 info  request user=${JSON.stringify(value)}`);
    },
  );

  test('a control character of a terminal is never written', () => {
    const text = toTextLines(line({ detail: Array.from({ length: 0xa0 }, (_, code) => String.fromCharCode(code)).join('') }));
    expect([...text].filter((char) => char !== '\n' && /\p{Cc}/u.test(char))).toEqual([]);
  });
});
