import { describe, expect, test } from 'vitest';
import { HeaderFields } from '../../../../src/core/head.ts';
import { findForbiddenField, readOriginalRequest } from '../../../../src/gateway/forward-auth/auth-request.ts';
import { fc } from '../../../support/property.ts';

type Fields = Readonly<Record<string, string | readonly string[] | undefined>>;

const FORWARDED: Fields = {
  'X-Forwarded-Method': 'POST',
  'X-Forwarded-Proto': 'https',
  'X-Forwarded-Host': 'app.example',
  'X-Forwarded-Uri': '/admin?x=1',
};
const ORIGINAL: Fields = {
  'X-Original-Method': 'POST',
  'X-Original-Proto': 'https',
  'X-Original-Host': 'app.example',
  'X-Original-URI': '/admin?x=1',
};
const INGRESS: Fields = {
  'X-Original-Method': 'POST',
  'X-Original-URL': 'https://app.example/admin?x=1',
  'X-Forwarded-Host': 'app.example',
};

function read(fields: Fields): string {
  const raw = Object.entries(fields).flatMap(([name, value]) =>
    value === undefined ? [] : [value].flat().flatMap((line) => [name, line]),
  );
  const found = readOriginalRequest(new HeaderFields(raw));
  return 'code' in found ? `${found.detail}` : `${found.method} ${found.scheme}://${found.host}${found.target.raw}`;
}

describe('the original request is', () => {
  test.each([
    ['what X-Forwarded-* says, as Traefik and Caddy write it', FORWARDED],
    ['what X-Original-* says', ORIGINAL],
    ['what X-Original-URL says, as ingress-nginx writes it', INGRESS],
    [
      'what they say of the host, with and without its port',
      { ...INGRESS, 'X-Original-URL': 'https://app.example:8443/admin?x=1' },
    ],
    ['what all of them say, if it is the same', { ...FORWARDED, ...ORIGINAL, ...INGRESS }],
    ['the same for a host in another case', { ...FORWARDED, 'X-Original-Host': 'APP.example' }],
    ['by https where a WebSocket handshake came by wss', { ...FORWARDED, 'X-Forwarded-Proto': 'wss' }],
  ])('%s', (_, fields) => {
    expect(read(fields)).toBe('POST https://app.example/admin?x=1');
  });

  test('http if a WebSocket handshake used ws', () => {
    expect(read({ ...FORWARDED, 'X-Forwarded-Proto': 'ws' })).toBe('POST http://app.example/admin?x=1');
  });

  test('complete if the URI contains another URL', () => {
    const url = { 'X-Original-URL': 'http://a:8443/b?to=https://c/d', 'X-Forwarded-Host': 'a:8443' };
    expect(read({ ...INGRESS, ...url })).toBe('POST http://a:8443/b?to=https://c/d');
  });
});

test('an original request is unclear if only X-Original-URL names its host, or another one than the proxy chose', () => {
  expect(read({ ...INGRESS, 'X-Forwarded-Host': undefined })).toMatch(/^no x-forwarded-host beside x-original-url/);
  for (const chosen of ['grafana.example', 'app.example.evil', 'app.example:80:443', '[::1]'])
    expect(read({ ...INGRESS, 'X-Forwarded-Host': chosen })).not.toContain('POST');
  const ports = { 'X-Original-URL': 'https://app.example:1/', 'X-Forwarded-Host': 'app.example:2' };
  expect(read({ ...INGRESS, ...ports })).toBe('x-forwarded-host and x-original-url differ');
});

