/** Each cause is found: a genuine delivery is changed in one way, and the analysis has to name it. */
import { createHash, createHmac, generateKeyPairSync, sign } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { explainNow } from '../../../../src/cli/verify.ts';
import { HeaderFields } from '../../../../src/core/head.ts';
import { Secret } from '../../../../src/core/secret.ts';
import {
  type AnalysisInput,
  type CandidateKey,
  DEFAULT_BUDGET,
  type Explanation,
  Meter,
} from '../../../../src/diagnostics/explain/analysis.ts';
import { EXPLAIN_CAUSES, type ExplainCause } from '../../../../src/diagnostics/explain/explain-metrics.ts';
import { FIXES } from '../../../../src/diagnostics/explain/findings.ts';
import { findPreset, PRESETS } from '../../../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SchemeDescription, SecretEncoding } from '../../../../src/verify/schemes/description.ts';
import { isPlain } from '../../../support/field-cases.ts';
import { makeToken } from '../../../support/tokens.ts';

const NOW = 1_800_000_000_000;
const SECONDS = String(NOW / 1_000);
const TEXT = JSON.stringify({ type: 'invoice.paid', url: 'https://example.com/é', n: 1.5, list: [1, { a: null }], empty: {} });
const BODY = Buffer.from(TEXT);
const WHSEC = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const KEY = Buffer.from(WHSEC.slice(6), 'base64');
const PLAIN = "It's a Secret to Everybody";

type Fields = Readonly<Record<string, string>>;

interface Case {
  readonly scheme?: string | SchemeDescription;
  readonly headers: Fields;
  readonly body?: Buffer | string | undefined;
  readonly target?: string;
  readonly publicUrl?: string;
  readonly keys?: readonly Partial<KeyCase>[];
  readonly others?: readonly Partial<KeyCase>[];
}

interface KeyCase {
  readonly name: string;
  readonly route: string;
  readonly text: string;
  readonly encoding: SecretEncoding;
  readonly notBefore: number;
  readonly notAfter: number;
}

function toAnalysisInput({
  scheme = 'standard-webhooks',
  headers,
  target = '/hooks',
  publicUrl = '',
  ...rest
}: Case): AnalysisInput {
  const description = typeof scheme === 'string' ? findPreset(scheme) : scheme;
  if (description === undefined) throw new Error(`no preset ${scheme}`);
  const compiled = compileScheme(description);
  const toKey = ({ name = 'current', route = 'billing', text = WHSEC, encoding, ...dates }: Partial<KeyCase>): CandidateKey => {
    const secret = new Secret(Buffer.from(text));
    const parsed = compiled.parseKey(name, secret, encoding, dates.notAfter);
    return { name, route, secret, encoding, ...('key' in parsed ? { key: parsed.key } : undefined), ...dates };
  };
  const body = 'body' in rest ? rest.body : BODY;
  return {
    request: {
      method: 'POST',
      target,
      headers: new HeaderFields(Object.entries(headers).flat()),
      body: typeof body === 'string' ? Buffer.from(body) : body,
      receivedAt: NOW,
    },
    scheme: compiled,
    allowDotInId: false,
    tolerance: description.timestamp === undefined ? undefined : description.tolerance,
    publicUrl,
    keys: (rest.keys ?? [{}]).map(toKey),
    others: (rest.others ?? []).map(toKey),
    presets: PRESETS,
    compile: compileScheme,
  };
}

function explain(one: Case): Explanation & { causes: ExplainCause[]; text: string; meter: Meter } {
  const meter = new Meter(DEFAULT_BUDGET);
  const explanation = explainNow(toAnalysisInput(one), meter);
  const { findings } = explanation;
  return { ...explanation, causes: findings.map(({ cause }) => cause), text: findings.map(({ text }) => text).join('\n'), meter };
}

type Content = Buffer | string;

