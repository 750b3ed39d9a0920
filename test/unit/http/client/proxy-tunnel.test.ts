import { expect, test } from 'vitest';
import { Secret } from '../../../../src/core/secret.ts';
import { createEgressProxy, findProxyProblem } from '../../../../src/http/client/proxy-tunnel.ts';

const password = new Secret(Buffer.from('open: sesame'));

test.each([
  ['http://proxy.example', 'proxy.example', 80],
  ['http://proxy.example:3128/', 'proxy.example', 3128],
  ['https://Proxy.Example.', 'proxy.example', 443],
  ['http://10.0.0.1:8080', '10.0.0.1', 8080],
  ['http://[fd00::1]:8080', 'fd00::1', 8080],
])('accepts %s', (url, host, port) => {
  expect(findProxyProblem({ url })).toBeUndefined();
  expect(createEgressProxy({ url }, undefined)).toMatchObject({ host, port, authorization: '' });
});

test('sends user name and password as HTTP Basic', () => {
  const { authorization } = createEgressProxy({ url: 'http://proxy.example', username: 'Aladdin', password }, undefined);
  expect(authorization).toBe(`Proxy-Authorization: Basic ${Buffer.from('Aladdin:open: sesame').toString('base64')}\r\n`);
});

test.each([
  ['text that is not a URL', { url: 'proxy.example:3128' }, 'proxy.example:// is not supported'],
  ['an empty URL', { url: '' }, 'it is not a URL'],
  ['SOCKS', { url: 'socks5://proxy.example' }, 'socks5:// is not supported'],
  ['credentials in the URL', { url: 'http://user:SECRET@proxy.example' }, 'the URL contains credentials'],
  ['a path', { url: 'http://proxy.example/x' }, 'the URL has a path'],
  ['a query', { url: 'http://proxy.example/?x' }, 'the URL has a path'],
  ['port 0', { url: 'http://proxy.example:0' }, 'the host or the port is malformed'],
  ['a line end', { url: 'http://proxy.example\r\n' }, 'it is not a URL'],
  ['a colon in the user name', { url: 'http://proxy.example', username: 'a:b', password }, 'the user name contains a colon'],
  ['a user name without a password', { url: 'http://proxy.example', username: 'a' }, 'user name and password belong together'],
  ['a password without a user name', { url: 'http://proxy.example', password }, 'user name and password belong together'],
])('rejects %s, without quoting the URL', (_, settings, problem) => {
  const found = findProxyProblem(settings);
  expect(found?.problem).toBe(problem);
  expect(JSON.stringify(found)).not.toContain('SECRET');
  expect(() => createEgressProxy(settings, undefined)).toThrow(problem);
});