describe('an original request is unclear', () => {
  test.each([
    [
      'without a method',
      { 'X-Forwarded-Method': undefined },
      'no method: none of x-original-method, x-forwarded-method is present',
    ],
    ['without a URI', { 'X-Forwarded-Uri': undefined }, 'no URI: none of x-original-uri, x-forwarded-uri is present'],
    ['without a host', { 'X-Forwarded-Host': undefined }, 'no host: none of x-original-host, x-forwarded-host is present'],
    ['without a scheme', { 'X-Forwarded-Proto': undefined }, 'no scheme: none of x-original-proto, x-forwarded-proto is present'],
    ['with two methods', { 'X-Original-Method': 'GET' }, 'x-original-method and x-forwarded-method differ'],
    ['with a method in another case', { 'X-Original-Method': 'post' }, 'x-original-method and x-forwarded-method differ'],
    ['with two URIs', { 'X-Original-URI': '/public' }, 'x-original-uri and x-forwarded-uri differ'],
    ['with a URI in another spelling', { 'X-Original-URI': '/%61dmin?x=1' }, 'x-original-uri and x-forwarded-uri differ'],
    ['with another URI in the URL', { 'X-Original-URL': 'https://app.example/b' }, 'x-forwarded-uri and x-original-url differ'],
    ['with another host in the URL', { 'X-Original-URL': 'https://b/admin?x=1' }, 'x-forwarded-host and x-original-url differ'],
    [
      'with another scheme in the URL',
      { 'X-Original-URL': 'http://app.example/admin?x=1' },
      'x-forwarded-proto and x-original-url differ',
    ],
    ['with two schemes', { 'X-Original-Proto': 'http' }, 'x-original-proto and x-forwarded-proto differ'],
    ['with two hosts', { 'X-Original-Host': 'b' }, 'x-original-host and x-forwarded-host differ'],
    ['with a repeated field', { 'X-Forwarded-Uri': ['/admin', '/admin'] }, 'repeated x-forwarded-uri'],
    ['with a repeated URL', { 'X-Original-URL': ['https://a/', 'https://a/'] }, 'repeated x-original-url'],
    ['with a method that is not a token', { 'X-Forwarded-Method': 'GET /' }, 'x-forwarded-method is not a valid method'],
    ['with an empty method', { 'X-Forwarded-Method': '' }, 'x-forwarded-method is not a valid method'],
    ['with a list of hosts', { 'X-Forwarded-Host': 'a, b' }, 'x-forwarded-host is not a valid host'],
    ['with a user in the host', { 'X-Forwarded-Host': 'u@a' }, 'x-forwarded-host is not a valid host'],
    ['with a list of schemes', { 'X-Forwarded-Proto': 'https, http' }, 'x-forwarded-proto is not a valid scheme'],
    ['with a scheme that is none of HTTP', { 'X-Forwarded-Proto': 'ftp' }, 'x-forwarded-proto is not a valid scheme'],
    ['with a URL that is not absolute', { 'X-Original-URL': '/admin' }, 'x-original-url is not absolute'],
    ['with a URL without a path', { 'X-Original-URL': 'https://a' }, 'x-original-url is not absolute'],
    ['with a URI that is not in origin-form', { 'X-Forwarded-Uri': 'http://a/b' }, 'the target does not start with /'],
    ['with a dot segment', { 'X-Forwarded-Uri': '/a/../b' }, 'the path has a dot segment'],
    ['with a fragment', { 'X-Forwarded-Uri': '/a#b' }, 'the target has a fragment'],
    ['with a control in the path', { 'X-Forwarded-Uri': '/a%00b' }, 'the path has an encoded control byte'],
  ])('%s', (_, over, problem) => {
    expect(read({ ...FORWARDED, ...over })).toBe(problem);
  });
});

const OTHER_HOST = 'forwarded names another host';
const OTHER_SCHEME = 'forwarded names another scheme';
const AMBIGUOUS = 'forwarded is ambiguous';