const toSha256 = (body: Content): string => createHash('sha256').update(body).digest('hex');
const hmac = (key: Content, algorithm = 'sha256') => createHmac(algorithm, key);

/** As Standard Webhooks has it. */
function standard(body: Content = BODY, key: Content = KEY, time = SECONDS): Record<string, string> {
  const signature = hmac(key).update(`msg_1.${time}.`).update(body).digest('base64');
  return { 'Webhook-Id': 'msg_1', 'Webhook-Timestamp': time, 'Webhook-Signature': `v1,${signature}` };
}

function toSvix(headers: Fields): Fields {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.replace('Webhook', 'Svix'), value]));
}

/** As GitHub has it. */
function github(body: Content = BODY, key: Content = PLAIN): Record<string, string> {
  return { 'X-GitHub-Delivery': 'd1', 'X-Hub-Signature-256': `sha256=${hmac(key).update(body).digest('hex')}` };
}

/** Stripe's form, as a user would describe it. */
const CUSTOM: SchemeDescription = {
  name: 'custom',
  signature: {
    header: 'Acme-Signature',
    encoding: 'hex',
    list: ',',
    forms: [{ prefix: 'v1=', algorithm: 'hmac-sha256' }],
  },
  signed: ['timestamp', 'body'],
  separator: '.',
  timestamp: { from: { entry: 't=' }, unit: 's' },
  secret: { encoding: 'utf8' },
  tolerance: { past: 300_000, future: 300_000 },
  contentTypes: ['application/json'],
};

function custom(body: Content = BODY, time = SECONDS): Fields {
  return { 'Acme-Signature': `t=${time},v1=${hmac(PLAIN).update(`${time}.`).update(body).digest('hex')}` };
}

/** Signs the URL and the content, as Square does. */
const SIGNS_URL: SchemeDescription = {
  ...CUSTOM,
  signature: { header: 'X-Url-Signature', encoding: 'base64', forms: [{ prefix: '', algorithm: 'hmac-sha256' }] },
  signed: ['url', 'body'],
  separator: '',
};
const { timestamp: _, ...URL_SCHEME } = SIGNS_URL;

const overUrl = (url: string): Fields => ({ 'X-Url-Signature': hmac(PLAIN).update(url).update(BODY).digest('base64') });

const PLAIN_KEYS = [{ text: PLAIN }];
const url = (signed: string, more: Partial<Case> = {}, extra: Fields = {}): Case => ({
  scheme: URL_SCHEME,
  keys: PLAIN_KEYS,
  publicUrl: 'https://hooks.example.com',
  ...more,
  headers: { ...overUrl(signed), ...extra },
});
const gh = (signed: Content, received: Content = BODY, more: Partial<Case> = {}): Case => ({
  scheme: 'github',
  keys: PLAIN_KEYS,
  ...more,
  headers: github(signed),
  body: received,
});
const secret = (text: string, key: Content, more: Partial<KeyCase> = {}): Case => ({
  headers: standard(BODY, key),
  keys: [{ text, ...more }],
});
const parsed = JSON.parse(TEXT) as unknown;
const python = '{"type": "invoice.paid", "url": "https://example.com/é", "n": 1.5, "list": [1, {"a": null}], "empty": {}}';
const form = `payload=${encodeURIComponent(TEXT)}`;
const base64 = (text: Content): string => Buffer.from(text).toString('base64');
const v1 = (value: string): Fields => ({ ...standard(), 'Webhook-Signature': value });
const swapped: Fields = { ...standard(), 'Webhook-Id': SECONDS, 'Webhook-Timestamp': 'msg_1' };
const raw = standard()['Webhook-Signature']?.slice(3) ?? '';
const rawHex = Buffer.from(raw, 'base64').toString('hex');
const ms = String(NOW);
const sha1: Fields = { 'X-Hub-Signature': `sha1=${hmac(PLAIN, 'sha1').update(BODY).digest('hex')}` };

