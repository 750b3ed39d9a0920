import { isIP } from 'node:net';
import { describe, expect, test } from 'vitest';
import { normalizeIp } from '../../../../src/core/ip-address.ts';
import {
  compileEgressRules,
  type EgressSettings,
  findUrlProblem,
  parseEndpointUrl,
  parseHostRule,
} from '../../../../src/http/dial/endpoint-url.ts';
import { fc } from '../../../support/property.ts';

const toRules = (over: Partial<EgressSettings> = {}) =>
  compileEgressRules({ allowHttp: false, allowPrivate: [], deny: [], ...over });
const strict = toRules();

describe('parseEndpointUrl', () => {
  test.each([
    ['https://acme.example', 'acme.example', 443, 'acme.example', '/'],
    ['https://ACME.example./Hooks?a=%2F&b', 'acme.example', 443, 'acme.example', '/Hooks?a=%2F&b'],
    ['HTTPS://acme.example:8443/x', 'acme.example', 8443, 'acme.example:8443', '/x'],
    ['https://acme.example:443?q', 'acme.example', 443, 'acme.example', '/?q'],
    ['https://8.8.8.8/x', '8.8.8.8', 443, '8.8.8.8', '/x'],
    ['https://[2606:4700:0:0::1111]:444/', '2606:4700::1111', 444, '[2606:4700::1111]:444', '/'],
    ['https://xn--bcher-kva.example/', 'xn--bcher-kva.example', 443, 'xn--bcher-kva.example', '/'],
    ['https://acme.example/a/../b', 'acme.example', 443, 'acme.example', '/b'],
  ])('reads %s', (url, host, port, authority, path) => {
    expect(parseEndpointUrl(url, strict)).toEqual({ isTls: true, host, port, authority, path });
  });

  test('reads http where it is allowed', () => {
    expect(parseEndpointUrl('http://acme.example/x', toRules({ allowHttp: true }))).toEqual({
      isTls: false,
      host: 'acme.example',
      port: 80,
      authority: 'acme.example',
      path: '/x',
    });
  });

  test.each([
    ['no URL', 'acme.example/hooks', 'it is not a URL'],
    ['an empty text', '', 'it is not a URL'],
    ['a URL without slashes', 'https:acme.example', 'it is not a URL'],
    ['one slash', 'https:/acme.example', 'it is not a URL'],
    ['http', 'http://acme.example/', 'http:// would send events in clear text'],
    ['another scheme', 'ftp://acme.example/', 'ftp:// is not supported'],
    ['a file', 'file:///etc/passwd', 'file:// is not supported'],
    ['credentials', 'https://user:pass@acme.example/', 'the URL contains credentials'],
    ['a user', 'https://user@acme.example/', 'the URL contains credentials'],
    ['an empty user', 'https://@acme.example/', 'the URL contains credentials'],
    ['a fragment', 'https://acme.example/#x', 'the URL has a fragment, which is never sent'],
    ['port 0', 'https://acme.example:0/', 'the host or the port of the URL is malformed'],
    ['port 65536', 'https://acme.example:65536/', 'it is not a URL'],
    ['an empty port', 'https://acme.example:/', 'the host or the port of the URL is malformed'],
    ['no host', 'https:///x', 'the host or the port of the URL is malformed'],
    ['a zone', 'https://[fe80::1%25eth0]/', 'it is not a URL'],
    ['an encoded host', 'https://127%2e0.0.1/', 'the host or the port of the URL is malformed'],
    ['a backslash', 'https://acme.example\\@evil.example/', 'the URL has a space, a backslash, or a character that is not ASCII'],
    [
      'a tab, which URL parsers drop',
      'https://ac\tme.example/',
      'the URL has a space, a backslash, or a character that is not ASCII',
    ],
    ['a line end', 'https://acme.example/\r\nX: 1', 'the URL has a space, a backslash, or a character that is not ASCII'],
    ['full-width digits', 'https://１２７.0.0.1/', 'the URL has a space, a backslash, or a character that is not ASCII'],
    ['a long URL', `https://acme.example/${'x'.repeat(2_048)}`, 'the URL has 2069 characters'],
  ])('rejects %s', (_, url, problem) => {
    expect(findUrlProblem(url, strict)?.problem).toBe(problem);
    expect(findUrlProblem(url, strict)?.hint).not.toBe('');
  });

  test('never returns a target that another URL parser reads differently, or that could split the request', () => {
    const rules = toRules({ allowHttp: true, allowPrivate: ['0.0.0.0/0', '::/0'] });
    const piece = fc.oneof(
      fc.constantFrom(
        'http',
        'https',
        '://',
        '//',
        '/',
        ':',
        '@',
        '?',
        '#',
        '\\',
        '[',
        ']',
        '.',
        '%2e',
        '%0d%0a',
        ' ',
        '\r\n',
        '\t',
      ),
      fc.constantFrom(
        '127.0.0.1',
        '2130706433',
        '0x7f.1',
        '::1',
        '::ffff:127.0.0.1',
        'acme.example',
        'a_b',
        '443',
        '0',
        '99999',
        'é',
        '。',
      ),
      fc.string({ maxLength: 4 }),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), (pieces) => {
        const text = `http${pieces.join('')}`;
        const target = parseEndpointUrl(text, rules);
        if ('problem' in target) return;
        const url = new URL(text);
        expect(`${target.path} ${target.authority}`).toMatch(/^\/[\x21-\x7e]* [\x21-\x7e]+$/);
        expect(target.port).toBe(Number(url.port || (target.isTls ? 443 : 80)));
        expect(url.username + url.password + url.hash).toBe('');
        if (isIP(target.host) === 0) expect(url.hostname.replace(/\.$/, '')).toBe(target.host);
        else expect(normalizeIp(url.hostname)).toBe(target.host);
      }),
      { numRuns: 5_000 },
    );
  });

  test('never quotes the path, which may be secret', () => {
    const problems = [
      'https://10.0.0.1/SECRET',
      'http://a.example/SECRET',
      'https://u@a.example/SECRET',
      'https://a.example/SECRET#x',
    ];
    for (const url of problems) expect(JSON.stringify(findUrlProblem(url, strict))).not.toContain('SECRET');
  });
});

