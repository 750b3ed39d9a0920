/** What the library has in place of Node, compared with Node. */

import { isAscii, isUtf8 } from 'node:buffer';
import * as crypto from 'node:crypto';
import { isIP } from 'node:net';
import { crc32 } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { compute, need } from '../../../src/library/compute.ts';
import { Buffer as WebBuffer } from '../../../src/library/web/buffer.ts';
import { toBytes } from '../../../src/library/web/hmac.ts';
import * as web from '../../../src/library/web/node.ts';
import { fc } from '../../support/property.ts';

const bytes = fc.uint8Array({ maxLength: 70 }).map((each) => Buffer.from(each));
const text = fc.string({ unit: 'binary', maxLength: 40 });
const toHex = (each: Uint8Array): string => Buffer.from(each).toString('hex');
const ENCODINGS = ['utf8', 'latin1', 'hex', 'base64', 'base64url'] as const;

describe('the bytes', () => {
  test.each(ENCODINGS)('are written in %s as Node writes them', (encoding) => {
    fc.assert(
      fc.property(bytes, (given) => {
        const own = WebBuffer.from(given);
        expect(own.toString(encoding)).toBe(given.toString(encoding));
        expect(toHex(WebBuffer.from(given.toString(encoding), encoding))).toBe(
          toHex(Buffer.from(given.toString(encoding), encoding)),
        );
      }),
    );
  });

  test('are read from any text as Node reads them, in the encodings without a lenient decoder', () => {
    fc.assert(
      fc.property(text, (given) => {
        for (const encoding of ['utf8', 'latin1'] as const)
          expect(toHex(WebBuffer.from(given, encoding))).toBe(toHex(Buffer.from(given, encoding)));
        // Node reads the lower half of characters that no header has; here they are no digits.
        const narrow = Buffer.from(given).toString('latin1');
        expect(toHex(WebBuffer.from(narrow, 'hex'))).toBe(toHex(Buffer.from(narrow, 'hex')));
      }),
    );
  });

  test('decode no text as base64 whose bytes would be encoded as it', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(...'AB/+=-_ \n'), maxLength: 12 }), (given) => {
        for (const encoding of ['base64', 'base64url'] as const) {
          const isCanonical = Buffer.from(given, encoding).toString(encoding) === given;
          expect(WebBuffer.from(given, encoding).toString(encoding) === given).toBe(isCanonical);
        }
      }),
    );
  });

  test('are searched, compared, cut, copied and joined as those of Node', () => {
    const few = fc.uint8Array({ max: 3, maxLength: 12 }).map((each) => Buffer.from(each));
    fc.assert(
      fc.property(few, few, fc.nat(14), (given, wanted, at) => {
        const [own, ownWanted] = [WebBuffer.from(given), WebBuffer.from(wanted)];
        expect(own.indexOf(ownWanted, at)).toBe(given.indexOf(wanted, at));
        expect(own.includes(wanted.toString('latin1'))).toBe(given.includes(wanted.toString('latin1')));
        expect(own.equals(ownWanted)).toBe(given.equals(wanted));
        expect(toHex(own.subarray(at))).toBe(toHex(given.subarray(at)));
        expect(toHex(WebBuffer.concat([own, ownWanted]))).toBe(toHex(Buffer.concat([given, wanted])));
        const [target, ownTarget] = [Buffer.alloc(8), WebBuffer.alloc(8)];
        expect(own.copy(ownTarget, 3)).toBe(given.copy(target, 3));
        expect(toHex(ownTarget)).toBe(toHex(target));
        expect(WebBuffer.isBuffer(own.subarray(1))).toBe(true);
      }),
    );
  });
});

