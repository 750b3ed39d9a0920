import { describe, expect, test } from 'vitest';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { systemClock } from '../../../../src/core/clock.ts';

function check(match: string): [path: string, message: string, hint: string | undefined][] {
  const text = `upstream: http://127.0.0.1:3000\nroutes:\n  - { name: a, match: ${match}, allow: anyone }\n`;
  return parseConfig('gate.yaml', text, systemClock).problems.map(({ path, message, hint }) => [path, message, hint]);
}

test.each([
  '.example.com',
  '*.example.com',
  '.',
  '..',
  'a..b',
  'a.b..',
  '-a.b',
  'a:80',
  'bücher.de',
  '[::1]',
  `${'a'.repeat(64)}.b`,
])('the host %s, which no request could match, is an error', (host) => {
  expect(check(`{ path: /x, host: "${host}" }`)).toEqual([
    ['routes.0.match.host', expect.stringMatching(/^a host must be/), undefined],
  ]);
});

test.each(['EXAMPLE.com', 'example.com.', 'my_app', '127.0.0.1', 'xn--bcher-kva.de', 'localhost'])(
  'the host %s is a name',
  (host) => {
    expect(check(`{ path: /x, host: "${host}" }`).filter(([path]) => path.endsWith('host'))).toEqual([]);
  },
);

describe('a path with a pattern of another proxy', () => {
  test.each([
    ['/admin/*', '*', '/admin'],
    ['/admin*', '*', '/admin'],
    ['/admin/**', '*', '/admin'],
    ['/admin(/|$)(.*)', '(', '/admin'],
    ['/admin/.*', '*', '/admin'],
    ['/admin/+', '+', '/admin'],
    ['/admin/.+', '+', '/admin'],
    ['/admin/:id', ':', '/admin'],
    ['/users/:id/keys', ':', '/users'],
    ['/admin/{id}', '{', '/admin'],
    ['/admin/$', '$', '/admin'],
    ['/admin$', '$', '/admin'],
    ['/admin/[0-9]+', '[', '/admin'],
    ['/admin/<id>', '<', '/admin'],
    ['/api|/admin', '|', '/api'],
    ['/api/v1,/api/v2', ',', '/api/v1'],
    ['/^admin', '^', '/'],
    ['/*', '*', '/'],
  ])('%s is an error that names the literal form', (text, character, prefix) => {
    for (const key of ['path', 'pathPrefix'])
      expect(check(`{ ${key}: ${JSON.stringify(text)} }`)).toEqual([
        [
          `routes.0.match.${key}`,
          `paths are literal, and "${character}" would match only itself`,
          `pathPrefix: ${prefix} matches ${prefix === '/' ? 'all paths' : `${prefix} and all paths below it`}; if requests really have this character in their path, set match.literal: true`,
        ],
      ]);
  });

  test('is accepted if the config says that requests have it', () => {
    expect(check('{ path: "/Customers(1)", literal: true }')).toEqual([]);
  });

  test.each([
    '/v1/events:batch',
    '/$metadata',
    '/@user',
    '/a+b',
    '/c++',
    '/a,b',
    '/~user',
    "/it's",
    '/a=b&c!',
    '/admin/%2A',
    '/1.0',
  ])('%s is none', (text) => {
    expect(check(`{ path: ${JSON.stringify(text)} }`)).toEqual([]);
  });
});
