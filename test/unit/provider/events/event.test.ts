import { expect, test } from 'vitest';
import { readTraceHeaders } from '../../../../src/provider/events/event.ts';

const PARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

test('reads a valid trace context', () => {
  expect(readTraceHeaders(JSON.stringify({ traceparent: PARENT, tracestate: 'a=1,b=2' }))).toEqual([
    ['traceparent', PARENT],
    ['tracestate', 'a=1,b=2'],
  ]);
  expect(readTraceHeaders(JSON.stringify({ traceparent: PARENT, other: 1 }))).toEqual([['traceparent', PARENT]]);
});

test.each([
  '',
  '{}',
  'null',
  '[1]',
  '"traceparent"',
  '{"traceparent"',
  '{"traceparent":1}',
  JSON.stringify({ traceparent: `${PARENT}\r\nX: 1` }),
  JSON.stringify({ traceparent: 'x', tracestate: 'a=1' }),
])('ignores %s', (metadata) => {
  expect(readTraceHeaders(metadata)).toEqual([]);
});

test('drops a malformed tracestate', () => {
  expect(readTraceHeaders(JSON.stringify({ traceparent: PARENT, tracestate: 'a=1\r\nX: 1' }))).toEqual([['traceparent', PARENT]]);
});
