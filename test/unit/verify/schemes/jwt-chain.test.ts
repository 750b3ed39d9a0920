/** Chains of certificates in the header of a token: every one that does not lead from the sender's signer to the pinned root. */
import { execFileSync } from 'node:child_process';
import { createPrivateKey, generateKeyPairSync, type KeyObject, X509Certificate } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { Secret } from '../../../../src/core/secret.ts';
import { findPreset } from '../../../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import { useFolder } from '../../../support/fixtures.ts';
import { judgeToken, makeToken } from '../../../support/tokens.ts';

const DAY = 86_400_000;
const [OF_LEAF, OF_ISSUER] = ['1.2.840.113635.100.6.11.1', '1.2.840.113635.100.6.2.1'];
const P256 = ['ec', '-pkeyopt', 'ec_paramgen_curve:P-256'];
const RSA = ['rsa', '-pkeyopt', 'rsa_keygen_bits:2048'];

interface Wanted {
  readonly issuer?: string;
  readonly subject?: string;
  readonly key?: readonly string[];
  /** Further options of openssl. */
  readonly sign?: readonly string[];
  readonly extensions?: readonly string[];
}

const folder = useFolder();
const at = (name: string): string => join(folder, name);
const openssl = (...args: string[]): unknown => execFileSync('openssl', args, { stdio: 'ignore' });

/** Makes a certificate, of itself if no issuer is given. */
function make(name: string, { issuer = name, subject = name, key = P256, sign = [], extensions = [] }: Wanted = {}): void {
  openssl('genpkey', '-algorithm', ...key, '-out', at(`${name}.key`));
  openssl('req', '-new', '-key', at(`${name}.key`), '-subj', `/CN=${subject}`, '-out', at(`${name}.csr`));
  writeFileSync(at(`${name}.ext`), extensions.join('\n'));
  const by = issuer === name ? ['-signkey', at(`${name}.key`)] : ['-CA', at(`${issuer}.crt`), '-CAkey', at(`${issuer}.key`)];
  const more = ['-CAcreateserial', '-extfile', at(`${name}.ext`), '-days', '9', ...sign];
  openssl(
    'x509',
    '-req',
    '-in',
    at(`${name}.csr`),
    ...by,
    ...(issuer === name ? more.slice(1) : more),
    '-out',
    at(`${name}.crt`),
  );
}

const AUTHORITY = ['basicConstraints=critical,CA:TRUE', 'keyUsage=critical,keyCertSign'];
const toMark = (id: string): string => `${id}=DER:0500`;
const AS_ISSUER = [...AUTHORITY, toMark(OF_ISSUER)];
const AS_LEAF = [toMark(OF_LEAF)];

make('root', { key: RSA, extensions: AUTHORITY });
make('other-root', { key: RSA, subject: 'root', extensions: AUTHORITY });
make('issuer', { issuer: 'root', key: RSA, extensions: AS_ISSUER });
make('leaf', { issuer: 'issuer', extensions: AS_LEAF });
for (const digest of ['sha1', 'md5']) {
  make(`${digest}-issuer`, { issuer: 'root', key: RSA, extensions: AS_ISSUER, sign: [`-${digest}`] });
  make(`${digest}-leaf`, { issuer: 'issuer', extensions: AS_LEAF, sign: [`-${digest}`] });
  make(`leaf-of-${digest}-issuer`, { issuer: `${digest}-issuer`, extensions: AS_LEAF });
}
make('unmarked-leaf', { issuer: 'issuer' });
make('leaf-with-its-mark-in-its-name', { issuer: 'issuer', subject: OF_LEAF });
make('leaf-of-the-root', { issuer: 'root', extensions: AS_LEAF });
make('unmarked-issuer', { issuer: 'root', key: RSA, extensions: AUTHORITY });
make('leaf-of-unmarked-issuer', { issuer: 'unmarked-issuer', extensions: AS_LEAF });
make('end', { issuer: 'root', extensions: [toMark(OF_ISSUER)] });
make('leaf-of-end', { issuer: 'end', extensions: AS_LEAF });
make('weak-issuer', { issuer: 'root', key: ['rsa', '-pkeyopt', 'rsa_keygen_bits:1024'], extensions: AS_ISSUER });
make('leaf-of-weak-issuer', { issuer: 'weak-issuer', extensions: AS_LEAF });
make('issuer-of-other-root', { issuer: 'other-root', subject: 'issuer', key: RSA, extensions: AS_ISSUER });
make('leaf-of-other-root', { issuer: 'issuer-of-other-root', extensions: AS_LEAF });
make('self-signed-leaf', { subject: 'leaf', extensions: AS_LEAF });
make('rsa-leaf', { issuer: 'issuer', key: RSA, extensions: AS_LEAF });
make('p384-leaf', { issuer: 'issuer', key: ['ec', '-pkeyopt', 'ec_paramgen_curve:P-384'], extensions: AS_LEAF });

const read = (name: string): X509Certificate => new X509Certificate(readFileSync(at(`${name}.crt`)));
const toText = (name: string): string => read(name).raw.toString('base64');
const readKey = (name: string): KeyObject => createPrivateKey(readFileSync(at(`${name}.key`)));

const base = findPreset('apple-app-store') as SchemeDescription;
const scheme: SchemeDescription = { ...base, jwt: { ...base.jwt, audience: ['me'] } };
const NOW = Date.parse(read('leaf').validFrom) + DAY;

interface Signed {
  readonly x5c: unknown;
  readonly key?: KeyObject;
  readonly root?: string;
  readonly time?: number;
}