const ROWS: readonly [ExplainCause, string, string, Case][] = [
  ['body_whitespace', 'a line end was added', 'without the line end', { headers: standard(), body: `${TEXT}\n` }],
  ['body_whitespace', 'a line end was added (github)', 'without the line end', gh(BODY, `${TEXT}\r\n`)],
  [
    'body_whitespace',
    'a line end was added (svix)',
    'without',
    { scheme: 'svix', headers: toSvix(standard()), body: `${TEXT}\n` },
  ],
  [
    'body_whitespace',
    'a line end was added (custom)',
    'without',
    { scheme: CUSTOM, keys: PLAIN_KEYS, headers: custom(), body: `${TEXT}\n` },
  ],
  ['body_whitespace', 'a line end was cut off', 'with a line end', { headers: standard(`${TEXT}\n`) }],
  ['body_whitespace', 'a CRLF was cut off', 'CRLF', gh(`${TEXT}\r\n`)],
  ['body_whitespace', 'whitespace came around it', 'around', gh(BODY, `  ${TEXT}\t `)],
  ['body_whitespace', 'curl --data took the line ends out', 'with a line end', { headers: standard(`${TEXT}\n`), body: TEXT }],
  ['body_line_ends', 'LF became CRLF', 'LF in place of CRLF', gh('a\nb\n', 'a\r\nb\r\n')],
  ['body_line_ends', 'CRLF became LF', 'CRLF in place of LF', { headers: standard('a\r\nb\r\n'), body: 'a\nb\n' }],
  ['body_bom', 'a BOM was put before it', 'without the byte order mark', { headers: standard(), body: `\ufeff${TEXT}` }],
  ['body_bom', 'the BOM was cut', 'with a byte order mark', gh(`\ufeff${TEXT}`)],
  ['body_charset', 'UTF-8 became Latin-1', 'Latin-1', { headers: standard(), body: Buffer.from(TEXT, 'latin1') }],
  ['body_charset', 'Latin-1 became UTF-8', 'Latin-1', gh(Buffer.from('{"a":"é"}', 'latin1'), '{"a":"é"}')],
  ['body_reserialised', 'a body parser wrote it compact', 'by 2 spaces', { headers: standard(JSON.stringify(parsed, null, 2)) }],
  ['body_reserialised', 'compact became pretty', 'compact', gh(BODY, JSON.stringify(parsed, null, 2))],
  ['body_reserialised', '4 spaces', 'by 4 spaces', gh(JSON.stringify(parsed, null, 4))],
  ['body_reserialised', 'tabs', 'by tabs', gh(JSON.stringify(parsed, null, '\t'))],
  ['body_reserialised', 'a file that ends its line', 'trailing line ending', gh(`${JSON.stringify(parsed, null, 2)}\n`)],
  ['body_reserialised', "Python's spaces", "Python's json.dumps", { scheme: CUSTOM, keys: PLAIN_KEYS, headers: custom(python) }],
  ['body_reserialised', 'JSON in a JSON string', 'which is itself JSON', gh(BODY, JSON.stringify(TEXT))],
  ['body_escapes', 'unicode was unescaped', 'non-ASCII characters', gh(TEXT.replace('é', '\\u00e9'))],
  [
    'body_escapes',
    'Python wrote it, and Express read it',
    "Python's json.dumps does, with \\u",
    gh(python.replace('é', '\\u00e9')),
  ],
  ['body_escapes', 'unicode was escaped', 'unescaped characters', gh(BODY, TEXT.replace('é', '\\u00e9'))],
  ['body_escapes', "PHP's slashes", 'JSON_UNESCAPED_UNICODE', gh(TEXT.replaceAll('/', '\\/'))],
  ['body_escapes', 'PHP as it is', "PHP's json_encode", gh(TEXT.replaceAll('/', '\\/').replace('é', '\\u00e9'))],
  ['body_escapes', "Go's HTML escapes", 'Go and Rails', gh('{"a":"\\u003cb\\u003e"}', '{"a":"<b>"}')],
  ['body_compression', 'a proxy compressed it', 'decompressed (gzip)', { headers: standard(), body: gzipSync(BODY) }],
  ['body_compression', 'a proxy decompressed it', 'compressed (gzip', gh(gzipSync(BODY))],
  ['body_form', 'the form was decoded', 'as a form', gh(form)],
  ['body_form', 'the JSON was put into a form', 'the decoded value of the form field', { headers: standard(), body: form }],
  ['body_base64', 'a gateway encoded it', 'decoded from base64', gh(BODY, base64(BODY))],
  ['body_empty', 'it was signed as if empty', 'over an empty body', gh('')],
  ['secret_encoding', 'utf8 in place of base64', 'decoded as utf8', secret(WHSEC, WHSEC)],
  [
    'secret_encoding',
    'base64 in place of utf8',
    'decoded as base64',
    {
      ...gh(BODY),
      headers: github(BODY, Buffer.from('c2VjcmV0LXNlY3JldC1zZWNyZXQ=', 'base64')),
      keys: [{ text: 'c2VjcmV0LXNlY3JldC1zZWNyZXQ=' }],
    },
  ],
  [
    'secret_encoding',
    'hex in place of utf8',
    'decoded as hex',
    { ...gh(BODY), headers: github(BODY, Buffer.from('00ff'.repeat(8), 'hex')), keys: [{ text: '00ff'.repeat(8) }] },
  ],
  [
    'secret_encoding',
    'base64 in place of hex',
    'decoded as base64',
    secret('abcdef0123456789abcdef0123456789', Buffer.from('abcdef0123456789abcdef0123456789', 'base64'), { encoding: 'hex' }),
  ],
  [
    'secret_encoding',
    'encoded twice, as in a Secret',
    'base64 of the secret',
    {
      ...gh(BODY),
      headers: github(BODY, Buffer.from('MfKQ9r8GKYqrTwjU', 'base64')),
      keys: [{ text: base64('whsec_MfKQ9r8GKYqrTwjU') }],
    },
  ],
  ['secret_prefix', 'the sender does not count it', 'without its prefix', secret(WHSEC, WHSEC.slice(6))],
  ['secret_prefix', 'the sender counts it', 'with whsec_ before it', secret(WHSEC.slice(6), WHSEC, { encoding: 'base64' })],
  ['secret_whitespace', 'quotes of an env file', 'around it', secret(`"${WHSEC}"`, KEY, { encoding: 'utf8' })],
  ['secret_whitespace', 'quotes (github)', 'around it', { ...gh(BODY), keys: [{ text: `'${PLAIN}'` }] }],
  [
    'secret_whitespace',
    "the sender's line end",
    'with a trailing line ending',
    { ...gh(BODY), headers: github(BODY, `${PLAIN}\n`) },
  ],
  [
    'key_expired',
    'the old key',
    'the key old, which has expired',
    {
      headers: standard(),
      keys: [
        { name: 'new', text: 'whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA' },
        { name: 'old', notAfter: NOW - 1 },
      ],
    },
  ],
  [
    'key_not_yet_valid',
    'the next key',
    'the key next, which is not valid yet',
    { headers: standard(), keys: [{ name: 'next', notBefore: NOW + 1 }] },
  ],
  [
    'other_route_key',
    'the URL of another endpoint',
    'the key k of the route refunds',
    {
      headers: standard(),
      keys: [{ text: 'whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA' }],
      others: [{ route: 'refunds', name: 'k' }],
    },
  ],
  [
    'other_route_key',
    'and a line end',
    'of the route refunds',
    { headers: standard(), body: `${TEXT}\n`, keys: [], others: [{ route: 'refunds', name: 'k' }] },
  ],
  ['header_family', 'svix-* names', 'Svix-Signature', { headers: toSvix(standard()), body: undefined }],
  ['header_family', 'svix-* names, and it matches', 'scheme: svix', { headers: toSvix(standard()) }],
  [
    'header_family',
    'webhook-* names with one svix-* among them',
    'Webhook-Signature beside headers of the other naming scheme',
    { scheme: 'svix', headers: { ...standard(), 'Svix-Id': standard()['Webhook-Id'] ?? '' }, body: undefined },
  ],
  [
    'header_family',
    'webhook-* names with one svix-* among them, and they match',
    'only the headers of the other naming scheme',
    { scheme: 'svix', headers: { ...standard(), 'Svix-Id': 'other' } },
  ],
  [
    'body_whitespace',
    'a line end was added (svix, with webhook-* names)',
    'without',
    { scheme: 'svix', headers: standard(), body: `${TEXT}\n` },
  ],
  [
    'header_family',
    'both, and they disagree',
    'only the headers of the naming scheme',
    { headers: { ...standard(), 'Svix-Id': 'other', 'Svix-Signature': 'v1,x' } },
  ],
  ['other_preset', 'GitHub, by its headers alone', 'the request has X-Hub-Signature-256', { headers: github(), body: undefined }],
  ['other_preset', 'GitHub, and it matches', 'with scheme: github', { headers: github(BODY, KEY) }],
  [
    'other_preset',
    'GitHub, and its secret is as utf8',
    'it matches with scheme: github, with the key current',
    { headers: github(BODY, WHSEC) },
  ],
  ['other_preset', 'GitHub, by another secret', 'this looks like github', { headers: github(BODY, 'other') }],
  [
    'other_preset',
    'the secret itself, as a token',
    'scheme: bearer',
    { ...gh(BODY), headers: { Authorization: `Bearer ${PLAIN}` } },
  ],
  [
    'signature_header',
    'another name',
    'x-webhook-signature-256',
    { scheme: 'github', keys: PLAIN_KEYS, headers: { 'X-Webhook-Signature-256': github()['X-Hub-Signature-256'] ?? '' } },
  ],
  [
    'signature_header',
    "GitHub's old header",
    'x-hub-signature instead of x-hub-signature-256, as hmac-sha1',
    { scheme: 'github', keys: PLAIN_KEYS, headers: sha1 },
  ],
  ['signature_prefix', 'no v1,', 'without a prefix instead of v1,', { headers: v1(raw) }],
  [
    'signature_prefix',
    'another prefix',
    'with another prefix',
    {
      scheme: 'github',
      keys: PLAIN_KEYS,
      headers: { 'X-Hub-Signature-256': (github()['X-Hub-Signature-256'] ?? '').replace('sha256', 'SHA256') },
    },
  ],
  [
    'signature_prefix',
    'no prefix in a list',
    'without a prefix',
    { scheme: CUSTOM, keys: PLAIN_KEYS, headers: { 'Acme-Signature': (custom()['Acme-Signature'] ?? '').replace('v1=', '') } },
  ],
  ['signature_encoding', 'hex in place of base64', 'as hex instead of base64', { headers: v1(`v1,${rawHex}`) }],
  [
    'signature_encoding',
    'base64 in place of hex',
    'as base64 instead of hex',
    {
      scheme: 'github',
      keys: PLAIN_KEYS,
      headers: { 'X-Hub-Signature-256': `sha256=${hmac(PLAIN).update(BODY).digest('base64')}` },
    },
  ],
  ['signature_encoding', 'base64url', 'base64url', { headers: v1(`v1,${Buffer.from(raw, 'base64').toString('base64url')}`) }],
  [
    'signature_algorithm',
    'SHA-1',
    'as hmac-sha1',
    {
      scheme: 'github',
      keys: PLAIN_KEYS,
      headers: { 'X-Hub-Signature-256': `sha256=${hmac(PLAIN, 'sha1').update(BODY).digest('hex')}` },
    },
  ],
  [
    'signature_algorithm',
    'SHA-512',
    'as hmac-sha512',
    { headers: v1(`v1,${hmac(KEY, 'sha512').update(`msg_1.${SECONDS}.`).update(BODY).digest('base64')}`) },
  ],
  [
    'signature_algorithm',
    'a key pair, and only secrets here',
    'use ed25519, but the keys of the route are for hmac-sha256',
    { headers: v1(`v1a,${sign(null, BODY, generateKeyPairSync('ed25519').privateKey).toString('base64')}`) },
  ],
  ['signed_pieces', 'the body only', 'over the body only', { headers: v1(`v1,${hmac(KEY).update(BODY).digest('base64')}`) }],
  [
    'signed_pieces',
    'without the id',
    'timestamp and body, separated by a dot',
    { headers: v1(`v1,${hmac(KEY).update(`${SECONDS}.`).update(BODY).digest('base64')}`) },
  ],
  [
    'signed_pieces',
    'without the timestamp (custom)',
    'the body only',
    {
      scheme: CUSTOM,
      keys: PLAIN_KEYS,
      headers: { 'Acme-Signature': `t=${SECONDS},v1=${hmac(PLAIN).update(BODY).digest('hex')}` },
    },
  ],
  ['timestamp_unit', 'milliseconds', 'in milliseconds', { headers: standard(BODY, KEY, ms) }],
  [
    'timestamp_unit',
    'milliseconds, by the header alone',
    'looks like milliseconds; this scheme uses seconds',
    { headers: standard(BODY, KEY, ms), body: undefined },
  ],
  ['timestamp_unit', 'milliseconds (custom)', 'in milliseconds', { scheme: CUSTOM, keys: PLAIN_KEYS, headers: custom(BODY, ms) }],
  ['timestamp_unit', 'RFC 3339', 'RFC 3339', { headers: standard(BODY, KEY, new Date(NOW).toISOString()) }],
  [
    'timestamp_unit',
    'milliseconds signed, seconds sent',
    'with a timestamp in milliseconds',
    { headers: { ...standard(BODY, KEY, `${SECONDS}000`), 'Webhook-Timestamp': SECONDS } },
  ],
  [
    'timestamp_unit',
    'seconds signed, milliseconds sent',
    'with a timestamp in seconds',
    { headers: { ...standard(), 'Webhook-Timestamp': ms } },
  ],
  ['headers_swapped', 'id and timestamp', 'of ID and timestamp swapped', { headers: swapped }],
  [
    'headers_missing',
    'one of three',
    'Webhook-Timestamp is missing',
    { headers: { ...standard(), 'Webhook-Timestamp': '' }, body: undefined },
  ],
  ['headers_missing', 'all', 'Webhook-Id, Webhook-Timestamp and Webhook-Signature are missing', { headers: {}, body: undefined }],
  [
    'headers_malformed',
    'an id with a dot',
    'the ID contains a dot',
    { headers: { ...standard(), 'Webhook-Id': 'a.b' }, body: undefined },
  ],
  ['clock_skew', 'ahead', 'is 600 s in the future', { headers: standard(BODY, KEY, String(NOW / 1_000 + 600)) }],
  ['clock_skew', 'a time zone', 'a multiple of half an hour', { headers: standard(BODY, KEY, String(NOW / 1_000 - 7_210)) }],
  ['late', 'a replay', '1000 s old; the tolerance is 300 s', { headers: standard(BODY, KEY, String(NOW / 1_000 - 1_000)) }],
  ['url', 'http in place of https', 'http://', url('http://hooks.example.com/hooks')],
  ['url', 'with the port', ':443', url('https://hooks.example.com:443/hooks')],
  [
    'url',
    'without the port',
    'without the port',
    url('https://hooks.example.com/hooks', { publicUrl: 'https://hooks.example.com:8443' }),
  ],
  ['url', 'with a slash', 'with a trailing slash', url('https://hooks.example.com/hooks/')],
  ['url', 'without the slash', 'without the trailing slash', url('https://hooks.example.com/hooks', { target: '/hooks/' })],
  ['url', 'without the query', 'without the query', url('https://hooks.example.com/hooks', { target: '/hooks?a=b' })],
  [
    'url',
    'the host of a proxy',
    'https://public.example',
    url('https://public.example/hooks', {}, { 'X-Forwarded-Host': 'public.example' }),
  ],
  ['url', 'its own Host', 'http://localhost:8080', url('http://localhost:8080/hooks', {}, { Host: 'localhost:8080' })],
  [
    'token_claims',
    'a token from another issuer',
    'the token is for another receiver: $.iss is not accepted',
    {
      scheme: 'netlify',
      headers: { 'X-Webhook-Signature': makeToken({ alg: 'HS256' }, { iss: 'other', sha256: toSha256(BODY) }, PLAIN, 'HS256') },
    },
  ],
  ['unknown', 'another secret', 'the secret differs', { headers: standard(BODY, 'other') }],
  ['unknown', 'another secret (github)', 'the secret differs', { ...gh(BODY), headers: github(BODY, 'other') }],
  ['unknown', 'nothing left of the content', 'the body is empty', gh(BODY, '')],
  [
    'unknown',
    'an encoding that cannot be decoded',
    'Content-Encoding',
    { headers: { ...standard(), 'Content-Encoding': 'x-own' }, body: 'x' },
  ],
];

