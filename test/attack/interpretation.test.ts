import { readFileSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AMBIGUOUS_FORMS, HeaderFields, parseTarget } from '../../src/core/head.ts';
import { RouteTable } from '../../src/gateway/pipeline/router.ts';
import { PATH_DISTINCTIONS, toPathForms } from '../../src/http/path-forms.ts';
import { makeAuthority } from '../support/certificates.ts';
import { type Answer, send, sendRaw, toRequestText, toStatuses } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { makeFolder, useApp, useGate } from '../support/fixtures.ts';
import { FRAMEWORKS, type RunningFramework, startFramework, toFrameworkResponse } from '../support/frameworks/framework.ts';
import { GUARDED_BASIC, GUARDED_USER, startGuarded, startWithUsers, toGuardedRoutes } from '../support/frameworks/guarded.ts';
import { MORE_TARGETS, SHOWN_TARGETS } from '../support/frameworks/targets.ts';
import type { Sections, TestGate } from '../support/gate.ts';
import { fc } from '../support/property.ts';

const ALADDIN = GUARDED_USER;
const BASIC = GUARDED_BASIC;
/** Headers from which servers, frameworks and their extensions take the path, or the part of it that belongs to the mount point. */
const PATH_FIELDS = [
  ...[
    'SCRIPT_NAME',
    'Script-Name',
    'X-Script-Name',
    'PATH_INFO',
    'Path-Info',
    'REQUEST_URI',
    'X-Request-URI',
    'Daphne-Root-Path',
  ],
  ...[
    'X-Vhm-Root',
    'X-Traversal-Path',
    'X-Forwarded-Prefix',
    'X-Forwarded-Path',
    'X-Forwarded-Uri',
    'X-Original-URL',
    'X-Original-URI',
  ],
  ...[
    'X-Rewrite-URL',
    'X-Invoke-Path',
    'X-Matched-Path',
    'X-Envoy-Original-Path',
    'X-Base-URL',
    'Context-Path',
    'Root-Path',
    'XAJP-Path-Info',
  ],
];
/** The app would serve /admin or /hooks/billing if it cut the value off the target, or if the value were the target. */
const PATH_CLAIMS = [
  ['/x/admin', '/x'],
  ['/x/hooks/billing', '/x'],
  ['/', '/admin'],
  ['/hooks/billing/', '/hooks/billing'],
] as const;
const WEBHOOK = { keys: [{ name: 'current', secret: { file: 'secret' } }] };

describe.each(FRAMEWORKS.filter(({ cost, isAvailable }) => cost === 'cheap' && isAvailable()))(
  'in front of $title',
  (framework) => {
    let running: RunningFramework;
    beforeAll(async () => {
      running = await startFramework(framework);
    });
    afterAll(() => running?.stop());
    const gate = useGate(() => startGuarded(running.port));

    test('serves no protected handler without its gates, in any spelling of its path', async () => {
      const bypasses: string[] = [];
      for (const target of [...SHOWN_TARGETS, ...MORE_TARGETS]) {
        for (const method of ['GET', 'POST', 'PUT']) {
          const head = [`${method} ${target} HTTP/1.1`, 'Host: app.example', 'Connection: close', 'Content-Length: 0'];
          const { served } = toFrameworkResponse(await sendRaw(gate.port, toRequestText(head)));
          if (served !== undefined && served.handler !== 'open') bypasses.push(`${method} ${target}: ${served.handler}`);
        }
      }
      expect(bypasses).toEqual([]);
    });

    test('serves no protected handler without its gates, whatever header names another path', async () => {
      const bypasses: string[] = [];
      for (const name of PATH_FIELDS) {
        for (const [target, value] of PATH_CLAIMS) {
          const lines = [
            `POST ${target} HTTP/1.1`,
            'Host: app.example',
            'Connection: close',
            'Content-Length: 0',
            `${name}: ${value}`,
          ];
          const { served } = toFrameworkResponse(await sendRaw(gate.port, toRequestText(lines)));
          if (served !== undefined && served.handler !== 'open') bypasses.push(`${lines.join(', ')}: ${served.handler}`);
        }
      }
      expect(bypasses).toEqual([]);
    });

    test('still serves open handlers, and protected ones to authorized clients', async () => {
      const get = async (path: string, headers = {}): Promise<unknown> => {
        const { text } = await send(gate.port, { method: 'GET', path, headers });
        return toFrameworkResponse(`HTTP/1.1 200\r\n\r\n${text}`).served?.handler;
      };
      expect(await get('/')).toBe('open');
      expect(await get('/~user/a-b')).toBe('open');
      expect(await get('/admin/x', ALADDIN)).toBe('admin');
      expect(await get('/account', ALADDIN)).toBe('account');
      const { body, headers } = makeDelivery();
      expect((await send(gate.port, { body, headers })).text).toContain('billing');
    });
  },
);

const app = useApp();

