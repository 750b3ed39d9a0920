import { expect, test } from 'vitest';
import { findHeaderProblem } from '../../../../src/provider/endpoints/endpoint.ts';

test('accepts headers that identify the sender to a receiver', () => {
  const headers = [
    ['Authorization', 'Bearer abc.def'],
    ['X-Api-Key', 'k'],
    ['Cookie', 'a=b; c=d'],
    ['X-Empty', ''],
  ] as const;
  expect(findHeaderProblem(headers)).toBeUndefined();
});

test.each([
  ...['Host', 'content-length', 'Content-Type', 'Content-Encoding', 'Transfer-Encoding', 'Connection', 'Keep-Alive', 'TE'],
  ...['Trailer', 'Upgrade', 'HTTP2-Settings', 'Expect', 'User-Agent', 'Traceparent', 'tracestate', 'Via'],
  ...['Webhook-Id', 'webhook_signature', 'WEBHOOK-TIMESTAMP', 'Webhook-Anything', 'svix-id', 'Sidegate-Route'],
  ...['Proxy-Authorization', 'Proxy-Connection', 'Content_Length', 'Transfer.Encoding'],
])('rejects %s, which is not for endpoints to set', (name) => {
  expect(findHeaderProblem([[name, 'x']])?.problem).toBe(`the header ${name} cannot be set`);
});

test.each([['line\r\nbreak'], ['line\nbreak'], ['nul\0'], [' leading'], ['trailing '], ['\t'], ['käse'], ['del\x7f']])(
  'rejects the value %j without quoting it',
  (value) => {
    const { problem, hint } = findHeaderProblem([['X-Token', value]]) ?? {};
    expect(problem).toBe('the value of the header X-Token is invalid');
    expect(hint).not.toContain(value);
  },
);

test.each([[''], ['a b'], ['a:'], ['a\r\nb'], ['ä'], ['x'.repeat(129)]])('rejects the name %j', (name) => {
  expect(findHeaderProblem([[name, 'x']])?.problem).toBe('a header name is not a token');
});

test('rejects a name that is set twice, also in a spelling that apps read as the same', () => {
  const twice = [
    ['X-Api-Key', 'a'],
    ['x_api_key', 'b'],
  ] as const;
  expect(findHeaderProblem(twice)?.problem).toBe('the header x_api_key is set twice');
});

test('rejects more than 32 headers, and more than 8 KiB', () => {
  const many = Array.from({ length: 33 }, (_, index) => [`X-${index}`, ''] as const);
  expect(findHeaderProblem(many)?.problem).toBe('there are 33 headers');
  expect(findHeaderProblem(many.slice(1))).toBeUndefined();
  expect(findHeaderProblem([['X-Long', 'x'.repeat(8_182)]])).toBeUndefined();
  expect(findHeaderProblem([['X-Long', 'x'.repeat(8_183)]])?.problem).toBe('the headers have 8193 bytes');
});