describe('finds', () => {
  test.each(ROWS)('%s: %s', (cause, _title, text, one) => {
    const found = explain(one);
    expect(found.text).toContain(text);
    expect(found.causes).toContain(cause);
    expect(found.causes.includes('unknown')).toBe(cause === 'unknown');
    // A URL has a fix of its own (url-forms.test.ts).
    for (const { cause: each, fix } of found.findings) if (each !== 'url') expect(fix).toBe(FIXES[each]);
  });

  test('every cause, except the one of skipped analyses', () => {
    expect(EXPLAIN_CAUSES.filter((cause) => !ROWS.some(([found]) => found === cause))).toEqual(['skipped']);
  });
});

describe('names both of two causes', () => {
  test.each([
    [
      'a secret read otherwise, and a line end',
      ['body_whitespace', 'secret_encoding'],
      { ...secret(WHSEC, WHSEC), body: `${TEXT}\n` },
    ],
    [
      'an expired key, and re-serialised content',
      ['body_reserialised', 'key_expired'],
      { headers: standard(python), keys: [{ notAfter: NOW - 1 }] },
    ],
    ['another encoding, and a BOM', ['signature_encoding', 'body_bom'], { headers: v1(`v1,${rawHex}`), body: `\ufeff${TEXT}` }],
    ['a URL, and a line end', ['url', 'body_whitespace'], { ...url('http://hooks.example.com/hooks'), body: `${TEXT}\n` }],
  ] satisfies [string, ExplainCause[], Case][])('%s', (_title, causes, one) => {
    expect(explain(one).causes).toEqual(causes);
  });
});

