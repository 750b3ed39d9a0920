import { expect, test } from 'vitest';
import { toTextLines } from '../../../../src/telemetry/log/log-batches.ts';

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
