import { execFileSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { Webhook } from 'standardwebhooks';
import { Webhook as SvixWebhook } from 'svix';
import { describe, expect, test } from 'vitest';
import { HeaderFields } from '../../../../src/core/head.ts';
import { Secret } from '../../../../src/core/secret.ts';
import { standardWebhooks, svix } from '../../../../src/verify/presets/standard-webhooks.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SecretEncoding } from '../../../../src/verify/schemes/description.ts';
import type { VerifyKey } from '../../../../src/verify/schemes/scheme.ts';
import { SECRET, signV1 } from '../../../support/deliveries.ts';
import { fc } from '../../../support/property.ts';

const scheme = compileScheme(standardWebhooks);
const NOW = 1_800_000_000;
const OTHER = 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD';
const PYTHON = join(import.meta.dirname, '..', '..', '..', '..', '.cache', 'python');

function toKey(text: string, encoding?: SecretEncoding, name = 'k'): VerifyKey {
  const parsed = scheme.parseKey(name, new Secret(Buffer.from(text)), encoding);
  if ('problem' in parsed) throw new Error(parsed.problem);
  return parsed.key;
}

function toHeaders(id: string, timestamp: number | string, signature: string): HeaderFields {
  return new HeaderFields(['Webhook-Id', id, 'Webhook-Timestamp', String(timestamp), 'Webhook-Signature', signature]);
}

/** `ok`, or why not. */
function judge(
  headers: HeaderFields,
  body: Buffer | string,
  keys: readonly VerifyKey[] = [toKey(SECRET)],
  allowDotInId = false,
): string {
  const head = scheme.readHead(headers, { allowDotInId });
  if ('code' in head) return head.code;
  return scheme.verify(head, { method: 'POST', url: '', body: Buffer.from(body) }, keys)?.name ?? 'mismatch';
}

describe('the published vectors', () => {
  const vectors = JSON.parse(
    readFileSync(join(import.meta.dirname, '..', '..', '..', 'vectors', 'standard-webhooks.json'), 'utf8'),
  ) as Record<string, string>[];
  test.each(vectors)('verify: $source', ({ secret = '', id = '', timestamp = '', bodyBase64 = '', signature = '' }) => {
    const body = Buffer.from(bodyBase64, 'base64');
    expect(judge(toHeaders(id, timestamp, signature), body, [toKey(secret)])).toBe('k');
    expect(judge(toHeaders(id, timestamp, signature), Buffer.concat([body, Buffer.from(' ')]), [toKey(secret)])).toBe('mismatch');
  });
});

describe('independent libraries', () => {
  const body = JSON.stringify({ type: 'a.b', text: 'grüße 🎉 $$ $&' });

  test('npm standardwebhooks and svix sign what the gate verifies, and verify what it signs', () => {
    for (const Library of [Webhook, SvixWebhook]) {
      const library = new Library(SECRET);
      expect(judge(toHeaders('msg_1', NOW, library.sign('msg_1', new Date(NOW * 1000), body)), body)).toBe('k');
      const now = Math.floor(Date.now() / 1000);
      const headers = Object.fromEntries(
        scheme
          .sign({ id: 'msg_1', timestamp: now * 1000, body: Buffer.from(body) }, new Secret(Buffer.from(SECRET)), undefined)
          .map(([name, value]) => [name.toLowerCase(), value]),
      );
      expect(() => library.verify(body, headers)).not.toThrow();
      expect(() => library.verify(`${body} `, headers)).toThrow();
    }
  });

  test('differ from the gate for bytes that are not UTF-8, where only the raw bytes are correct', () => {
    const raw = Buffer.from([0x7b, 0xff, 0x7d]);
    const theirs = new Webhook(SECRET).sign('msg_1', new Date(NOW * 1000), raw);
    expect(judge(toHeaders('msg_1', NOW, theirs), raw)).toBe('mismatch');
    expect(judge(toHeaders('msg_1', NOW, signV1('msg_1', NOW, raw)), raw)).toBe('k');
    // Their signature is good for another body, the one with U+FFFD.
    expect(judge(toHeaders('msg_1', NOW, theirs), '{\ufffd}')).toBe('k');
  });

  test.skipIf(!existsSync(join(PYTHON, 'ready'))).each([
    ['', SECRET],
    [', also with a secret without padding', 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaQ'],
  ])('PyPI standardwebhooks signs what the gate verifies%s', (_title, secret) => {
    const script =
      'import sys,datetime\nfrom standardwebhooks import Webhook\nprint(Webhook(sys.argv[1]).sign(sys.argv[2], datetime.datetime.fromtimestamp(int(sys.argv[3]), tz=datetime.timezone.utc), sys.argv[4]))';
    const signature = execFileSync(join(PYTHON, 'bin', 'python'), ['-c', script, secret, 'msg_1', String(NOW), body], {
      encoding: 'utf8',
    }).trim();
    expect(judge(toHeaders('msg_1', NOW, signature), body, [toKey(secret)])).toBe('k');
  });
});

describe('v1a', () => {
  test('signs with whsk_ and verifies with whpk_', () => {
    const { publicKey, privateKey } = generateKeyPairSync('ed25519');
    const seed = privateKey.export({ format: 'der', type: 'pkcs8' }).subarray(-32);
    const point = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
    for (const material of [seed, Buffer.concat([seed, point])]) {
      const headers = new HeaderFields(
        scheme
          .sign(
            { id: 'a', timestamp: NOW * 1000, body: Buffer.from('{}') },
            new Secret(Buffer.from(`whsk_${material.toString('base64')}`)),
            undefined,
          )
          .flat(),
      );
      expect(headers.get('webhook-signature')).toMatch(/^v1a,/);
      expect(judge(headers, '{}', [toKey(`whpk_${point.toString('base64')}`)])).toBe('k');
      expect(judge(headers, '{ }', [toKey(`whpk_${point.toString('base64')}`)])).toBe('mismatch');
      expect(judge(headers, '{}')).toBe('mismatch');
    }
  });
});

describe('the pitfalls of other verifiers', () => {
  const good = signV1('a', NOW, Buffer.from('{}'));
  const judgeSignature = (signature: string): string => judge(toHeaders('a', NOW, signature), '{}');

  test('1: a shorter signature never matches', () => {
    for (const signature of ['v1,', 'v1', `${good.slice(0, -8)}`, 'v1,AAAA', `v1a,${good.slice(3)}`])
      expect(judgeSignature(signature)).toBe('malformed_signature');
  });

  test('2: an empty secret is not a key, in any form', () => {
    for (const [text, encoding] of [
      ['whsec_', undefined],
      ['', 'utf8'],
      ['', 'base64'],
      ['', 'hex'],
      ['whsec_', 'base64'],
      ['', undefined],
    ] as const) {
      expect(scheme.parseKey('k', new Secret(Buffer.from(text)), encoding)).toHaveProperty('problem');
    }
  });

  test('3: a byte that is not UTF-8 does not equal another one', () => {
    const body = Buffer.from('{\ufffd}');
    expect(judge(toHeaders('a', NOW, signV1('a', NOW, body)), Buffer.from([0x7b, 0xff, 0x7d]))).toBe('mismatch');
    expect(judge(toHeaders('a', NOW, signV1('a', NOW, Buffer.from('{}'))), '\ufeff{}')).toBe('mismatch');
  });

  test('4: dollars in the body are just dollars', () => {
    const body = Buffer.from('{"price":"$$1 $& $1"}');
    expect(judge(toHeaders('a', NOW, signV1('a', NOW, body)), body)).toBe('k');
    expect(judge(toHeaders('a', NOW, signV1('a', NOW, body)), '{"price":"$1 $& $1"}')).toBe('mismatch');
  });

  test.each([
    '1800000000junk',
    '1800000000.5',
    ' 1800000000',
    '1800000000 ',
    '1.8e9',
    '1_800_000_000',
    '+1800000000',
    '-1800000000',
    '0x6b49d200',
    '٣',
    '1800000000000000',
    'NaN',
    'Infinity',
    '1800000000,1',
  ])('5 and 7: the timestamp %j is malformed', (timestamp) => {
    expect(judge(toHeaders('a', timestamp, signV1('a', timestamp, Buffer.from('{}'))), '{}')).toBe('malformed_signature');
  });

  test('5: a timestamp has one spelling: leading zeros are malformed, whichever spelling was signed', () => {
    for (const signed of ['01800000000', '1800000000'])
      expect(judge(toHeaders('a', '01800000000', signV1('a', signed, Buffer.from('{}'))), '{}')).toBe('malformed_signature');
    expect(judge(toHeaders('a', '1800000000', signV1('a', '01800000000', Buffer.from('{}'))), '{}')).toBe('mismatch');
  });

  test('9: any signature of the list may match, and any key', () => {
    const other = signV1('a', NOW, Buffer.from('{}'), OTHER);
    expect(judgeSignature(`${other} ${good}`)).toBe('k');
    expect(judgeSignature(`${good} ${other}`)).toBe('k');
    const keys = [toKey(OTHER, undefined, 'new'), toKey(SECRET, undefined, 'old')];
    expect(judge(toHeaders('a', NOW, good), '{}', keys)).toBe('old');
    expect(judge(toHeaders('a', NOW, `${good} ${other}`), '{}', keys)).toBe('new');
  });

  test('10: the version must match exactly', () => {
    for (const version of ['v0', 'v2', 'V1', 'v1 ', 'v', '', 'v1a', 'xv1'])
      expect(judgeSignature(`${version},${good.slice(3)}`)).toBe('malformed_signature');
    expect(judgeSignature(`v2,abc ${good}`)).toBe('k');
  });

  test('11: a re-serialised body is another body', () => {
    expect(judge(toHeaders('a', NOW, signV1('a', NOW, Buffer.from('{"b":1, "a":2}'))), '{"b":1,"a":2}')).toBe('mismatch');
  });

  test('12: a malformed entry neither throws nor hides a valid one', () => {
    for (const junk of ['garbage', 'v1,===', ',', 'v1,%%%', 'v1a,xx', 'v1,']) expect(judgeSignature(`${junk} ${good}`)).toBe('k');
  });

  test('13: only canonical base64 is a signature', () => {
    const [, base64 = ''] = good.split(',');
    const last = base64.at(-2) ?? '';
    const variant = `${base64.slice(0, -2)}${String.fromCharCode(last.charCodeAt(0) + 1)}=`;
    for (const form of [
      base64.slice(0, -1),
      `${base64}=`,
      `${base64}!!`,
      variant,
      base64.replaceAll('+', '-').replaceAll('/', '_').replace(/=$/, ''),
      `${base64.slice(0, 10)}\t${base64.slice(10)}`,
    ]) {
      expect(judgeSignature(`v1,${form}`)).not.toBe('k');
    }
  });

  test('14: bytes cannot move between id, timestamp and body', () => {
    const signature = signV1('a', NOW, Buffer.from(`${NOW}.{}`));
    expect(judge(toHeaders('a', NOW, signature), `${NOW}.{}`)).toBe('k');
    expect(judge(toHeaders(`a.${NOW}`, NOW, signature), '{}')).toBe('malformed_signature');
    expect(judge(toHeaders(`a.${NOW}`, NOW, signature), '{}', [toKey(SECRET)], true)).toBe('k');
    for (const id of ['a b', 'a\tb', 'ä', 'x'.repeat(257)])
      expect(judge(toHeaders(id, NOW, good), '{}')).toBe('malformed_signature');
    expect(judge(toHeaders('x'.repeat(256), NOW, signV1('x'.repeat(256), NOW, Buffer.from('{}'))), '{}')).toBe('k');
  });

  test('15: at most ten signatures are checked', () => {
    const junk = Array(9).fill('v1,AAAA').join(' ');
    expect(judgeSignature(`${junk} ${good}`)).toBe('k');
    expect(judgeSignature(`${junk} v1,AAAA ${good}`)).toBe('malformed_signature');
  });

  test('16: any repeated security header is rejected', () => {
    const base = ['Webhook-Id', 'a', 'Webhook-Timestamp', String(NOW), 'Webhook-Signature', good];
    for (const [name, value] of [
      ['webhook-id', 'a'],
      ['WEBHOOK-TIMESTAMP', String(NOW)],
      ['Webhook-Signature', good],
    ] as const) {
      expect(judge(new HeaderFields([...base, name, value]), '{}')).toBe('malformed_signature');
    }
    expect(judge(new HeaderFields([...base, 'webhook_id', 'b']), '{}')).toBe('k');
  });

  test('17: the svix- headers must have the same values as the webhook- headers', () => {
    const base = ['Webhook-Id', 'a', 'Webhook-Timestamp', String(NOW), 'Webhook-Signature', good];
    const twins = ['svix-id', 'a', 'Svix-Timestamp', String(NOW), 'SVIX-SIGNATURE', good];
    expect(judge(new HeaderFields([...base, ...twins]), '{}')).toBe('k');
    for (const [name, value] of [
      ['svix-id', 'b'],
      ['Svix-Timestamp', String(NOW - 1)],
      ['svix-signature', `${good} v1,AAAA`],
      ['svix-id', ''],
    ] as const) {
      expect(judge(new HeaderFields([...base, name, value]), '{}')).toBe('malformed_signature');
      expect(judge(new HeaderFields([...base, ...twins, name, value]), '{}')).toBe('malformed_signature');
    }
  });

  test('22: a prefix counts only at the start', () => {
    expect(judgeSignature(`x${good}`)).toBe('malformed_signature');
    expect(judgeSignature(good.slice(3))).toBe('malformed_signature');
  });

  test('25: different lengths do not throw', () => {
    expect(judgeSignature(`v1,${Buffer.alloc(31).toString('base64')}`)).toBe('malformed_signature');
    expect(judgeSignature(`v1,${Buffer.alloc(33).toString('base64')}`)).toBe('malformed_signature');
    expect(judgeSignature(`v1,${Buffer.alloc(32).toString('base64')}`)).toBe('mismatch');
  });
});

describe('the two sets of header names', () => {
  const svixScheme = compileScheme(svix);
  const good = signV1('a', NOW, Buffer.from('{}'));
  const values = { id: 'a', timestamp: String(NOW), signature: good };
  type Part = keyof typeof values;
  const PARTS = ['id', 'timestamp', 'signature'] as const;
  const toFields = (kind: string, parts: readonly Part[] = PARTS, changed: Partial<typeof values> = {}): string[] =>
    parts.flatMap((part) => [`${kind}-${part}`, { ...values, ...changed }[part]]);
  const judgeSvix = (fields: readonly string[]): string => {
    const head = svixScheme.readHead(new HeaderFields(fields), { allowDotInId: false });
    if ('code' in head) return head.code;
    return svixScheme.verify(head, { method: 'POST', url: '', body: Buffer.from('{}') }, [toKey(SECRET)])?.name ?? 'mismatch';
  };
  const explain = (which: typeof scheme, fields: readonly string[]): string | undefined => {
    const head = which.readHead(new HeaderFields(fields), { allowDotInId: false });
    return 'code' in head ? head.detail : undefined;
  };

  test.each(['svix', 'Svix', 'webhook', 'WEBHOOK'])('a svix route accepts the %s- headers alone', (kind) => {
    expect(judgeSvix(toFields(kind))).toBe('k');
    expect(judgeSvix(toFields(kind, PARTS, { id: 'b' }))).toBe('mismatch');
    for (const part of PARTS) {
      expect(judgeSvix(toFields(kind, PARTS, { [part]: '' }))).toBe('missing_signature');
      expect(judgeSvix([...toFields(kind), `${kind}-${part}`, values[part]])).toBe('malformed_signature');
    }
  });

  test('a svix route verifies what the Svix library signs, under both names', () => {
    const signature = new SvixWebhook(SECRET).sign('a', new Date(NOW * 1000), '{}');
    for (const kind of ['svix', 'webhook']) expect(judgeSvix(toFields(kind, PARTS, { signature }))).toBe('k');
  });

  test('a mixture is rejected, whichever headers come from which set', () => {
    for (let mask = 1; mask < 7; mask++) {
      const ofSvix = PARTS.filter((_, bit) => (mask & (1 << bit)) !== 0);
      const ofWebhook = PARTS.filter((_, bit) => (mask & (1 << bit)) === 0);
      const fields = [...toFields('webhook', ofWebhook), ...toFields('svix', ofSvix)];
      for (const which of [svixScheme, scheme]) {
        const head = which.readHead(new HeaderFields(fields), { allowDotInId: false });
        expect(head).toMatchObject({ code: 'malformed_signature' });
      }
    }
  });

  test('the other set must be equal if it is there as a whole, and none of it may be there if the own one is incomplete', () => {
    expect(judgeSvix([...toFields('svix'), ...toFields('webhook')])).toBe('k');
    for (const part of PARTS) {
      expect(judgeSvix([...toFields('svix'), `webhook-${part}`, 'other'])).toBe('malformed_signature');
      // Libraries read `svix-*` first, so that an app could take the ID from it.
      expect(judgeSvix([...toFields('webhook'), `svix-${part}`, 'other'])).toBe('malformed_signature');
      expect(judgeSvix([...toFields('webhook'), `svix-${part}`, values[part]])).toBe('malformed_signature');
      expect(judgeSvix([...toFields('webhook'), `svix-${part}`, ''])).toBe('malformed_signature');
    }
  });

  test('a refusal names the headers of the other set', () => {
    const end = 'all headers must have names of one kind';
    expect(explain(svixScheme, [...toFields('svix', ['id', 'timestamp']), ...toFields('webhook', ['signature'])])).toBe(
      `the request has Webhook-Signature, but not Svix-Signature; ${end}`,
    );
    expect(explain(scheme, toFields('svix'))).toBe(
      `the request has Svix-Id, Svix-Timestamp, Svix-Signature, but not Webhook-Id, Webhook-Timestamp, Webhook-Signature; ${end}`,
    );
    expect(explain(svixScheme, toFields('svix', ['id']))).toBeUndefined();
    expect(explain(svixScheme, [])).toBeUndefined();
  });

  test('a standard-webhooks route does not accept the svix- headers alone', () => {
    expect(judge(new HeaderFields(toFields('svix')), '{}')).toBe('malformed_signature');
  });
});

describe('a key', () => {
  test('is decoded by its prefix, or by the configured encoding', () => {
    const raw = Buffer.from(SECRET.slice(6), 'base64');
    const good = signV1('a', NOW, Buffer.from('{}'));
    for (const [text, encoding] of [
      [SECRET, undefined],
      [SECRET.slice(6), 'base64'],
      [SECRET, 'base64'],
      [raw.toString('hex'), 'hex'],
    ] as const) {
      expect(judge(toHeaders('a', NOW, good), '{}', [toKey(text, encoding)])).toBe('k');
    }
    const verbatim = signV1('a', NOW, Buffer.from('{}'), Buffer.from(SECRET).toString('base64'));
    expect(judge(toHeaders('a', NOW, verbatim), '{}', [toKey(SECRET, 'utf8')])).toBe('k');
  });

  test('may be without its padding, as the Python library accepts it', () => {
    const { publicKey, privateKey } = generateKeyPairSync('ed25519');
    const point = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32).toString('base64');
    const seed = privateKey.export({ format: 'der', type: 'pkcs8' }).subarray(-32).toString('base64');
    for (const padded of ['MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaQ=', 'MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLQ==']) {
      const bare = padded.replaceAll('=', '');
      const signature = signV1('a', NOW, Buffer.from('{}'), padded);
      expect(judge(toHeaders('a', NOW, signature), '{}', [toKey(`whsec_${bare}`)])).toBe('k');
      expect(judge(toHeaders('a', NOW, signature), '{}', [toKey(bare, 'base64')])).toBe('k');
    }
    const secret = new Secret(Buffer.from(`whsk_${seed.replaceAll('=', '')}`));
    const headers = new HeaderFields(
      scheme.sign({ id: 'a', timestamp: NOW * 1000, body: Buffer.from('{}') }, secret, undefined).flat(),
    );
    expect(judge(headers, '{}', [toKey(`whpk_${point.replaceAll('=', '')}`)])).toBe('k');
  });

  test.each([
    ['no prefix', 'abcdefghijklmnopqrstuvwxyz', undefined, 'no whsec_ prefix'],
    ['not base64', 'whsec_a b', undefined, 'not canonical base64'],
    ['unpadded, with unused bits', 'whsec_YWJ', undefined, 'not canonical base64'],
    ['with half of its padding', 'whsec_YQ=', undefined, 'not canonical base64'],
    ['with too much padding', 'whsec_YWJj=', undefined, 'not canonical base64'],
    ['one character too long', 'whsec_YWJjZ', undefined, 'not canonical base64'],
    ['unpadded base64url', 'whsec_-_8', undefined, 'not canonical base64'],
    ['only padding', 'whsec_=', undefined, 'not canonical base64'],
    ['not hex', 'xyz', 'hex', 'not hex'],
    ['private where public belongs', 'whsk_abc', undefined, 'private key'],
    ['a public key of the wrong length', 'whpk_YWJj', undefined, '32 bytes'],
  ] as const)('is rejected with a reason that does not quote it: %s', (_title, text, encoding, reason) => {
    const parsed = scheme.parseKey('k', new Secret(Buffer.from(text)), encoding);
    expect(parsed).toHaveProperty('problem', expect.stringContaining(reason));
    expect(JSON.stringify(parsed)).not.toContain(text);
  });

  test('that is short gets a warning', () => {
    expect(scheme.parseKey('k', new Secret(Buffer.from('short')), 'utf8')).toHaveProperty(
      'warning',
      expect.stringContaining('5 bytes'),
    );
    expect(scheme.parseKey('k', new Secret(Buffer.from(SECRET)), undefined)).not.toHaveProperty('warning');
  });

  test('never shows its bytes', () => {
    const secret = new Secret(Buffer.from(SECRET));
    const shown = [
      String(secret),
      JSON.stringify({ secret }),
      inspect({ secret }, { depth: 9, showHidden: true }),
      inspect(toKey(SECRET), { depth: 9, showHidden: true }),
      JSON.stringify(toKey(SECRET)),
    ].join();
    expect(shown).not.toContain(SECRET.slice(6, 20));
    expect(shown).toContain('[secret]');
  });

  test('that cannot sign is reported', () => {
    expect(() =>
      scheme.sign({ id: 'a', timestamp: 0, body: Buffer.alloc(0) }, new Secret(Buffer.from('whpk_abc')), undefined),
    ).toThrow(/cannot sign/);
    expect(() =>
      scheme.sign({ id: 'a', timestamp: 0, body: Buffer.alloc(0) }, new Secret(Buffer.from('whsk_abc')), undefined),
    ).toThrow(/32 or 64/);
    expect(() =>
      scheme.sign({ id: 'a', timestamp: 0, body: Buffer.alloc(0) }, new Secret(Buffer.from('plain')), undefined),
    ).toThrow(/prefix/);
  });
});

describe('for any input', () => {
  test('signed input verifies, and with one changed bit it does not', () => {
    const bytes = fc.uint8Array({ minLength: 1, maxLength: 200 });
    fc.assert(
      fc.property(fc.stringMatching(/^[A-Za-z0-9_-]{1,40}$/), bytes, fc.nat(), fc.nat(7), (id, content, position, bit) => {
        const body = Buffer.from(content);
        const headers = new HeaderFields(
          scheme.sign({ id, timestamp: NOW * 1000, body }, new Secret(Buffer.from(SECRET)), undefined).flat(),
        );
        expect(judge(headers, body)).toBe('k');
        const changed = Buffer.from(body);
        changed[position % body.length] = (changed[position % body.length] as number) ^ (1 << bit);
        expect(judge(headers, changed)).toBe('mismatch');
        expect(judge(headers, body, [toKey(OTHER)])).toBe('mismatch');
        expect(judge(toHeaders(`${id}x`, NOW, headers.get('webhook-signature') ?? ''), body)).toBe('mismatch');
        expect(judge(toHeaders(id, NOW + 1, headers.get('webhook-signature') ?? ''), body)).toBe('mismatch');
      }),
    );
  });

  test('parsing a head never throws', () => {
    const value = fc.oneof(
      fc.string({ maxLength: 60 }),
      fc.constantFrom('v1,', 'v1a,', `${NOW}`, signV1('a', NOW, Buffer.from('{}'))),
    );
    fc.assert(
      fc.property(value, value, fc.array(value, { maxLength: 12 }), (id, timestamp, list) => {
        judge(toHeaders(id, timestamp, list.join(' ')), '{}');
      }),
    );
  });
});
