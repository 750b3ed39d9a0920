/** What a client of the forward proxy may ask for, and why it is rejected otherwise. */
import { describe, expect, test } from 'vitest';
import { parseAbsoluteTarget, parseConnectTarget } from '../../../../src/gateway/egress-proxy/proxy-server.ts';

const parse = (url: string, method = 'GET'): string => {
  const parsed = parseAbsoluteTarget(url, method);
  if ('problem' in parsed) return parsed.problem;
  const { destination, target } = parsed;
  return `${destination.host} ${destination.port} ${target.raw}`;
};

describe('a URL is forwarded', () => {
  test.each([
    ['http://deb.example/flat/./Release', 'deb.example 80 /flat/./Release'],
    ['http://deb.example/a/../../b', 'deb.example 80 /a/../../b'],
    ['http://deb.example//a//./b', 'deb.example 80 //a//./b'],
    ['http://deb.example/a%2f..%5Cb%', 'deb.example 80 /a%2f..%5Cb%'],
    ['http://deb.example/a\\b', 'deb.example 80 /a\\b'],
    ['HTTP://DEB.example.:8080', 'deb.example 8080 /'],
    ['http://deb.example?a=b', 'deb.example 80 /?a=b'],
    ['http://[2001:db8::1]/x', '2001:db8::1 80 /x'],
    ['http://127.0.0.1:81/@user/x', '127.0.0.1 81 /@user/x'],
  ])('%s', (url, expected) => {
    expect(parse(url)).toBe(expected);
  });

  test('with OPTIONS and without a path as an asterisk', () => {
    expect(parse('http://deb.example', 'OPTIONS')).toBe('deb.example 80 *');
    expect(parse('http://deb.example/', 'OPTIONS')).toBe('deb.example 80 /');
    expect(parse('http://deb.example?', 'OPTIONS')).toBe('deb.example 80 /?');
  });
});

describe('a URL is rejected, and the reason is its own', () => {
  test.each([
    ['/x', /not an absolute URL, and this port is a forward proxy/],
    ['*', /not an absolute URL/],
    ['//deb.example/x', /not an absolute URL/],
    ['https://deb.example/x', /only http URLs; for others, use CONNECT/],
    ['ftp://deb.example/x', /only http URLs/],
    ['http://user:pass@deb.example/x', /user or a password .*Authorization/],
    ['http://user@deb.example/x', /user or a password/],
    ['http://deb.example/x#y', /fragment/],
    ['http://deb.example#y', /fragment/],
    ['http://deb.example/\u00fc', /non-ASCII byte, which must be percent-encoded/],
    ['http://deb.example/a\tb', /control/],
    ['http:///x', /host of the URL is malformed: it is empty/],
    ['http://:80/x', /it is empty/],
    ['http://deb.example:/x', /the port is not a number/],
    ['http://deb.example:0/x', /the port is not a number between 1 and 65535/],
    ['http://deb.example:99999/x', /the port/],
    ['http://deb.example:80:80/x', /IPv6 address must be in brackets|the port/],
    ['http://2130706433/x', /must not end in a number/],
    ['http://0x7f.1/x', /must not end in a number/],
    ['http://[::g]/x', /not an IPv6 address/],
    ['http://::1/x', /brackets|the port/],
    ['http://a%41.example/x', /characters that no host name has/],
    ['http://deb.example\\@evil.example/x', /followed by a backslash/],
    ['http://deb.example\\x', /followed by a backslash/],
  ])('%s', (url, expected) => {
    expect(parse(url)).toMatch(expected);
  });

  test.each([
    ['deb.example', /not host:port: it needs a port/],
    ['deb.example:', /the port is not a number/],
    ['deb.example:65536', /the port is not a number/],
    ['user@deb.example:443', /characters that no host name has/],
    ['http://deb.example:443', /CONNECT is not host:port/],
    [':443', /it is empty/],
  ])('CONNECT %s', (url, expected) => {
    const parsed = parseConnectTarget(url);
    expect('problem' in parsed ? parsed.problem : '').toMatch(expected);
  });
});