async function withGate(sections: Sections, action: (gate: TestGate) => Promise<void>): Promise<void> {
  const gate = await startWithUsers(sections);
  try {
    await action(gate);
  } finally {
    await gate.stop();
  }
}

const get = (gate: TestGate, path: string, headers = {}): Promise<Answer> => send(gate.port, { method: 'GET', path, headers });

describe('a path that an app may interpret as another route', () => {
  test.each([
    ['with an encoded letter', '/%61dmin/x'],
    ['with an encoded letter in upper case', '/%41dmin'],
    ['all encoded', '/%61%64%6d%69%6e'],
    ['in upper case', '/ADMIN'],
    ['in mixed case below the prefix', '/Admin/x'],
    ['with a long s', '/%C5%BFettings'],
    ['with the Kelvin sign', '/%E2%84%AAeys'],
    ['with a dotless i', '/adm%C4%B1n'],
    ['with a dotted capital I', '/ADM%C4%B0N'],
    ['in full-width letters', '/%EF%BD%81dmin'],
    ['with an extension', '/admin.json'],
    ['with an extension in upper case', '/ADMIN.JSON'],
    ['with a dot at its end', '/admin.'],
    ['with a space at its end', '/admin%20'],
    ['with a slash after an exact path', '/account/'],
    ['with a slash and in upper case', '/ACCOUNT/'],
    ['with an accent', '/%C3%A1dmin'],
    ['with a soft hyphen', '/ad%C2%ADmin'],
    ['with a plus sign for a space', '/my+files/x'],
    ['with an encoded plus sign for a space', '/my%2bfiles'],
    ['with a plus sign at its end', '/admin+'],
    ['without the extension of a page', '/report'],
    ['with the index of a directory', '/account/index.html'],
    ['with the index of a directory, without extension', '/account/index'],
    ['without the index of a directory', '/docs'],
    ['without the index of a directory, with a slash', '/docs/'],
    ['with other punctuation', '/user-list'],
    ['with other punctuation, encoded', '/user%2dlist/x'],
    ['with a dot for an underscore', '/user.list/x'],
    ['in camel case', '/userList'],
    ['with punctuation between letters', '/ad-min'],
    ['with punctuation at its start', '/-admin'],
    ['with punctuation at its end', '/admin--/'],
    ['with punctuation at both ends, encoded', '/%2dadmin%7e/x'],
    ['with a space at its start', '/%20admin'],
    ['with punctuation of Unicode', '/%E2%80%93admin'],
    ['with more punctuation before a digit', '/plan--2'],
    ['with other punctuation before a digit', '/plan-.2/x'],
    ['without punctuation before a digit', '/plan2'],
    ['with punctuation and the slash that its app distinguishes', '/mem-bers/'],
    ['with punctuation and the index of a directory', '/mem-bers/index.html'],
    ['with the index of a directory and the slash that its app distinguishes', '/members/index'],
    ['with punctuation and without the index of a directory', '/do-cs/'],
    ['with punctuation and without the extension of a page', '/re-port'],
    ['with punctuation at its start and the slash that its app distinguishes', '/-members/'],
    ['behind the name of a script', '/index.php/admin'],
    ['behind the name of a script in upper case', '/APP.PHP/admin/x'],
    ['with a path after a script', '/hooks/pay.php/x'],
    ['with an encoded path after an encoded script', '/hooks/p%61y.PHP/%78'],
    ['with a path after a script, of which the route omits the extension', '/account.php/x'],
    ['with a path after the index of a directory', '/account/index.php/x'],
    ['with a path after a handler of ASP.NET', '/pay.ashx/x/y'],
    ['with a path after another one', '/log.axd/detail'],
    ['with a path after a program in cgi-bin', '/cgi-bin/pay/x'],
    ['with a session of ASP.NET', '/(S(x)A(y))/admin/x'],
    ['with a session of ASP.NET, and a path after it', '/(S(x))/pay.ashx/y'],
    ['with a session of ASP.NET right before its name', '/(S(x))admin'],
    ['with sessions of ASP.NET within its name', '/(S(x))/ad/(S(x))min'],
    ['as the data of a page of Next.js', '/_next/data/build-1/admin.json'],
    ['as the data of a page below it', '/_next/data/build-1/admin/x.json'],
    ['as the data of a page of SvelteKit', '/account/__data.json'],
    ['as the data of a page of SvelteKit whose name has an extension', '/report.html__data.json'],
    ['as the route of a page of SvelteKit', '/account/__route.js'],
    ['as the data of a page of Nuxt', '/account/_payload.json'],
    ['as the data of a page of Nuxt, with another character for the dot', '/account/_payloadxjson'],
    ['as the data of a page of Nuxt, with a letter for the dot that has two parts', '/account/_payload%C3%A9json'],
    ['as the data of a page of an earlier Nuxt', '/account/_payload.js'],
    ['as the data of a page of React Router', '/account/_.data'],
    ['as the data of a page of React Router, encoded', '/account/%5f.data'],
    ['as the data of a page of React Router, in upper case', '/ACCOUNT/_.DATA'],
    ['as the components of a page of React Router', '/account/_.rsc'],
    ['as the components of a page that Next.js exported', '/account/__next._full.txt'],
    ['as the data of a page of Qwik', '/account/q-data.json'],
    ['as the data of a page of Gatsby', '/page-data/account/page-data.json'],
    ['as the data of a page below it of Gatsby', '/page-data/admin/x/page-data.json'],
    ['as the components of a page of Waku', '/RSC/R/account.txt'],
    ['of a webhook with a dot in its name, with a format', '/hooks/shop.example.json'],
    ['of a prefix with a dot in its name, with a format', '/api/v1.0.json'],
    ['of a prefix with a dot in its name, with two formats', '/api/v1.0.tar.gz'],
    ['of a page with an extension, with a language', '/report.html.en'],
    ['as a view of Jakarta Faces', '/faces/admin/users.xhtml'],
    ['as a view of Jakarta Faces without an extension', '/faces/admin'],
    ['as a view below it of Jakarta Faces, repeated', '/faces/faces/faces/admin/x'],
    ['as the data of a page of Nuxt, with the dot that begins a query', '/account/_payload?json'],
    ['as a view of Jakarta Faces, with another extension', '/view.JSF'],
    ['as an image that Nuxt resizes', '/_ipx/w_200/admin/scan.png'],
    ['of a webhook, encoded', '/hooks/%62illing'],
    ['of a webhook, with a slash', '/hooks/billing/'],
  ])('is rejected %s: %s', async (_, path) => {
    const routes = [
      ...toGuardedRoutes(app.port),
      { name: 'settings', match: { pathPrefix: '/settings' }, upstream: `http://127.0.0.1:${app.port}`, basic: BASIC },
      { name: 'keys', match: { pathPrefix: '/keys' }, upstream: `http://127.0.0.1:${app.port}`, basic: BASIC },
      { name: 'files', match: { pathPrefix: '/my%20files' }, upstream: `http://127.0.0.1:${app.port}`, basic: BASIC },
      { name: 'users', match: { pathPrefix: '/user_list' }, upstream: `http://127.0.0.1:${app.port}`, basic: BASIC },
      {
        name: 'members',
        match: { path: '/members/', trustAppToDistinguish: ['trailingSlash'] },
        upstream: `http://127.0.0.1:${app.port}`,
        basic: BASIC,
      },
      { name: 'plan', match: { pathPrefix: '/plan-2' }, upstream: `http://127.0.0.1:${app.port}`, basic: BASIC },
      { name: 'report', match: { path: '/report.html' }, upstream: `http://127.0.0.1:${app.port}`, basic: BASIC },
      { name: 'shop', match: { path: '/hooks/shop.example' }, upstream: `http://127.0.0.1:${app.port}`, webhook: WEBHOOK },
      { name: 'api', match: { pathPrefix: '/api/v1.0' }, upstream: `http://127.0.0.1:${app.port}`, basic: BASIC },
      { name: 'view', match: { path: '/view.xhtml' }, upstream: `http://127.0.0.1:${app.port}`, basic: BASIC },
      { name: 'docs', match: { path: '/docs/index.html' }, upstream: `http://127.0.0.1:${app.port}`, basic: BASIC },
      { name: 'pay', match: { path: '/hooks/pay.php' }, upstream: `http://127.0.0.1:${app.port}`, webhook: WEBHOOK },
      { name: 'program', match: { path: '/cgi-bin/pay' }, upstream: `http://127.0.0.1:${app.port}`, basic: BASIC },
      { name: 'handler', match: { path: '/pay.ashx' }, upstream: `http://127.0.0.1:${app.port}`, basic: BASIC },
      { name: 'errors', match: { path: '/log.axd' }, upstream: `http://127.0.0.1:${app.port}`, basic: BASIC },
    ];
    await withGate({ routes }, async (gate) => {
      const answer = await get(gate, path);
      expect([answer.status, answer.code]).toEqual([400, 'ambiguous_target']);
      expect(app.received).toHaveLength(0);
      // Even with the password: the gates of which route would it have passed?
      expect((await get(gate, path, ALADDIN)).status).toBe(400);
      expect(gate.log().at(-1)).toMatchObject({ reason: 'ambiguous_target' });
    });
  });

  test.each([
    '/admin;x',
    '/admin;x/y',
    '/admin%3bx',
    '//admin',
    '/%2fadmin',
    '/x//../admin',
    '/admin\\x',
    '/admin%5cx',
    '/admin%2fx',
    '/%2561dmin',
    '/%252561dmin',
    '/%5cadmin',
    '/;/admin',
    '/a;%2f../admin',
    '/x/%252e%252e/admin',
    '/x/.%252e/y',
    '/x/%252e%252e%252fadmin',
    '/%25%36%31dmin',
    '/admin%3fx',
    '/admin%23x',
    '/account;x',
    '/account%2f',
    '/account//',
    '/x%2500',
    '/x%25ff',
    '/admin%C2%85',
    '/admin%E2%80%A8',
    `/${'%25'.repeat(40)}61dmin`,
    `/${'%25'}${'25'.repeat(40)}61dmin`,
  ])('is rejected even if the wider route allows all forms: %s', async (path) => {
    await withGate({ routes: toGuardedRoutes(app.port, { allowInPath: AMBIGUOUS_FORMS }) }, async (gate) => {
      expect((await get(gate, path)).status).toBe(400);
      expect(app.received).toHaveLength(0);
    });
  });

  test.each(['/public/..%20/admin', '/public/%20../admin', '/public/%EF%BC%8E%EF%BC%8E/admin', '/public/%E2%80%A5/admin'])(
    'is rejected with an encoded dot segment, on any route: %s',
    async (path) => {
      const upstream = `http://127.0.0.1:${app.port}`;
      await withGate(
        { routes: [{ name: 'public', match: { pathPrefix: '/public' }, upstream, allow: 'anyone' }] },
        async (gate) => {
          expect((await get(gate, path)).code).toBe('malformed_request');
          expect(app.received).toHaveLength(0);
        },
      );
    },
  );

  test('is rejected if the wider route allows a form and the narrower one does not', async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    const routes = [
      { name: 'admin', match: { pathPrefix: '/admin' }, upstream, basic: BASIC },
      { name: 'rest', match: { pathPrefix: '/', allowInPath: ['semicolon'] }, upstream, allow: 'anyone' },
    ];
    await withGate({ routes }, async (gate) => {
      const { code } = await get(gate, '/admin/x;y');
      expect(code).toBe('malformed_request');
    });
  });

  test('is rejected even if the narrower route is the open one: the gate never guesses', async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    const routes = [
      { name: 'public', match: { pathPrefix: '/admin/public' }, upstream, allow: 'anyone' },
      ...toGuardedRoutes(app.port),
    ];
    await withGate({ routes }, async (gate) => {
      expect((await get(gate, '/admin/PUBLIC', ALADDIN)).code).toBe('ambiguous_target');
      expect((await get(gate, '/admin/public')).status).toBe(200);
      expect((await get(gate, '/admin/publish')).status).toBe(401);
    });
  });

  test('is rejected even if a route exactly matches it, because an app may interpret it as a protected one', async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    const routes = [{ name: 'upper', match: { path: '/Admin' }, upstream, allow: 'anyone' }, ...toGuardedRoutes(app.port)];
    await withGate({ routes }, async (gate) => {
      expect((await get(gate, '/Admin')).code).toBe('ambiguous_target');
      expect((await get(gate, '/admin', ALADDIN)).code).toBe('ambiguous_target');
      expect((await get(gate, '/admin/x')).status).toBe(401);
    });
  });

  test.each([
    ['/admin.json', '/admin', '/admin.json'],
    ['/docs', '/docs/index.html', '/docs'],
    ['/report', '/report.html', '/report'],
    ['/index.php/admin', '/admin', '/index.php/admin'],
    ['/pay.php/x', '/pay.php', '/pay.php/x'],
  ])('is rejected even if a route exactly matches it: %s beside %s', async (open, guarded, path) => {
    const upstream = `http://127.0.0.1:${app.port}`;
    const routes = [
      { name: 'open', match: { path: open }, upstream, allow: 'anyone' },
      { name: 'guarded', match: { path: guarded }, upstream, basic: BASIC },
    ];
    await withGate({ routes }, async (gate) => expect((await get(gate, path)).code).toBe('ambiguous_target'));
  });

  test.each([
    ['/app.php', '/app.php/admin', '/app.php/other'],
    ['/_next', '/_next/data/1/admin.json', '/_next/static/admin.js'],
    ['/page-data', '/page-data/admin/page-data.json', '/page-data/app-data.json'],
    ['/_ipx', '/_ipx/w_200/admin/scan.png', '/_ipx/w_200/scan.png'],
    ['/RSC', '/RSC/R/admin.txt', '/RSC/R/other.txt'],
    ['/rsc', '/rsc/r/admin.txt', '/rsc/admin/style.css'],
    ['/faces', '/faces/admin', '/faces/other'],
    ['/ad', '/ad/(S(x))min', '/ad/(S(x))other'],
  ])('is rejected under an open prefix in which another name of its handler is: %s', async (pathPrefix, rejected, passed) => {
    const [admin] = toGuardedRoutes(app.port);
    const open = { name: 'open', match: { pathPrefix }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
    await withGate({ routes: [admin, open] }, async (gate) => {
      expect((await get(gate, rejected)).code).toBe('ambiguous_target');
      expect((await get(gate, passed)).status).toBe(200);
    });
  });

  test.each([
    [
      '/',
      '/_next',
      ['/_next/data/1/admin.json', '/_next/data/1/index.json'],
      ['/_next', '/_next/static/a.js', '/_next/data/x.js'],
    ],
    ['/app', '/app/_next', ['/app/_next/data/1/admin.json', '/app/_next/data/1.x/a/b.json'], ['/app/_next/static/a.js']],
    ['/', '/ad', ['/ad/(S(x))min', '/ad/(S(x)F(y))min/x'], ['/ad', '/ad/x.html', '/ad/(S(x))/y', '/ad/%78']],
    ['/', '/my-files', [], ['/my-files', '/my-files/', '/my-files/a-b.c', '/my-files/index.html', '/my-files/x.php/y']],
    ['/', '/app.php', ['/app.php/admin', '/app.php/x/y'], ['/app.php']],
    ['/', '/index.php/open', [], ['/index.php/open', '/index.php/open/x', '/index.php/open/x.php/y']],
  ])(
    'is rejected under a password of %s if another name leads out of the open prefix %s',
    async (outer, inner, rejected, passed) => {
      const upstream = `http://127.0.0.1:${app.port}`;
      const routes = [
        { name: 'guarded', match: { pathPrefix: outer }, upstream, basic: BASIC },
        { name: 'open', match: { pathPrefix: inner }, upstream, allow: 'anyone' },
      ];
      await withGate({ routes }, async (gate) => {
        const codes = await Promise.all(rejected.map(async (path) => (await get(gate, path)).code));
        expect(codes).toEqual(rejected.map(() => 'ambiguous_target'));
        const found = await Promise.all(passed.map(async (path) => (await get(gate, path)).status));
        expect(found).toEqual(passed.map(() => 200));
      });
    },
  );

  test('is rejected if its other name belongs to a route without a host', async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    const routes = [
      { name: 'all', match: { pathPrefix: '/' }, upstream, basic: BASIC },
      { name: 'assets', match: { host: 'a.example', pathPrefix: '/_next' }, upstream, allow: 'anyone' },
      { name: 'blog', match: { host: 'a.example', pathPrefix: '/blog' }, upstream, allow: 'anyone' },
    ];
    await withGate({ routes }, async (gate) => {
      const ask = async (path: string): Promise<string | number> => {
        const answer = await send(gate.port, { method: 'GET', path, headers: { Host: 'a.example' } });
        return answer.code ?? answer.status;
      };
      const paths = ['/_next/data/1/admin.json', '/_next/static/a.js', '/_next/data/1/blog/a.json', '/blog/(S(x))/a'];
      expect(await Promise.all(paths.map(ask))).toEqual(['ambiguous_target', 200, 200, 200]);
    });
  });

  test('passes within a prefix whose app makes other distinctions than that of the wider one', async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    const routes = [
      { name: 'all', match: { pathPrefix: '/', trustAppToDistinguish: ['letterCase'] }, upstream, basic: BASIC },
      { name: 'assets', match: { pathPrefix: '/assets' }, upstream, allow: 'anyone' },
      { name: 'next', match: { pathPrefix: '/_next' }, upstream, allow: 'anyone' },
    ];
    await withGate({ routes }, async (gate) => {
      expect((await get(gate, '/assets/app-1.css')).status).toBe(200);
      expect((await get(gate, '/_next/static/app-1.css')).status).toBe(200);
      expect((await get(gate, '/_next/data/1/admin.json')).code).toBe('ambiguous_target');
    });
  });

  test('passes under a password of / if its other name is open as well', async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    const routes = [
      { name: 'guarded', match: { pathPrefix: '/' }, upstream, basic: BASIC },
      ...['/_next', '/blog'].map((pathPrefix, i) => ({ name: `open${i}`, match: { pathPrefix }, upstream, allow: 'anyone' })),
    ];
    await withGate({ routes }, async (gate) => {
      expect((await get(gate, '/_next/data/1/blog/post.json')).status).toBe(200);
      expect((await get(gate, '/_next/data/1/blogs.json')).code).toBe('ambiguous_target');
    });
  });

  test('is rejected if its scripts are more than a request has', async () => {
    await withGate({ routes: toGuardedRoutes(app.port) }, async (gate) => {
      expect((await get(gate, '/a.php/b.php/c')).status).toBe(200);
      expect((await get(gate, '/a.php/b.php/c.php/d')).code).toBe('ambiguous_target');
    });
  });

  test('is rejected if all the names of its spellings are too long together', async () => {
    const path = `/%25%25%2541;a+b\\.php/c.php/cgi-bin/x/_next/data/b/${'a-b'.repeat(180)}/__data.json`;
    expect(toPathForms(path, new Set(['otherNames']))).toBeDefined();
    expect(toPathForms(path)).toBeUndefined();
    expect(toPathForms(`/index.php/${'a-b/'.repeat(2_000)}`)).toBeDefined();
  });

  test('is rejected if only its method has other gates', async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    const routes = [
      { name: 'read', match: { path: '/account', methods: ['GET'] }, upstream, allow: 'anyone' },
      { name: 'write', match: { path: '/account', methods: ['POST'] }, upstream, basic: BASIC },
      { name: 'rest', match: { pathPrefix: '/' }, upstream, allow: 'anyone' },
    ];
    await withGate({ routes }, async (gate) => {
      expect((await get(gate, '/ACCOUNT')).status).toBe(200);
      expect((await send(gate.port, { method: 'POST', path: '/ACCOUNT' })).code).toBe('ambiguous_target');
      expect((await send(gate.port, { method: 'DELETE', path: '/account/' })).code).toBe('ambiguous_target');
    });
  });

  test('has no route if the path itself has none', async () => {
    const [admin] = toGuardedRoutes(app.port);
    await withGate({ routes: [admin] }, async (gate) => {
      expect((await get(gate, '/%61dmin')).status).toBe(404);
    });
  });
});