function judge({ x5c, key = readKey('leaf'), root = 'root', time = NOW }: Signed, by = scheme): Promise<string> {
  const token = makeToken({ alg: 'ES256', x5c }, { notificationUUID: 'id-1', data: { bundleId: 'me' } }, key, 'ES256');
  const body = Buffer.from(JSON.stringify({ signedPayload: token }));
  return judgeToken(by, { secret: readFileSync(at(`${root}.crt`), 'utf8'), headers: {}, body, at: time });
}

const GOOD = ['leaf', 'issuer', 'root'];

describe('a chain', () => {
  test('leads to the pinned root, which may be in it', async () => {
    expect(await judge({ x5c: GOOD.map(toText) })).toBe('ok id-1');
    expect(await judge({ x5c: GOOD.slice(0, 2).map(toText) })).toBe('ok id-1');
  });

  test.each<[string, readonly string[]]>([
    ['whose leaf is signed with SHA-1', ['sha1-leaf', 'issuer', 'root']],
    ['whose leaf is signed with MD5', ['md5-leaf', 'issuer', 'root']],
    ['whose issuer is signed with SHA-1', ['leaf-of-sha1-issuer', 'sha1-issuer', 'root']],
    ['whose issuer is signed with MD5', ['leaf-of-md5-issuer', 'md5-issuer', 'root']],
    ['whose leaf is not marked', ['unmarked-leaf', 'issuer', 'root']],
    ['whose leaf has the mark in its name', ['leaf-with-its-mark-in-its-name', 'issuer', 'root']],
    ['whose issuer is not marked', ['leaf-of-unmarked-issuer', 'unmarked-issuer', 'root']],
    ['whose issuer is not an authority', ['leaf-of-end', 'end', 'root']],
    ['whose issuer has a weak key', ['leaf-of-weak-issuer', 'weak-issuer', 'root']],
    ['without an issuer', ['leaf-of-the-root', 'root']],
    ['to another root with the same name', ['leaf-of-other-root', 'issuer-of-other-root', 'other-root']],
    ['to another root, which it omits', ['leaf-of-other-root', 'issuer-of-other-root']],
    ['to another root, with the pinned one behind it', ['leaf-of-other-root', 'issuer-of-other-root', 'root']],
    ['with an issuer from another chain', ['leaf', 'issuer-of-other-root', 'root']],
    ['whose leaf nobody signed', ['self-signed-leaf', 'issuer', 'root']],
    ['of the leaf alone', ['leaf']],
    ['in the wrong order', ['issuer', 'leaf', 'root']],
    ['with a certificate more', ['leaf', 'issuer', 'root', 'root']],
    ['with the leaf twice', ['leaf', 'leaf', 'issuer']],
  ])('is rejected %s', async (_title, names) => {
    expect(await judge({ x5c: names.map(toText), key: readKey(names[0] ?? '') })).toBe('mismatch');
  });

  test.each<[string, () => unknown]>([
    ['a text', () => toText('leaf')],
    ['an object', () => ({ 0: toText('leaf'), 1: toText('issuer'), length: 2 })],
    ['nothing', () => undefined],
    ['a list of lists', () => GOOD.map((name) => [toText(name)])],
    ['certificates in PEM', () => GOOD.map((name) => read(name).toString())],
    ['certificates in base64url', () => GOOD.map((name) => read(name).raw.toString('base64url'))],
    ['line breaks', () => GOOD.map((name) => toText(name).replace(/.{64}/g, '$&\n'))],
    ['bytes after a certificate', () => GOOD.map((name) => Buffer.concat([read(name).raw, Buffer.alloc(3)]).toString('base64'))],
    ['something else', () => ['AAAA', 'AAAA']],
    ['a huge certificate', () => ['A'.repeat(10_000), toText('issuer')]],
  ])('is rejected if it is %s', async (_title, toChain) => {
    expect(await judge({ x5c: toChain() })).toBe('mismatch');
  });

  test('is valid only while its certificates are', async () => {
    const x5c = GOOD.map(toText);
    expect(await judge({ x5c, time: NOW - 2 * DAY })).toBe('mismatch');
    expect(await judge({ x5c, time: NOW + 30 * DAY })).toBe('mismatch');
  });

  test('does not vouch for a signature by another key, or by a key of another kind', async () => {
    const stranger = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
    expect(await judge({ x5c: GOOD.map(toText), key: stranger })).toBe('mismatch');
    for (const leaf of ['rsa-leaf', 'p384-leaf'])
      expect(await judge({ x5c: [leaf, 'issuer', 'root'].map(toText), key: stranger })).toBe('mismatch');
  });
});

test('a mark of more than 32 bits is not taken for a shorter one', async () => {
  make('short-mark', { issuer: 'issuer', extensions: [toMark('1.2.840.1')] });
  const chain = { extensions: ['1.2.840.4294967297', OF_ISSUER] };
  const marked = { ...scheme, jwt: { ...scheme.jwt, chain } };
  const signed = { x5c: ['short-mark', 'issuer'].map(toText), key: readKey('short-mark') };
  expect(await judge(signed, marked)).toBe('mismatch');
  make('long-mark', { issuer: 'issuer', extensions: [toMark('1.2.840.4294967297')] });
  expect(await judge({ x5c: ['long-mark', 'issuer'].map(toText), key: readKey('long-mark') }, marked)).toBe('ok id-1');
});

test('a root with a weak key is not accepted', () => {
  make('weak-root', { key: ['rsa', '-pkeyopt', 'rsa_keygen_bits:1024'], extensions: AUTHORITY });
  const parsed = compileScheme(scheme).parseKey('k', new Secret(readFileSync(at('weak-root.crt'))), undefined);
  expect(parsed).toMatchObject({ problem: 'the RSA key has 1024 bits' });
});
