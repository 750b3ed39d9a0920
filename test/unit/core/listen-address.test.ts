import { describe, expect, test } from 'vitest';
import {
  isLoopbackOnly,
  isOverlapping,
  isReachedBy,
  type ListenAddress,
  parseListenAddress,
  toAddressText,
} from '../../../src/core/listen-address.ts';

const parse = (text: string): ListenAddress => {
  const address = parseListenAddress(text);
  if ('problem' in address) throw new Error(address.problem);
  return address;
};

describe('an address to listen on', () => {
  test.each([
    ['127.0.0.1:8080', ['127.0.0.1'], 8080],
    ['[::1]:8080', ['::1'], 8080],
    ['::1:8080', ['::1'], 8080],
    ['localhost:0', ['localhost'], 0],
    [':8480', [], 8480],
    ['10.0.0.7,fd00::7:8480', ['10.0.0.7', 'fd00::7'], 8480],
    ['10.0.0.7,[FD00:0::7]:8480', ['10.0.0.7', 'fd00::7'], 8480],
    ['0.0.0.0,[::]:8480', ['0.0.0.0', '::'], 8480],
  ])('is parsed: %s', (text, hosts, port) => {
    expect(parseListenAddress(text)).toEqual({ hosts, port });
  });

  test.each([
    ['8080', /^"8080" is not an address; write host:port/],
    ['127.0.0.1', /is not an address/],
    ['127.0.0.1:70000', /^port 70000 is above 65535$/],
    ['$(SIDEGATE_POD_IPS):80', /^"\$\(SIDEGATE_POD_IPS\)" is not a host name or IP address$/],
    ['10.0.0.7,,10.0.0.8:80', /^"" is not a host name/],
    ['10.0.0.7,10.0.0.7:80', /^10.0.0.7 is listed twice$/],
    ['[::1],[0::1]:80', /^::1 is listed twice$/],
    ['0.0.0.0,10.0.0.7:80', /^0.0.0.0 already includes the other addresses of its family$/],
    ['[10.0.0.7]:80', /^"\[10.0.0.7\]" is not a host/],
  ])('is rejected: %s', (text, problem) => {
    expect(parseListenAddress(text)).toEqual({ problem: expect.stringMatching(problem) });
  });

  test.each([
    ['10.0.0.7:80', '10.0.0.7:80', true],
    ['10.0.0.7,10.0.0.8:80', '10.0.0.8,10.0.0.9:80', true],
    ['10.0.0.7:80', '10.0.0.8:80', false],
    ['10.0.0.7:80', '10.0.0.7:81', false],
    [':80', '127.0.0.1:80', true],
    ['127.0.0.1:80', '0.0.0.0:80', true],
    ['127.0.0.1:0', '127.0.0.1:0', false],
  ])('%s and %s: overlap is %s', (a, b, expected) => {
    expect(isOverlapping(parse(a), parse(b))).toBe(expected);
  });

  test('is formatted as it was parsed', () => {
    expect([toAddressText('::1', 80), toAddressText('127.0.0.1', 80)]).toEqual(['[::1]:80', '127.0.0.1:80']);
  });

  test('is local only if all of its addresses are loopback', () => {
    expect(['127.0.0.1,[::1]:1', '127.0.0.1,10.0.0.7:1', ':1', '0.0.0.0:1'].map((text) => isLoopbackOnly(parse(text)))).toEqual([
      true,
      false,
      false,
      false,
    ]);
  });
});

describe('a connection', () => {
  test.each([
    // The gate on the pod's addresses, the app on loopback: the same port, at two addresses.
    ['10.0.0.7,[fd00::7]:80', '127.0.0.1', false],
    ['10.0.0.7,[fd00::7]:80', '::1', false],
    ['10.0.0.7,[fd00::7]:80', 'localhost', false],
    ['10.0.0.7,[fd00::7]:80', '0.0.0.0', false],
    ['10.0.0.7,[fd00::7]:80', '10.0.0.7', true],
    ['10.0.0.7,[fd00::7]:80', 'fd00:0:0::7', true],
    ['10.0.0.7:80', '::ffff:10.0.0.7', true],
    ['127.0.0.2:80', '127.0.0.1', false],
    ['127.0.0.2:80', '0.0.0.0', false],
    ['127.0.0.1:80', '0.0.0.0', true],
    ['127.0.0.1:80', 'LOCALHOST', true],
    ['[::1]:80', '::', true],
    ['localhost:80', '127.0.0.1', true],
    ['localhost:80', '::1', true],
    ['localhost:80', '127.0.0.2', false],
    [':80', '127.0.0.1', true],
    [':80', '127.0.0.53', true],
    [':80', '::1', true],
    [':80', 'app.example', false],
    ['0.0.0.0:80', '::1', false],
    ['0.0.0.0:80', '127.0.0.1', true],
    ['[::]:80', '127.0.0.1', true],
    ['127.0.0.1,[::]:80', '127.0.0.2', false],
    ['app.example:80', 'app.example.', true],
  ])('to the port of %s at %s reaches it: %s', (listen, host, expected) => {
    const address = parse(listen);
    expect(isReachedBy(address, { host, port: 80 })).toBe(expected);
    expect(isReachedBy(address, { host, port: 81 })).toBe(false);
  });
});