describe('a path without such a conflict', () => {
  test.each([
    '/~user',
    '/%7Euser',
    '/caf%C3%A9',
    '/a%2Db',
    '/Users/ABC.png',
    '/%41',
    '/a%20b',
    '/ADMINS',
    '/administrator',
    '/x/admin',
  ])('is forwarded byte for byte: %s', async (path) => {
    await withGate({ routes: toGuardedRoutes(app.port) }, async (gate) => {
      expect((await get(gate, path)).status).toBe(200);
      expect(app.received[0]?.url).toBe(path);
    });
  });

  test('is forwarded byte for byte if both routes have the same gates', async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    const routes = [
      { name: 'admin', match: { pathPrefix: '/admin' }, upstream, basic: BASIC },
      { name: 'rest', match: { pathPrefix: '/' }, upstream, basic: BASIC },
    ];
    await withGate({ routes }, async (gate) => {
      for (const path of ['/%61dmin', '/ADMIN', '/admin.json']) expect((await get(gate, path, ALADDIN)).status).toBe(200);
      expect(app.received.map(({ url }) => url)).toEqual(['/%61dmin', '/ADMIN', '/admin.json']);
    });
  });

  test('is rejected if two routes have webhooks with the same keys: each remembers its own IDs', async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    const routes = [
      { name: 'one', match: { path: '/hooks/billing' }, upstream, webhook: WEBHOOK },
      { name: 'all', match: { pathPrefix: '/hooks' }, upstream, webhook: WEBHOOK },
    ];
    await withGate({ routes }, async (gate) => {
      const { body, headers } = makeDelivery();
      expect((await send(gate.port, { body, headers })).status).toBe(200);
      expect((await send(gate.port, { body, headers, path: '/hooks/%62illing' })).code).toBe('ambiguous_target');
      expect(app.received).toHaveLength(1);
    });
  });
});