describe('Forwarded', () => {
  test.each([
    ['host=app.example;proto=https'],
    ['Host=APP.example; PROTO=HTTPS'],
    ['for=192.0.2.60;proto=https;by=203.0.113.43'],
    ['for="[2001:db8:cafe::17]:4711";host="app.example"'],
    ['for=[2001:db8:cafe::17];host=app.example'],
    ['for=unknown;by=_hidden, for="_SEVKISEK:80";host=app.example'],
    ['for=9.9.9.9, for=203.0.113.7;host=app.example;proto=https'],
    ['host=app.example, host="app.example" ,\thost=app.example;'],
    ['for=192.0.2.60;id=abc.123'],
    ['proto=wss'],
    [''],
    [' , ;'],
    [['host=app.example', 'proto=https;host=app.example']],
  ])('%j agrees with the request', (lines) => {
    expect(read({ ...FORWARDED, Forwarded: lines })).toBe('POST https://app.example/admin?x=1');
    expect(read({ Forwarded: lines, ...INGRESS })).toBe('POST https://app.example/admin?x=1');
  });

  test.each([
    ['host="app.example:8443"', 'app.example:8443'],
    ['host="app.example:8443"', 'app.example'],
    ['host=app.example:8443', 'app.example:8443'],
    ['host="[2001:DB8::1]:8443"', '[2001:db8::1]:8443'],
    ['host=[2001:db8::1]', '[2001:db8::1]'],
  ])('%s agrees with the host %s', (line, host) => {
    expect(read({ ...FORWARDED, 'X-Forwarded-Host': host, Forwarded: line })).toBe(`POST https://${host}/admin?x=1`);
  });

  test.each([
    ['host=admin.example', OTHER_HOST],
    ['host=admin.example;for=9.9.9.9;proto=https', OTHER_HOST],
    ['host=app.example, host=admin.example', OTHER_HOST],
    ['host=admin.example, host=app.example', OTHER_HOST],
    ['host=app.example;host=admin.example', OTHER_HOST],
    ['host=admin.example;host=app.example', OTHER_HOST],
    [['host=app.example', 'host=admin.example'], OTHER_HOST],
    [['for=192.0.2.60', 'host=admin.example'], OTHER_HOST],
    ['host="app.example:8443.evil"', OTHER_HOST],
    ['host=app.example.', OTHER_HOST],
    ['host="[2001:db8::1]"', OTHER_HOST],
    ['host=', OTHER_HOST],
    ['host=""', OTHER_HOST],
    ['host=_hidden', OTHER_HOST],
    ['HOST=admin.example', OTHER_HOST],
    ['Proto=http', OTHER_SCHEME],
    ['proto=http', OTHER_SCHEME],
    ['proto=https, proto=http', OTHER_SCHEME],
    ['proto=ws', OTHER_SCHEME],
    ['proto=httpsx', OTHER_SCHEME],
    ['proto=', OTHER_SCHEME],
    ['xhost=admin.example', OTHER_HOST],
    ['for=192.0.2.60;x-proto=http', OTHER_SCHEME],
    ['x="host=admin.example"', AMBIGUOUS],
    ['x="a;host=admin.example;b"', AMBIGUOUS],
    ['for="a, host=admin.example"', AMBIGUOUS],
    ['host="app.\\example"', AMBIGUOUS],
    ['host="app.example', AMBIGUOUS],
    ['host=app.example"', AMBIGUOUS],
    ["host='app.example'", OTHER_HOST],
    ['host = admin.example', AMBIGUOUS],
    ['host= admin.example', AMBIGUOUS],
    ['host=app.example admin.example', AMBIGUOUS],
    ['host=app.example\u00a0', AMBIGUOUS],
    ['host=\u00e9', AMBIGUOUS],
    ['host', AMBIGUOUS],
    ['=admin.example', AMBIGUOUS],
    ['host=user@app.example', AMBIGUOUS],
    ['host=https://app.example/', AMBIGUOUS],
    ['evil', AMBIGUOUS],
  ])('%j makes the request unclear', (lines, problem) => {
    expect(read({ ...FORWARDED, Forwarded: lines })).toBe(problem);
    expect(read({ Forwarded: lines, ...INGRESS })).toBe(problem);
  });

  test('of many elements counts completely', () => {
    const many = Array.from({ length: 5000 }, (_, i) => `for=192.0.2.${i % 256};host=app.example`).join(', ');
    expect(read({ ...FORWARDED, Forwarded: many })).toBe('POST https://app.example/admin?x=1');
    expect(read({ ...FORWARDED, Forwarded: `${many}, host=admin.example` })).toBe(OTHER_HOST);
  });

  test('cannot supply what the proxy leaves out', () => {
    const Forwarded = 'host=app.example;proto=https';
    expect(read({ ...FORWARDED, 'X-Forwarded-Host': undefined, Forwarded })).toMatch(/^no host/);
    expect(read({ ...FORWARDED, 'X-Forwarded-Proto': undefined, Forwarded })).toMatch(/^no scheme/);
  });

  test('is read as the host and scheme that were checked, or as none, by apps that search for them', () => {
    const piece = fc.constantFrom(
      ...['host=', 'Host=', 'proto=', 'for=', 'x', 'app.example', 'admin.example', 'https', 'http', '192.0.2.60', '[::1]'],
      ...[';', ',', '"', '\\', ' ', '\t', '=', ':', '\u00a0'],
    );
    const shaped = fc.tuple(
      fc.constantFrom('host="app.example"', 'proto=https', 'for=_a'),
      fc.constantFrom(';', ', ', '; ', ',,'),
    );
    const part = fc.oneof(
      shaped.map((both) => both.join('')),
      piece,
    );
    let accepted = 0;
    fc.assert(
      fc.property(fc.array(part, { maxLength: 8 }), (parts) => {
        const line = parts.join('');
        if (!read({ ...FORWARDED, Forwarded: line }).startsWith('POST ')) return;
        accepted++;
        expect(findAll(/host\s*=\s*"?([^;,"]+)"?/gi, line).filter((host) => host !== 'app.example')).toEqual([]);
        expect(findAll(/proto\s*=\s*"?([^;,"]+)"?/gi, line).filter((scheme) => scheme !== 'https')).toEqual([]);
      }),
    );
    expect(accepted).toBeGreaterThan(0);
  });
});