describe('for every preset that signs with a secret', () => {
  const symmetric = PRESETS.filter(isPlain).filter(
    ({ signature, signed }) => signed.length > 0 && signature?.forms.some(({ algorithm }) => algorithm.startsWith('hmac-')),
  );
  const toSigned = (preset: SchemeDescription, text: string): Case => {
    const { prefix = '', encoding } = preset.secret;
    const bytes = Buffer.from('a secret of thirty-two bytes, 32');
    const written = prefix + (encoding === 'utf8' ? bytes.toString() : bytes.toString(encoding));
    const publicUrl = 'https://hooks.example.com';
    const request = { id: 'msg_1', timestamp: NOW, method: 'POST', url: `${publicUrl}/hooks`, body: Buffer.from(text) };
    const headers = compileScheme(preset).sign(request, new Secret(Buffer.from(written)), undefined);
    return { scheme: preset, headers: Object.fromEntries(headers), body: text, publicUrl, keys: [{ text: written }] };
  };
  const form = (preset: SchemeDescription): string => (preset.signed.includes('form') ? 'a=b&c=d' : TEXT);

  test.each(symmetric.map((preset) => [preset.name, preset] as const))(
    '%s: finds how the body and the secret were changed',
    (_name, preset) => {
      const one = toSigned(preset, form(preset));
      expect(explain(one).causes.filter((cause) => cause !== 'late')).toEqual([]);
      expect(explain({ ...one, body: `${one.body}\n` }).causes).toContain('body_whitespace');
      const quoted = explain({ ...one, keys: [{ text: `"${one.keys?.[0]?.text}"`, encoding: 'utf8' }] });
      expect(quoted.causes).toContain('secret_whitespace');
      expect(explain({ ...one, keys: [{ text: 'another secret of enough bytes', encoding: 'utf8' }] }).causes).toContain(
        'unknown',
      );
    },
  );
});