describe('the functions', () => {
  test.each(['sha1', 'sha256', 'sha384', 'sha512'])('compute %s and its HMAC', async (name) => {
    await fc.assert(
      fc.asyncProperty(bytes, bytes, async (key, data) => {
        expect(await compute(() => web.hash(name, data, 'hex'))).toBe(crypto.hash(name, data, 'hex'));
        if (key.length === 0) return;
        const mac = await compute(() => web.computeHmac(name, web.createSecretKey(Uint8Array.from(key)), Uint8Array.from(data)));
        expect(toHex(mac)).toBe(crypto.createHmac(name, key).update(data).digest('hex'));
      }),
      { numRuns: 30 },
    );
  });

  test('compare, count and classify as those of Node', () => {
    fc.assert(
      fc.property(bytes, bytes, (one, other) => {
        expect(web.timingSafeEqual(one, Buffer.from(one))).toBe(true);
        if (one.length === other.length) expect(web.timingSafeEqual(one, other)).toBe(one.equals(other));
        expect(web.crc32(one)).toBe(crc32(one));
        expect([web.isUtf8(one), web.isAscii(one)]).toEqual([isUtf8(one), isAscii(one)]);
      }),
    );
  });

  test.each(['1.2.3.4', '256.1.1.1', '1.2.3', '1.2.3.4.', '::1', 'fe80::1', ':', 'example.com', '', '01.2.3.4'])(
    'classify the host %o',
    (host) => {
      expect(web.isIP(host)).toBe(isIP(host));
    },
  );

  const PAIRS = [
    ['Ed25519', null, crypto.generateKeyPairSync('ed25519'), {}],
    ['ECDSA', 'sha256', crypto.generateKeyPairSync('ec', { namedCurve: 'prime256v1' }), {}],
    [
      'RSA',
      'sha256',
      crypto.generateKeyPairSync('rsa', { modulusLength: 2048 }),
      { padding: crypto.constants.RSA_PKCS1_PADDING },
    ],
    [
      'RSA with SHA-512',
      'sha512',
      crypto.generateKeyPairSync('rsa', { modulusLength: 2048 }),
      { padding: crypto.constants.RSA_PKCS1_PADDING },
    ],
    [
      'RSASSA-PSS',
      'sha256',
      crypto.generateKeyPairSync('rsa', { modulusLength: 2048 }),
      { padding: crypto.constants.RSA_PKCS1_PSS_PADDING, saltLength: crypto.constants.RSA_PSS_SALTLEN_DIGEST },
    ],
    [
      'RSASSA-PSS with the longest salt',
      'sha256',
      crypto.generateKeyPairSync('rsa', { modulusLength: 2048 }),
      { padding: crypto.constants.RSA_PKCS1_PSS_PADDING, saltLength: crypto.constants.RSA_PSS_SALTLEN_MAX_SIGN },
    ],
  ] as const;
  test.each(PAIRS)(
    'verify %s, with keys in each form, and nothing else',
    async (_, digest, { publicKey, privateKey }, options) => {
      const data = Buffer.from('{"id":1}');
      const signature = crypto.sign(digest, data, { key: privateKey, ...options });
      const forms = [
        { key: publicKey.export({ format: 'der', type: 'spki' }), format: 'der', type: 'spki' } as const,
        publicKey.export({ format: 'pem', type: 'spki' }).toString(),
        { key: publicKey.export({ format: 'jwk' }), format: 'jwk' } as const,
      ];
      for (const form of forms) {
        const key = web.createPublicKey(form);
        expect([key.asymmetricKeyType, key.asymmetricKeyDetails]).toEqual([
          publicKey.asymmetricKeyType,
          { ...publicKey.asymmetricKeyDetails },
        ]);
        const given = 'padding' in options ? { key, padding: options.padding } : key;
        const verify = (each: Buffer, body = data): Promise<boolean> => compute(() => web.verify(digest, body, given, each));
        expect(await verify(signature)).toBe(true);
        expect(await verify(signature, Buffer.from('{"id":2}'))).toBe(false);
        for (const at of [0, 1, 3, signature.length - 1]) {
          const changed = Buffer.from(signature);
          changed[at] = (changed[at] as number) ^ 1;
          expect(await verify(changed)).toBe(false);
        }
        expect(await verify(Buffer.concat([signature, Buffer.from([0])]))).toBe(false);
      }
    },
  );

  test.each(['', '30', '3000', '30820100', '302a300506032b656e032100', '3082ffff02'])('reject the key %o', (hex) => {
    expect(() => web.createPublicKey({ key: Buffer.from(hex, 'hex'), format: 'der', type: 'spki' })).toThrow();
  });
});

describe('compute', () => {
  test('keeps the operations of concurrent work apart', async () => {
    const work = (text: string): Promise<unknown> =>
      compute(() => [web.hash('sha256', text), web.hash('sha1', web.hash('sha256', `${text}!`))]);
    const texts = Array.from({ length: 50 }, (_, index) => `text ${index % 7}`);
    const found = await Promise.all(texts.map(work));
    const hash = crypto.hash;
    expect(found).toEqual(texts.map((each) => [hash('sha256', each), hash('sha1', hash('sha256', `${each}!`))]));
  });

  test('joins a body once for all keys and signatures of a request', async () => {
    const body = Buffer.alloc(1_000);
    const joined = new Set<Buffer>();
    const found = await compute(() =>
      ['a', 'b', 'c', 'd', 'e'].map((key) => {
        const bytes = toBytes(['id', body]);
        joined.add(bytes);
        return ['1', '2', '3', '4'].map((signature) => need('verify', [key, bytes, signature], async () => key + signature));
      }),
    );
    expect(found.flat()).toHaveLength(new Set(found.flat()).size);
    expect([...joined]).toEqual([Buffer.concat([Buffer.from('id'), body])]);
    expect(await compute(() => toBytes(['ie', body]).subarray(0, 2).toString())).toBe('ie');
  });

  test('passes on errors of the work and of the platform', async () => {
    await expect(compute(() => Promise.reject(new Error('of the work')))).rejects.toThrow('of the work');
    await expect(compute(() => need('x', [], () => Promise.reject(new Error('of the platform'))))).rejects.toThrow(
      'of the platform',
    );
  });

  test('ends work that always needs more, and rejects operations outside', async () => {
    let at = 0;
    await expect(compute(() => need('x', [String(at++)], async () => 1))).rejects.toThrow('too many operations');
    expect(() => web.hash('sha256', 'x')).toThrow('outside of compute()');
  });
});