describe('a route whose app is trusted to distinguish paths', () => {
  test.each([
    ['letterCase', '/ADMIN', '/%61dmin'],
    ['percentEncoding', '/%61dmin', '/ADMIN'],
    ['extension', '/admin.json', '/ADMIN'],
    ['trailingDots', '/admin.', '/ADMIN'],
    ['punctuation', '/adm-in', '/ADMIN'],
    ['unicodeForm', '/%EF%BD%81dmin', '/%61dmin'],
    ['otherNames', '/index.php/admin', '/ADMIN'],
  ])(
    'accepts with %s a path that only other apps would confuse: %s, and still protects %s',
    async (distinction, passed, rejected) => {
      const upstream = `http://127.0.0.1:${app.port}`;
      const routes = [
        { name: 'admin', match: { pathPrefix: '/admin', trustAppToDistinguish: [distinction] }, upstream, basic: BASIC },
        { name: 'rest', match: { pathPrefix: '/' }, upstream, allow: 'anyone' },
      ];
      await withGate({ routes }, async (gate) => {
        expect((await get(gate, passed)).status).toBe(200);
        expect(app.received[0]?.url).toBe(passed);
        expect((await get(gate, rejected)).code).toBe('ambiguous_target');
        expect((await get(gate, '/admin')).status).toBe(401);
      });
    },
  );

  test('rejects the data of a page, although its app distinguishes extensions', async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    const routes = [
      { name: 'admin', match: { path: '/admin', trustAppToDistinguish: ['extension'] }, upstream, basic: BASIC },
      { name: 'rest', match: { pathPrefix: '/' }, upstream, allow: 'anyone' },
    ];
    await withGate({ routes }, async (gate) => {
      expect((await get(gate, '/admin.json')).status).toBe(200);
      expect((await get(gate, '/_next/data/build-1/admin.json')).code).toBe('ambiguous_target');
    });
  });

  test('does not open neighbouring routes', async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    const routes = [
      { name: 'admin', match: { pathPrefix: '/admin', trustAppToDistinguish: [...PATH_DISTINCTIONS] }, upstream, basic: BASIC },
      { name: 'account', match: { path: '/account' }, upstream, basic: BASIC },
      { name: 'rest', match: { pathPrefix: '/' }, upstream, allow: 'anyone' },
    ];
    await withGate({ routes }, async (gate) => {
      expect((await get(gate, '/%41dmin.x')).status).toBe(200);
      expect((await get(gate, '/ACCOUNT/')).code).toBe('ambiguous_target');
    });
  });
});

