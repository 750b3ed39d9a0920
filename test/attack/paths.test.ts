import { describe, expect, test, vi } from 'vitest';
import { toPathForms } from '../../src/http/path-forms.ts';
import { sendRaw, toRequestText, toStatuses } from '../support/client.ts';
import { useApp, useGate } from '../support/fixtures.ts';
import { ROUTE_KIND_NAMES, ROUTE_KINDS, startGateWithUser, toKindRoute, toLines } from './route-kinds.ts';

const app = useApp();

const REFUSED = [
  '/hooks/../admin',
  '/hooks/..',
  '/../hooks',
  '/hooks/./a',
  '/hooks/.',
  '/hooks/%2e%2e/admin',
  '/hooks/%2E%2e',
  '/hooks/.%2e/a',
  '/hooks/%2e',
  '//hooks',
  '/hooks//a',
  '/hooks/a//',
  '/hooks\\a',
  '/hooks/..\\a',
  '/hooks/a\\..\\b',
  '/hooks;a=1',
  '/hooks/a;x',
  '/hooks/..;/admin',
  '/hooks/.;a/b',
  '/hooks/%3b',
  '/hooks%2fa',
  '/hooks/%2F',
  '/hooks%2f..%2fadmin',
  '/hooks/%5c',
  '/hooks/%5C..',
  '/hooks/%3f',
  '/hooks/%3Fa',
  '/hooks/%23',
  '/hooks/a#b',
  '/hooks#',
  '/hooks?a#b',
  '/hooks/%00',
  '/hooks/a%0d%0ab',
  '/hooks/%7f',
  '/hooks/%1f',
  '/hooks/%252e%252e/a',
  '/hooks/%25',
  '/hooks/%',
  '/hooks/%2',
  '/hooks/%zz',
  '/hooks/.%E2%80%8B./b',
  '/hooks/%E2%80%8B..',
  '/hooks/%2e%E2%80%8B%2e%E2%81%A0/b',
  '/hooks/.%C2%AD;a/b',
  '/hooks/%C2%AD..%5Cb',
  '/hooks/%c0%ae',
  '/hooks/%ff',
  '/hooks/%e0%80%af',
  'http://a/hooks',
  'https://evil/hooks',
  'hooks',
  '*',
  '',
  '/hooks/\x7f',
  '/hooks/\x80',
  '/hooks/é',
];

const PASSED = [
  '/hooks',
  '/hooks/',
  '/hooks/a/b',
  '/hooks/a.b',
  '/hooks/.well-known',
  '/hooks/...',
  '/hooks/a..b',
  '/hooks/%20',
  '/hooks/%C3%A9',
  "/hooks/-._~!$&'()*+,=:@",
  '/hooks/%41',
];

describe.each(ROUTE_KIND_NAMES)('a route with %s', (name) => {
  const gate = useGate(() => {
    const open = { pathPrefix: '/open', allowInPath: ['semicolon', 'encodedSlash'] };
    return startGateWithUser({
      routes: [
        toKindRoute(ROUTE_KINDS[name], app.port, { pathPrefix: '/hooks', methods: ['POST'] }),
        toKindRoute(ROUTE_KINDS[name], app.port, { ...open, methods: ['POST'] }, 'open'),
      ],
    });
  });

  const post = async (target: string): Promise<number | undefined> => {
    const body = '{"a":1}';
    const lines = toLines(ROUTE_KINDS[name].credentials(Buffer.from(body)));
    const head = [`POST ${target} HTTP/1.1`, 'Host: a', 'Connection: close', ...lines, `Content-Length: ${body.length}`];
    return toStatuses(await sendRaw(gate.port, toRequestText(head, body)))[0];
  };

  test.each(REFUSED)('rejects the target %j with 400', async (target) => {
    expect(await post(target)).toBe(400);
    expect(app.received).toHaveLength(0);
  });

  test.each(PASSED)('forwards %j byte for byte', async (target) => {
    expect(await post(target)).toBe(200);
    expect(app.received[0]?.url).toBe(target);
  });

  test.each(['/hooksx', '/hook', '/HOOKS', '/', '/%68ooks'])('finds no route for %j', async (target) => {
    expect(await post(target)).toBe(404);
  });

  test.each(['/open/a;b=1', '/open/a%2fb'])('forwards %j unchanged if the route allows it', async (target) => {
    expect(await post(target)).toBe(200);
    expect(app.received[0]?.url).toBe(target);
  });

  test.each(['/open/..;/admin', '/open/a;/../b', '/open/%2e%2e%2fadmin', '/open/..%2fadmin', '/open/%5c'])(
    'rejects %j even if the route allows some forms',
    async (target) => {
      expect(await post(target)).toBe(400);
    },
  );
});

test.each(['/a/.%E2%80%8B./b', '/a/..%CC%81/b', '/a/%C2%AD.', '/a/.%25E2%2580%258B.'])(
  'has no forms for %j, unless the app distinguishes Unicode forms',
  (path) => {
    expect(toPathForms(path)).toBeUndefined();
    expect(toPathForms(path, new Set(['unicodeForm']))).toBeDefined();
  },
);

describe('a path of 8 KiB', () => {
  const LENGTH = 8_100;
  const fill = (text: string, end: string, length = LENGTH): string =>
    `/a${text.repeat((length - end.length) / text.length)}${end}`;
  const MARKS = encodeURIComponent('\u0301\u0323');
  // Letters to other apps, but they become marks, which normalization sorts.
  const LATE_MARKS = encodeURIComponent('\u0301\uff9e');
  const LIGATURE = encodeURIComponent('\ufdfa');
  // Each dot is an extension that an app may remove, each + a space: dozens of forms, as long as the path.
  const FORMS = `+b${'.a'.repeat(20)}`;

  test.each([
    ['marks in descending order', fill(MARKS, FORMS)],
    ['letters that become marks', fill(LATE_MARKS, FORMS)],
    ['ligatures that become 18 letters', fill(LIGATURE, FORMS)],
    ['ligatures in 3 KB, and extensions', fill(LIGATURE, '.a'.repeat(14), 3_000)],
    ['letters', fill('b', FORMS)],
  ])('with %s is rejected before all of its forms are normalized', (_what, path) => {
    const normalize = vi.spyOn(String.prototype, 'normalize');
    try {
      expect(toPathForms(path)).toBeUndefined();
      // What normalization returns is processed further, and is up to 18 times as long.
      const chars = normalize.mock.results.reduce<number>((sum, { value }) => sum + String(value).length, 0);
      expect(chars).toBeLessThan(20_000);
    } finally {
      normalize.mockRestore();
    }
  });

  test('with more marks in a row than any text has is never normalized, as sorting them takes quadratic time', () => {
    const normalize = vi.spyOn(String.prototype, 'normalize');
    try {
      for (const marks of [MARKS, LATE_MARKS]) expect(toPathForms(fill(marks, '', 400))).toBeUndefined();
      expect(normalize).not.toHaveBeenCalled();
    } finally {
      normalize.mockRestore();
    }
  });

  test('with a few escapes is compared in all of its forms', () => {
    expect(toPathForms(fill('%62', '/x'))?.has(`/a${'b'.repeat((LENGTH - 2) / 3)}/x`)).toBe(true);
  });

  test.each(['\u00fc', '\ud55c'])('of the letter %s is compared in all of its forms', (letter) => {
    expect(toPathForms(fill(encodeURIComponent(letter), ''))?.size).toBe(3);
  });
});