describe('compileEgressRules', () => {
  test('rejects addresses that are not public, and says how to allow them', () => {
    expect(findUrlProblem('https://10.0.0.1/', strict)).toEqual({
      problem: 'the host 10.0.0.1 is not on the public internet',
      hint: 'use a public host, or add its address to provider.egress.allowPrivate if you trust it',
    });
    expect(findUrlProblem('https://localhost/', strict)?.problem).toBe('the host localhost is not on the public internet');
    expect(findUrlProblem('https://a.localhost./', strict)?.problem).toBe('the host a.localhost is not on the public internet');
  });

  test('allows private ranges that are listed, in every notation of their addresses', () => {
    const rules = toRules({ allowPrivate: ['10.0.0.0/8', '127.0.0.0/8'] });
    for (const host of ['10.1.2.3', '[::ffff:10.1.2.3]', '[::ffff:a01:203]', 'localhost'])
      expect(findUrlProblem(`https://${host}/`, rules)).toBeUndefined();
    expect(findUrlProblem('https://192.168.0.1/', rules)).toBeDefined();
  });

  test('denies before it allows', () => {
    const rules = toRules({ allowPrivate: ['10.0.0.0/8'], deny: ['10.0.0.1', '8.8.8.0/24'] });
    expect(rules.findAddressProblem('10.0.0.2')).toBeUndefined();
    for (const address of ['10.0.0.1', '8.8.8.8', '::ffff:8.8.8.8'])
      expect(rules.findAddressProblem(address)).toBe('is denied by provider.egress.deny');
  });

  test.each([
    ['NAT64', '64:ff9b::/96', '64:ff9b::a9fe:a9fe', '64:ff9b::808:808'],
    ['local NAT64', '64:ff9b:1::/48', '64:ff9b:1::7f00:1', '64:ff9b:1::808:808'],
    ['6to4', '2002::/16', '2002:7f00:1::1', '2002:808:808::1'],
    ['Teredo', '2001::/32', '2001:0:808:808::80ff:fffe', '2001:0:808:808::f7f7:f7f7'],
    ['IPv4-compatible', '::/96', '::10.0.0.1', '::8.8.8.8'],
    ['IPv4-translated', '::ffff:0:0:0/96', '::ffff:0:192.168.0.1', '::ffff:0:8.8.8.8'],
  ])('checks the IPv4 address inside of %s, too', (_, range, inside, outside) => {
    const rules = toRules({ allowPrivate: [range] });
    expect(rules.findAddressProblem(inside)).toBe('is not on the public internet');
    expect(rules.findAddressProblem(outside)).toBeUndefined();
    expect(strict.findAddressProblem(outside)).toBe('is not on the public internet');
  });

  test.each([
    ['a public prefix', '2a00:1098:2c::/96', '2a00:1098:2c::10.0.0.1', '2a00:1098:2c::8.8.8.8'],
    ['a private prefix', 'fd00:64::/96', 'fd00:64::169.254.169.254', 'fd00:64::8.8.8.8'],
    ['a short prefix', '2a00:1098::/32', '2a00:1098:a00:1::', '2a00:1098:808:808::'],
    ['the well-known prefix', '64:ff9b::/96', '64:ff9b::192.168.0.1', '64:ff9b::8.8.8.8'],
  ])('checks the IPv4 address behind the NAT64 of the network, with %s', (_, prefix, inside, outside) => {
    const nat64Prefixes = [prefix];
    const rules = toRules({ nat64Prefixes });
    expect(rules.findAddressProblem(inside)).toBe('is not on the public internet');
    expect(rules.findAddressProblem(outside)).toBeUndefined();
    expect(toRules({ nat64Prefixes, allowPrivate: [prefix] }).findAddressProblem(inside)).toBe('is not on the public internet');
    expect(toRules({ nat64Prefixes, allowPrivate: ['0.0.0.0/0'] }).findAddressProblem(inside)).toBeUndefined();
    for (const deny of ['8.8.8.8', prefix])
      expect(toRules({ nat64Prefixes, deny: [deny] }).findAddressProblem(outside)).toBe('is denied by provider.egress.deny');
    expect(rules.findAddressProblem('fd00:65::8.8.8.8')).toBe('is not on the public internet');
  });

  test('allows only the listed hosts, if there is a list', () => {
    const rules = toRules({ allowHosts: ['acme.example', '*.Partner.example', '8.8.8.8', '2606:4700::1111'] });
    for (const host of [
      'acme.example',
      'ACME.example.',
      'a.partner.example',
      'a.b.partner.example',
      '8.8.8.8',
      '[2606:4700:0::1111]',
    ])
      expect(findUrlProblem(`https://${host}/`, rules)).toBeUndefined();
    for (const host of ['partner.example', 'xacme.example', 'acme.example.evil.example', 'evilpartner.example', '8.8.4.4'])
      expect(findUrlProblem(`https://${host}/`, rules)?.problem).toBe(`the host ${host} is not in provider.egress.allowHosts`);
  });

  test('does not let a listed host into a private network', () => {
    const rules = toRules({ allowHosts: ['10.0.0.1', 'localhost'] });
    for (const host of ['10.0.0.1', 'localhost']) expect(findUrlProblem(`https://${host}/`, rules)).toBeDefined();
  });

  test.each(['*', '*.', '*.*.example', '*.10.0.0.1', 'a b', 'a:80', '2130706433', 'http://a'])(
    'knows no host rule "%s"',
    (text) => {
      expect(parseHostRule(text)).toBeUndefined();
    },
  );
});