test('names presets with the same signature together', () => {
  const analysisInput = toAnalysisInput({ headers: github(), body: undefined });
  const alike = { ...(findPreset('github') as SchemeDescription), name: 'alike' };
  const { findings } = explainNow({ ...analysisInput, presets: [...PRESETS, alike] }, new Meter(DEFAULT_BUDGET));
  expect(findings.map(({ text }) => text)[0]).toMatch(
    /this looks like github (?:or \S+ )*?or alike: the request has X-Hub-Signature-256/,
  );
  expect(findings.filter(({ cause }) => cause === 'other_preset')).toHaveLength(1);
});

describe('a valid signature', () => {
  test('has no cause in body or secret, and only the time is reported', () => {
    expect(explain({ headers: standard() })).toMatchObject({ findings: [], isProven: true });
    const late = explain({ headers: standard(BODY, KEY, String(NOW / 1_000 - 1_000)) });
    expect(late).toMatchObject({ causes: ['late'], isProven: true });
  });

  test('of an unknown sender has an unknown cause, without proof', () => {
    const { causes, isProven } = explain({ ...gh(BODY), headers: github(BODY, 'the secret of somebody else') });
    expect({ causes, isProven }).toEqual({ causes: ['unknown'], isProven: false });
  });
});

test('names only the preset whose ID header is present, of those with the same signature', () => {
  const { findings } = explainNow(toAnalysisInput({ headers: github(), body: undefined }), new Meter(DEFAULT_BUDGET));
  expect(findings.map(({ text }) => text)).toContain(
    'this looks like github: the request has X-Hub-Signature-256 (scheme: github)',
  );
});

