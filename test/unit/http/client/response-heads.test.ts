import { describe, expect, test } from 'vitest';
import { ResponseHeaderPolicy } from '../../../../src/gateway/upstream/headers.ts';
import { parseResponseHead, ResponseHeads } from '../../../../src/http/client/response-parser.ts';
import { fc } from '../../../support/property.ts';

const status = fc.constantFrom(200, 204, 304, 404, 503);
const field = fc.constantFrom(
  'Content-Length: 3',
  'Content-Length: x',
  'Connection: close',
  'Connection: X-A',
  'X-A: 1',
  'X-A: 2',
  'bad',
);
const text = fc
  .tuple(status, fc.array(field, { maxLength: 4 }))
  .map(([code, fields]) => [`HTTP/1.1 ${code} Text`, ...fields].join('\r\n'));

describe('the heads of responses that are remembered', () => {
  test('are what the parser makes of each, whatever came before', () => {
    fc.assert(
      fc.property(fc.array(text, { maxLength: 40 }), (texts) => {
        const heads = new ResponseHeads();
        for (const each of texts) expect(heads.parse(each)).toEqual(parseResponseHead(each));
      }),
    );
  });

  test('lead to the header for the sender that a head for the first time leads to', () => {
    fc.assert(
      fc.property(fc.array(text, { maxLength: 40 }), (texts) => {
        const heads = new ResponseHeads();
        const policy = new ResponseHeaderPolicy(new Set());
        for (const each of texts) {
          const head = heads.parse(each);
          if (typeof head === 'string') continue;
          const fresh = new ResponseHeaderPolicy(new Set()).toSenderHead(head.status, [...head.headers]);
          expect(policy.toSenderHead(head.status, head.headers)).toEqual(fresh);
        }
      }),
    );
  });

  test('are the same object for the same text, and do not include long heads', () => {
    const heads = new ResponseHeads();
    const [short, long] = ['HTTP/1.1 200 OK\r\nX-A: 1', `HTTP/1.1 200 OK\r\nX-A: ${'x'.repeat(5_000)}`];
    expect(heads.parse(short)).toBe(heads.parse(short));
    expect(heads.parse(long)).not.toBe(heads.parse(long));
  });
});
