import { describe, expect, test } from 'vitest';
import { ResponseHeaderPolicy } from '../../../../src/gateway/upstream/headers.ts';

const policy = new ResponseHeaderPolicy(new Set());

describe('the head for the sender', () => {
  test.each([
    ...['Connection', 'Keep-Alive', 'Proxy-Connection', 'Proxy-Authenticate', 'TE', 'Trailer', 'Transfer-Encoding', 'Upgrade'],
  ])('lacks %s, which is hop-by-hop', (name) => {
    expect(policy.toSenderHead(200, [name, 'x', 'X-A', '1']).fields).toEqual(['X-A', '1']);
    expect(policy.toSenderHead(200, ['X-A', '1', name.toLowerCase(), 'x']).fields).toEqual(['X-A', '1']);
  });

  test('keeps order, case and repetition, especially of Set-Cookie', () => {
    const headers = ['Set-Cookie', 'a=1', 'X-A', 'é', 'set-cookie', 'b=2', 'Sidegate-X', '1', 'Date', 'now'];
    expect(policy.toSenderHead(200, headers).fields).toEqual(headers);
  });

  test('lacks the fields that Connection names, before or after it, but never the length', () => {
    const headers = [
      ...['X-Hop', '1', 'Connection', 'keep-alive, x-hop', 'X-B', '2', 'connection', 'X-B,Content-Length'],
      ...['Content-Length', '3', 'X-C', '4', 'Connection', 'close'],
    ];
    expect(policy.toSenderHead(200, headers)).toEqual({ fields: ['Content-Length', '3', 'X-C', '4'], contentLength: 3 });
  });

  test('has a length with any status except 101 and 204', () => {
    expect(policy.toSenderHead(200, ['content-LENGTH', '7'])).toEqual({ fields: ['content-LENGTH', '7'], contentLength: 7 });
    expect(policy.toSenderHead(304, ['Content-Length', '7']).fields).toEqual(['Content-Length', '7']);
    for (const status of [101, 204])
      expect(policy.toSenderHead(status, ['Content-Length', '0'])).toEqual({ fields: [], contentLength: undefined });
  });

  test.each(['webhook-delivery', 'Webhook-Delivery', 'WEBHOOK_DELIVERY', 'X-Slack-No-Retry', 'x_slack_no_retry'])(
    'lacks %s, with which the app would disable its sender',
    (name) => {
      expect(policy.toSenderHead(200, [name, '1']).fields).toEqual([]);
    },
  );

  test('has a sender control field that the route allows, and no other', () => {
    const allowing = new ResponseHeaderPolicy(new Set(['x-slack-no-retry']));
    expect(allowing.toSenderHead(200, ['X-Slack-No-Retry', '1', 'Webhook-Delivery', '1']).fields).toEqual([
      'X-Slack-No-Retry',
      '1',
    ]);
  });

  test('is decided once for each name after an app sent more names than are cached', () => {
    const allowed = new Set<string>();
    const lookups: string[] = [];
    allowed.has = (name) => lookups.push(name) === 0;
    const fresh = new ResponseHeaderPolicy(allowed);
    for (let i = 0; i < 1_100; i++) fresh.toSenderHead(200, [`X-${i}`, '']);
    for (let i = 0; i < 5; i++) fresh.toSenderHead(200, ['Webhook-Delivery', '1']);
    expect(lookups).toEqual(['webhook-delivery']);
  });

  test('is the same when there are more names than are cached', () => {
    const fresh = new ResponseHeaderPolicy(new Set());
    for (let i = 0; i < 1_100; i++) fresh.toSenderHead(200, [`X-${i}`, '']);
    expect(fresh.toSenderHead(200, ['Keep-Alive', 'x', 'X-New', '1']).fields).toEqual(['X-New', '1']);
  });

  test('treats names of object members as plain names', () => {
    const headers = ['__proto__', '1', 'constructor', '2', 'toString', '3'];
    expect(policy.toSenderHead(200, headers).fields).toEqual(headers);
  });
});

test('passes on only trailers that do not change the meaning of the header', () => {
  const trailers = ['X-Sum', '1', 'Content-Length', '5', 'Set-Cookie', 'a', 'Transfer-Encoding', 'x', 'Webhook-Delivery', '1'];
  expect(policy.toSenderTrailers([...trailers, 'Connection', 'x', 'server-timing', 'a'])).toEqual([
    ['X-Sum', '1'],
    ['server-timing', 'a'],
  ]);
});