describe('a signature in the body', () => {
  const token = 'a8ce0edb2dd8301dee';
  const toBody = (signature: string): string => JSON.stringify({ signature: { timestamp: SECONDS, token, signature }, id: 1 });
  const signed = (key: Content): string => toBody(hmac(key).update(`${SECONDS}${token}`).digest('hex'));

  test('is explained by a key of another route, or by another encoding of the secret', () => {
    const others = [{ name: 'theirs', route: 'other', text: PLAIN }];
    const one = explain({ scheme: 'mailgun', headers: {}, body: signed(PLAIN), keys: [{ text: WHSEC }], others });
    expect(one).toMatchObject({ isProven: true, causes: ['other_route_key'] });
    expect(explain({ scheme: 'mailgun', headers: {}, body: signed(KEY), keys: [{ text: WHSEC }] }).isProven).toBe(true);
  });

  test('names what is missing or ambiguous', () => {
    expect(explain({ scheme: 'mailgun', headers: {}, body: '{}', keys: PLAIN_KEYS }).text).toContain('missing');
    const twice = signed(PLAIN).replace('"token"', '"token":"x","token"');
    expect(explain({ scheme: 'mailgun', headers: {}, body: twice, keys: PLAIN_KEYS }).text).toContain('"token" is repeated');
  });
});