describe('the same applies', () => {
  test('from an enforced route to an observed one', async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    const routes = [
      { name: 'admin', match: { pathPrefix: '/admin' }, upstream, basic: BASIC },
      { name: 'rest', match: { pathPrefix: '/' }, upstream, basic: BASIC, mode: 'observe' },
    ];
    await withGate({ routes }, async (gate) => {
      expect((await get(gate, '/%61dmin')).code).toBe('ambiguous_target');
      expect((await get(gate, '/other')).status).toBe(200);
      expect(app.received).toHaveLength(1);
    });
  });

  test('for forward-auth', async () => {
    await withGate({ routes: toGuardedRoutes(app.port), authz: { address: '127.0.0.1:0' } }, async (gate) => {
      const ask = (uri: string): Promise<Answer> => {
        const fields = { Method: 'GET', Proto: 'https', Host: 'a', Uri: uri, For: '203.0.113.7' };
        const headers = Object.fromEntries(Object.entries(fields).map(([name, value]) => [`X-Forwarded-${name}`, value]));
        return send(gate.authzPort, { method: 'GET', path: '/', headers });
      };
      for (const uri of ['/%61dmin/x', '/ADMIN', '/account/']) {
        const { status, headers } = await ask(uri);
        expect([status, headers['sidegate-refusal']]).toEqual([403, 'ambiguous_target']);
      }
      expect((await ask('/other')).status).toBe(200);
    });
  });

  test('for HTTP/2', async () => {
    const authority = makeAuthority(makeFolder(), 'ca');
    const { cert: certFile, key: keyFile } = authority.issue('local', 'DNS:localhost,IP:127.0.0.1');
    const listen = { address: '127.0.0.1:0', tls: { certFile, keyFile, http2: true } };
    await withGate({ routes: toGuardedRoutes(app.port), listen }, async (gate) => {
      const session = connectHttp2(`https://localhost:${gate.port}`, { ca: readFileSync(authority.ca) });
      const ask = (path: string): Promise<number> =>
        new Promise((resolve, reject) => {
          const stream = session.request({ ':path': path });
          stream.on('response', (headers) => resolve(Number(headers[':status'])));
          stream.on('error', reject);
          stream.resume();
        });
      expect(await ask('/%61dmin/x')).toBe(400);
      expect(await ask('/ADMIN')).toBe(400);
      expect(await ask('/other')).toBe(200);
      session.destroy();
    });
  });

  test('for upgrades', async () => {
    await withGate({ routes: toGuardedRoutes(app.port) }, async (gate) => {
      const fields = ['Host: a', 'Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13'];
      const text = toRequestText(['GET /%61dmin/ws HTTP/1.1', ...fields, 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==']);
      expect(toStatuses(await sendRaw(gate.port, text))).toEqual([400]);
      expect(app.received).toHaveLength(0);
    });
  });
});

describe('for any routes,', () => {
  const SEGMENTS = ['admin', 'hooks', 'x', 'keys', 'caf'];
  const path = fc.array(fc.constantFrom(...SEGMENTS), { maxLength: 3 }).map((segments) => `/${segments.join('/')}`);
  const pattern = fc.record({ path, isExact: fc.boolean(), gates: fc.constantFrom('open', 'basic', 'webhook') });
  type Pattern = Parameters<Parameters<typeof pattern.map>[0]>[0];

  /** What frameworks do to a path before they match it, written without a look at the code under test. */
  const STEPS: Readonly<Record<string, (path: string) => string>> = {
    decode: (text) => decodeURIComponent(text),
    decodeUnreserved: (text) => text.replace(/%[0-9a-f]{2}/gi, (one) => /[\w.~-]/.exec(decodeURIComponent(one))?.[0] ?? one),
    lower: (text) => text.toLowerCase(),
    upper: (text) => text.toUpperCase().toLowerCase(),
    compose: (text) => text.normalize('NFKC'),
    collapse: (text) => text.replace(/\/\/+/g, '/'),
    unslash: (text) => (text.length > 1 && text.endsWith('/') ? text.slice(0, -1) : text),
    parameters: (text) => text.replace(/;[^/]*/g, ''),
    backslash: (text) => text.replaceAll('\\', '/'),
    extension: (text) => text.replace(/(?<=[^/])\.\w+$/, ''),
  };
  const steps = fc.array(fc.constantFrom(...Object.keys(STEPS)), { maxLength: 6 });
  const respelling = fc.array(
    fc.tuple(
      fc.nat({ max: 30 }),
      fc.constantFrom('%', '%25', 'upper', '/', ';x', '\\', 'full', 'dot', '.json', '%2f', 'kelvin', 'long s'),
    ),
    { maxLength: 4 },
  );

  function respell(text: string, changes: readonly (readonly [number, string])[]): string {
    let spelt = text;
    for (const [at, change] of changes) {
      const i = at % spelt.length;
      const character = spelt[i] as string;
      const isLetter = /[a-z]/.test(character) && !/%[0-9a-f]?$/i.test(spelt.slice(0, i));
      const code = character.charCodeAt(0).toString(16);
      const changed: Readonly<Record<string, string>> = {
        '%': isLetter ? `%${code}` : character,
        '%25': isLetter ? `%25${code}` : character,
        upper: isLetter ? character.toUpperCase() : character,
        full: isLetter ? encodeURIComponent(String.fromCharCode(character.charCodeAt(0) + 0xfee0)) : character,
        kelvin: character === 'k' && isLetter ? '%E2%84%AA' : character,
        'long s': character === 's' && isLetter ? '%C5%BF' : character,
        dot: `${character}.`,
      };
      spelt = spelt.slice(0, i) + (changed[change] ?? character + change) + spelt.slice(i + 1);
    }
    return spelt;
  }

  const NO_HEADERS = new HeaderFields([]);

  function toTable(patterns: readonly Pattern[]): RouteTable<{ name: string; gateIdentity: string; match: never }> {
    const routes = patterns.map(({ path: text, isExact, gates }, i) => ({
      name: String(i),
      gateIdentity: gates,
      match: {
        ...(isExact ? { path: text } : { pathPrefix: text }),
        methods: ['GET'],
        allowInPath: AMBIGUOUS_FORMS,
        trustAppToDistinguish: [],
      } as never,
    }));
    return new RouteTable(routes);
  }

  /** As an app with these handlers would choose. */
  function choose(patterns: readonly Pattern[], text: string): string | undefined {
    const toPrefix = (each: string): string => (each === '/' ? '' : each);
    const taking = patterns.filter(({ path: own, isExact }) =>
      isExact ? own === text : text === toPrefix(own) || text.startsWith(`${toPrefix(own)}/`),
    );
    taking.sort((a, b) => Number(b.isExact) - Number(a.isExact) || b.path.length - a.path.length);
    return taking[0]?.gates;
  }

  const EXTENSION_PATTERNS: Pattern[] = [
    { path: '/', isExact: true, gates: 'webhook' },
    { path: '/', isExact: false, gates: 'open' },
    { path: '/admin', isExact: true, gates: 'webhook' },
  ];

  test('no re-encoded path passes other gates than those of the handler that the app would run', () => {
    const isFresh = (patterns: readonly Pattern[]): boolean =>
      new Set(patterns.map((each) => `${each.isExact}${each.path}`)).size === patterns.length;
    let forwarded = 0;
    fc.assert(
      fc.property(
        fc.array(pattern, { minLength: 1, maxLength: 5 }).filter(isFresh),
        fc.nat(),
        respelling,
        steps,
        (patterns, at, changes, names) => {
          const target = parseTarget(respell((patterns[at % patterns.length] as Pattern).path, changes));
          if ('problem' in target) return;
          const found = toTable(patterns).find({ method: 'GET', host: 'a', target, headers: NO_HEADERS });
          if ('code' in found) return;
          forwarded++;
          let seen = target.path;
          try {
            for (const name of names) seen = STEPS[name]?.(seen) ?? seen;
          } catch {
            return;
          }
          const served = choose(patterns, seen);
          expect([served ?? found.gateIdentity, target.path, seen]).toEqual([found.gateIdentity, target.path, seen]);
        },
      ),
      {
        numRuns: 20_000,
        // Found by chance: an extension that is removed before a backslash or an escape becomes a slash.
        examples: [
          [
            EXTENSION_PATTERNS,
            0,
            [
              [0, '\\'],
              [9, '.json'],
            ],
            ['extension', 'backslash', 'collapse'],
          ],
          [
            EXTENSION_PATTERNS,
            2,
            [
              [5, '%2f'],
              [8, '.json'],
            ],
            ['extension', 'decode', 'unslash'],
          ],
        ],
      },
    );
    expect(forwarded).toBeGreaterThan(1_000);
  });

  test('a path exactly as in the config is never rejected, unless two routes differ only in ways that apps may ignore', () => {
    fc.assert(
      fc.property(fc.array(pattern, { minLength: 1, maxLength: 5 }), fc.nat(), (patterns, at) => {
        const { path: text } = patterns[at % patterns.length] as Pattern;
        const found = toTable(patterns).find({
          method: 'GET',
          host: 'a',
          target: parseTarget(text) as never,
          headers: NO_HEADERS,
        });
        expect('code' in found ? found.code : 'found').toBe('found');
      }),
    );
  });
});
