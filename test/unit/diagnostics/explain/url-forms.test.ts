/** What proxies change in a URL is found, with the fix in the config. */
import { createHmac } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { HeaderFields } from '../../../../src/core/head.ts';
import { Secret } from '../../../../src/core/secret.ts';
import { DEFAULT_BUDGET, type Explanation, Meter } from '../../../../src/diagnostics/explain/analysis.ts';
import { analyze } from '../../../../src/diagnostics/explain/analyze.ts';
import { toTargetForms, toUrlForms } from '../../../../src/diagnostics/explain/url-forms.ts';
import { findPreset, PRESETS } from '../../../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';

const SECRET = '8f742231b10e8888abcd99yyyzzz85a5';
const NOW = 1_800_000_000_000;
const PUBLIC = 'https://hooks.example.com';

interface Case {
  readonly publicUrl?: string;
  readonly target?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Explains a delivery of Mandrill, which signs the URL, and of Trello, to the route that the case describes. */
function explain(signed: string, { publicUrl = PUBLIC, target = '/hooks', headers = {} }: Case, secret = SECRET): Explanation {
  const scheme = compileScheme(findPreset('mandrill') as SchemeDescription);
  const signature = createHmac('sha1', SECRET).update(`${signed}ab`, 'latin1').digest('base64');
  const key = scheme.parseKey('k', new Secret(Buffer.from(secret)), undefined);
  if ('problem' in key) throw new Error(key.problem);
  const fields = Object.entries({ Host: 'pod:8480', ...headers, 'X-Mandrill-Signature': signature }).flat();
  const request = { method: 'POST', target, headers: new HeaderFields(fields), body: Buffer.from('a=b'), receivedAt: NOW };
  const own = { route: 'r', name: 'k', secret: new Secret(Buffer.from(secret)), encoding: undefined, key: key.key };
  const input = { request, scheme, allowDotInId: false, tolerance: undefined, publicUrl, keys: [own], others: [] };
  const run = analyze({ ...input, presets: PRESETS, compile: compileScheme }, new Meter(DEFAULT_BUDGET));
  for (;;) {
    const step = run.next();
    if (step.done === true) return step.value;
  }
}

describe('the change is named, with its fix', () => {
  test.each<[string, string, Case, RegExp, RegExp]>([
    ['another scheme', 'http://hooks.example.com/hooks', {}, /with http:/, /publicUrl to begin with http:\/\/hooks/],
    ['the default port', `${PUBLIC}:443/hooks`, {}, /:443 after the host/, /https:\/\/hooks\.example\.com:443/],
    [
      'no port',
      `${PUBLIC}/hooks`,
      { publicUrl: `${PUBLIC}:8443` },
      /without the port/,
      /begin with https:\/\/hooks\.example\.com$/,
    ],
    [
      'another host',
      'https://public.example/hooks',
      { headers: { 'X-Forwarded-Host': 'public.example' } },
      /https:\/\/public\.example/,
      /publicUrl to begin with https:\/\/public\.example/,
    ],
    [
      'a stripped prefix',
      `${PUBLIC}/api/hooks`,
      {},
      /the prefix \/api, which a proxy strips/,
      /set publicUrl to https:\/\/hooks\.example\.com\/api/,
    ],
    ['a stripped prefix of two segments', `${PUBLIC}/api/v1/hooks`, {}, /\/api\/v1/, /example\.com\/api\/v1/],
    [
      'a prefix that a header names',
      `${PUBLIC}/tenant-7/hooks`,
      { headers: { 'X-Forwarded-Prefix': '/tenant-7/' } },
      /the prefix in x-forwarded-prefix/,
      /append to publicUrl/,
    ],
    [
      'a path that a header names',
      `${PUBLIC}/tenant-7/hooks?a=1`,
      { target: '/hooks?a=1', headers: { 'X-Original-URI': '/tenant-7/hooks?a=1' } },
      /the path in x-original-uri/,
      /append to publicUrl/,
    ],
    [
      'an added prefix',
      `${PUBLIC}/hooks`,
      { target: '/internal/hooks' },
      /without the first segment of the path, which a proxy adds/,
      /proxy .* forward the path/,
    ],
    ['two added segments', `${PUBLIC}/hooks?a=1`, { target: '/svc/v2/hooks?a=1' }, /the first 2 segments/, /prefix that it adds/],
    [
      'a prefix in publicUrl',
      `${PUBLIC}/hooks`,
      { publicUrl: `${PUBLIC}/api` },
      /without the path of publicUrl/,
      /set publicUrl to https:\/\/hooks\.example\.com$/,
    ],
    ['another order', `${PUBLIC}/hooks?b=2&a=1&c=3`, { target: '/hooks?a=1&b=2&c=3' }, /in another order/, /forward the query/],
    [
      'another order of many',
      `${PUBLIC}/hooks?e=5&d=4&c=3&b=2&a=1`,
      { target: '/hooks?a=1&b=2&c=3&d=4&e=5' },
      /in another order/,
      /forward the query/,
    ],
    ['+ for a space', `${PUBLIC}/hooks?a=b+c`, { target: '/hooks?a=b%20c' }, /with \+ in place of %20/, /forward the query/],
    ['%20 for a space', `${PUBLIC}/hooks?a=b%20c`, { target: '/hooks?a=b+c' }, /with %20 in place of \+/, /forward the query/],
    [
      'lower-case digits',
      `${PUBLIC}/hooks?a=%c3%bc`,
      { target: '/hooks?a=%C3%BC' },
      /lower-case percent-encoding/,
      /forward the query/,
    ],
    ['upper-case digits in the path', `${PUBLIC}/h%C3%BC`, { target: '/h%c3%bc' }, /path with upper-case/, /forward the path/],
    ['a decoded path', `${PUBLIC}/h~x`, { target: '/h%7Ex' }, /decoded/, /forward the path/],
    [
      'a decoded query',
      `${PUBLIC}/hooks?u=https://a/b`,
      { target: '/hooks?u=https%3A%2F%2Fa%2Fb' },
      /query that is decoded/,
      /forward the query/,
    ],
    ['an encoded query', `${PUBLIC}/hooks?u=https%3A%2F%2Fa%2Fb`, { target: '/hooks?u=https://a/b' }, /encoded/, /forward/],
    ['a trailing slash', `${PUBLIC}/hooks/`, {}, /with a trailing slash/, /slash/],
    ['no trailing slash', `${PUBLIC}/hooks`, { target: '/hooks/' }, /without the trailing slash/, /slash/],
    ['no query', `${PUBLIC}/hooks`, { target: '/hooks?utm=1' }, /without the query/, /remove what adds the query/],
    [
      'a parameter less',
      `${PUBLIC}/hooks?a=1`,
      { target: '/hooks?a=1&trace=7' },
      /without one of the parameters/,
      /forward the query/,
    ],
    [
      'user and password',
      'https://me:s3cret@hooks.example.com/hooks',
      { headers: { Authorization: `Basic ${btoa('me:s3cret')}` } },
      /user and password/,
      /urlCredentials/,
    ],
    [
      'encoded user and password',
      'https://me:s%40c@hooks.example.com/hooks',
      { headers: { Authorization: `Basic ${btoa('me:s@c')}` } },
      /user and password/,
      /urlCredentials/,
    ],
    [
      'no user and password',
      `${PUBLIC}/hooks`,
      { publicUrl: 'https://me:s3cret@hooks.example.com' },
      /without user and password/,
      /remove urlCredentials/,
    ],
    [
      'another scheme and a stripped prefix',
      'http://hooks.example.com/api/hooks',
      {},
      /http:.* and with the prefix \/api/,
      /begin with http:.*; set publicUrl to/,
    ],
    [
      'another host and a slash',
      'https://pod/hooks/',
      {},
      /https:\/\/pod, and with a trailing slash/,
      /begin with https:\/\/pod; /,
    ],
  ])('%s', (_title, signed, one, text, fix) => {
    const { findings, isProven } = explain(signed, one);
    expect(isProven).toBe(true);
    expect(findings.map(({ cause }) => cause)).toEqual(['url']);
    expect(findings[0]?.text).toMatch(text);
    expect(findings[0]?.fix).toMatch(fix);
    expect(JSON.stringify(findings)).not.toMatch(/s3cret|s@c|s%40c/);
  });
});

test('if nothing matches, the URL is named before the secret', () => {
  const { findings, isProven } = explain(`${PUBLIC}/hooks`, {}, 'another secret of enough bytes');
  expect(isProven).toBe(false);
  expect(findings.map(({ cause }) => cause)).toEqual(['url', 'unknown']);
  expect(findings[0]?.text).toContain('the sender signs the URL');
  expect(findings[1]?.text).toContain('otherwise the secret differs');
});

test('a wrong secret and a wrong URL are found together', () => {
  const { findings } = explain('http://hooks.example.com/hooks', {}, `${SECRET}\n`);
  expect(findings.map(({ cause }) => cause)).toEqual(['url', 'secret_whitespace']);
});

describe('a request with thousands of prefixes, of parameters and 4 hosts', () => {
  const prefixes = Array.from({ length: 2_450 }, (_, index) => `/${index}`).join(',');
  const fields = { 'X-Forwarded-Prefix': prefixes, 'X-Script-Name': prefixes, 'X-Stripped-Prefix': prefixes };
  const headers = new HeaderFields(
    Object.entries({ ...fields, 'X-Forwarded-Host': 'a.example,b.example,c.example,d.example' }).flat(),
  );
  const target = `/hooks?${'x=1&'.repeat(1_990)}`;
  const request = { method: 'POST', target, headers, body: Buffer.from('a=b'), receivedAt: NOW };

  test('has at most 4 forms by prefixes that it names', () => {
    const named = toTargetForms('/base', request, PUBLIC).filter(({ text }) => text.includes('the prefix in '));
    expect(named).toHaveLength(4);
  });

  test('lets other work run after each URL, and builds no more than it tries, beside those that repeat', () => {
    const steps = [...toUrlForms({ request, publicUrl: `${PUBLIC}/base` })];
    const built = steps.filter((step) => step !== undefined);
    expect(built).toHaveLength(400);
    expect(steps.at(-1)).toBeDefined();
    expect(steps.length).toBeLessThan(550);
  });

  test('is explained within the budget of bytes, which the URLs count for', () => {
    const scheme = compileScheme(findPreset('twilio') as SchemeDescription);
    const secret = new Secret(Buffer.from(SECRET));
    const key = scheme.parseKey('k', secret, undefined);
    if ('problem' in key) throw new Error(key.problem);
    const meter = new Meter(DEFAULT_BUDGET);
    const keys = [{ route: 'r', name: 'k', secret, encoding: undefined, key: key.key }];
    const input = { request, scheme, allowDotInId: false, tolerance: undefined, publicUrl: PUBLIC, keys, others: [] };
    const run = analyze({ ...input, presets: PRESETS, compile: compileScheme }, meter);
    while (run.next().done !== true);
    expect(meter.bytes).toBeGreaterThan(400 * target.length);
  });
});