/** As Spring and Reactor Netty search. */
function findAll(pattern: RegExp, line: string): string[] {
  return [...line.matchAll(pattern)].map(([, value = '']) => value.trim());
}

test.each(['Sidegate_User', 'sidegate.user', 'Sidegate-Key', 'SIDEGATE_KEY'])('%s of a client is a forbidden field', (name) => {
  expect(findForbiddenField(new HeaderFields([name, 'x']))).toBe(name.toLowerCase());
  expect(findForbiddenField(new HeaderFields(['Sidegate-User', 'x', 'X-Original-Uri', '/']))).toBeUndefined();
});

test.each([
  ...['Remote.User', 'REMOTE_USER', 'X.Forwarded.User', 'X_Forwarded_For', "X'Forwarded~Host", 'X|Forwarded+Proto'],
  ...['X_Original_URI', 'Forwarded.For', 'Content_Type', 'X.WEBAUTH.USER', 'Transfer_Encoding', 'X_Auth_Request_Groups'],
])('%s is a forbidden field: the proxy sets or clears the one with hyphens only', (name) => {
  expect(findForbiddenField(new HeaderFields([name, 'root']))).toBe(name.toLowerCase());
  expect(findForbiddenField(new HeaderFields(['X_Request_Id', 'a', 'user_name', 'b']))).toBeUndefined();
});

test('a field that a client adds cannot change the request of the proxy: it is the same, or rejected', () => {
  const names = [...Object.keys(FORWARDED), ...Object.keys(ORIGINAL), 'X-Original-URL', 'X_Original_URI', 'Host'];
  const values = fc.oneof(fc.constantFrom('GET', '/public', 'http', 'evil', 'https://app.example/public'), fc.string());
  const added = fc.array(fc.tuple(fc.constantFrom(...names), values), { maxLength: 4 });
  let found = 0;
  fc.assert(
    fc.property(fc.constantFrom(FORWARDED, ORIGINAL, INGRESS), added, fc.boolean(), (proxy, more, isFirst) => {
      const own = Object.entries(proxy).flat() as string[];
      const raw = isFirst ? [...more.flat(), ...own] : [...own, ...more.flat()];
      const request = readOriginalRequest(new HeaderFields(raw));
      if ('code' in request) return;
      found++;
      const { method, scheme, host, target } = request;
      expect([method, scheme, host, target.raw]).toEqual(['POST', 'https', 'app.example', '/admin?x=1']);
    }),
  );
  expect(found).toBeGreaterThan(0);
});
