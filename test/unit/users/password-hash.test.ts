import { execFileSync } from 'node:child_process';
import { argon2Sync } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { Fault } from '../../../src/core/problem.ts';
import { type PasswordHash, parsePasswordHash } from '../../../src/users/password-hash.ts';
import { verifyPassword } from '../../../src/users/password-verify.ts';
import { fc } from '../../support/property.ts';

const PASSWORDS = ['a', 'open sesame', '123£', 'p:q', ' ', 'x'.repeat(71), '🔑'.repeat(9)];
const OPTIONS = { allowPlainText: false };

function parse(text: string, options = OPTIONS): PasswordHash {
  const hash = parsePasswordHash(text, options);
  if ('problem' in hash) throw new Error(`${hash.problem}: ${text}`);
  return hash;
}

function reject(text: string): Fault {
  const hash = parsePasswordHash(text, OPTIONS);
  if (!('problem' in hash)) throw new Error(`taken: ${text}`);
  return hash;
}

/** The hash that Apache's own tool writes. */
const htpasswd = (flags: readonly string[], password: string): string =>
  execFileSync('htpasswd', ['-ni', ...flags, 'u'], { input: password, encoding: 'utf8' })
    .trim()
    .slice(2);
const openssl = (flags: readonly string[], password: string): string =>
  execFileSync('openssl', ['passwd', ...flags, '-stdin'], { input: password, encoding: 'utf8' }).trim();

const WRITERS: readonly (readonly [string, string, (password: string) => string])[] = [
  ['htpasswd -B', 'bcrypt', (password) => htpasswd(['-B', '-C', '5'], password)],
  ['htpasswd -m', 'apr1', (password) => htpasswd(['-m'], password)],
  ['htpasswd -s', 'sha1', (password) => htpasswd(['-s'], password)],
  ['htpasswd -2', 'sha256-crypt', (password) => htpasswd(['-2'], password)],
  ['htpasswd -5 -r 2000', 'sha512-crypt', (password) => htpasswd(['-5', '-r', '2000'], password)],
  ['openssl passwd -apr1', 'apr1', (password) => openssl(['-apr1'], password)],
  ['openssl passwd -5', 'sha256-crypt', (password) => openssl(['-5'], password)],
  ['openssl passwd -6', 'sha512-crypt', (password) => openssl(['-6'], password)],
];

describe.each(WRITERS)('a hash by %s', (_, algorithm, write) => {
  test.each(PASSWORDS)('matches %j and nothing else', (password) => {
    const hash = parse(write(password));
    expect(hash.algorithm).toBe(algorithm);
    expect(verifyPassword(hash, Buffer.from(password))).toBe(true);
    expect(verifyPassword(hash, Buffer.from(`${password}x`))).toBe(false);
    expect(verifyPassword(hash, Buffer.from(password.slice(1)))).toBe(false);
    expect(verifyPassword(hash, Buffer.alloc(0))).toBe(false);
  });
});

const SALT_LETTERS = [...'./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'];
const salts = (maxLength: number): fc.Arbitrary<string> =>
  fc.string({ unit: fc.constantFrom(...SALT_LETTERS), minLength: 1, maxLength });
// crypt(3) has no default below 5000 rounds; fewer must be named.
const rounds = fc.option(fc.integer({ min: 1_000, max: 9_999 })).map((count) => (count === null ? '' : `rounds=${count}$`));
const cryptSalts = fc.tuple(rounds, salts(16)).map((parts) => parts.join(''));
/** The flag of openssl passwd, and the salts that its hash can have. */
const SALTED: readonly (readonly [flag: string, salt: fc.Arbitrary<string>])[] = [
  ['-apr1', salts(8)],
  ['-5', cryptSalts],
  ['-6', cryptSalts],
];
// openssl reads one line, of at most 256 bytes: 64 letters of four bytes.
const passwords = fc.string({ unit: 'binary', minLength: 1, maxLength: 64 }).filter((text) => !/[\0\n\r]/.test(text));

test.each(SALTED)('openssl passwd %s with any salt and rounds matches its password and no other', (flag, salt) => {
  fc.assert(
    fc.property(passwords, salt, passwords, (password, chosen, other) => {
      const hash = parse(openssl([flag, '-salt', chosen], password));
      expect(verifyPassword(hash, Buffer.from(password))).toBe(true);
      expect(verifyPassword(hash, Buffer.from(other))).toBe(other === password);
    }),
    { numRuns: 60 },
  );
});

describe('bcrypt', () => {
  test('is parsed in each of its formats', () => {
    const made = htpasswd(['-B', '-C', '4'], 'open sesame');
    for (const version of ['2a', '2b', '2y']) {
      const hash = parse(made.replace('$2y$', `$${version}$`));
      expect(verifyPassword(hash, Buffer.from('open sesame'))).toBe(true);
    }
    expect(reject(made.replace('$2y$', '$2x$')).problem).toContain('incomplete or has an unsupported format');
  });

  test('does not match a password by its first 72 bytes', () => {
    const hash = parse(htpasswd(['-B', '-C', '4'], 'a'.repeat(72)));
    expect(verifyPassword(hash, Buffer.from('a'.repeat(72)))).toBe(true);
    expect(verifyPassword(hash, Buffer.from(`${'a'.repeat(72)}b`))).toBe(false);
  });

  test('does not stop at NUL', () => {
    const hash = parse(htpasswd(['-B', '-C', '4'], 'a'));
    expect(verifyPassword(hash, Buffer.from('a\0b'))).toBe(false);
  });
});

/** One hash of each format that has a native or an own check, with small costs. */
const COMPLETE: readonly string[] = [
  '$2y$04$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234',
  '$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQxNmJ5dGVzIQ$5KIEFsXVkQ8Pyq6v9bmVmM4wIrYJ1WmpxnYFdpDBYyM',
  `$5$rounds=1000$saltsalt$${'a'.repeat(43)}`,
  `$6$rounds=1000$saltsalt$${'a'.repeat(86)}`,
  `$apr1$saltsalt$${'a'.repeat(22)}`,
  `{SHA}${'a'.repeat(27)}=`,
  `{SSHA}${'a'.repeat(32)}`,
];

test('a hash that is accepted can be checked, also after it was cut off or changed at any place', () => {
  const letters = fc.constantFrom(...'/+.=$09azAZ');
  const change = fc.tuple(fc.nat(99), fc.nat(3), fc.string({ unit: letters, maxLength: 3 }));
  fc.assert(
    fc.property(fc.constantFrom(...COMPLETE), fc.option(change), fc.nat(6), (complete, changed, cut) => {
      const [at, removed, added] = changed ?? [0, 0, ''];
      const text = `${complete.slice(0, at)}${added}${complete.slice(at + removed)}`;
      const hash = parsePasswordHash(text.slice(0, text.length - cut), OPTIONS);
      // Costs that the change made large take seconds.
      if ('problem' in hash || !/ cost 4$| m=64 t=1 p=1$| rounds 1000$|^[a-z0-9]+$/.test(hash.kind)) return;
      expect(typeof verifyPassword(hash, Buffer.from('open sesame'))).toBe('boolean');
    }),
    { numRuns: 2_000 },
  );
});

test('parses argon2id as the reference tools write it', () => {
  const nonce = Buffer.from('somesalt16bytes!');
  const made = argon2Sync('argon2id', {
    message: 'open sesame',
    nonce,
    memory: 1_024,
    passes: 2,
    parallelism: 1,
    tagLength: 32,
  });
  const unpadded = (bytes: Buffer): string => bytes.toString('base64').replaceAll('=', '');
  const hash = parse(`$argon2id$v=19$m=1024,t=2,p=1$${unpadded(nonce)}$${unpadded(made)}`);
  expect(verifyPassword(hash, Buffer.from('open sesame'))).toBe(true);
  expect(verifyPassword(hash, Buffer.from('open sesam'))).toBe(false);
});

describe('a password in plain text', () => {
  test('is rejected by default', () => {
    expect(reject('hunter2')).toEqual({
      problem: 'not a hash; plain-text passwords are not accepted',
      hint: expect.stringContaining('sidegate hash-password') as string,
    });
  });

  test('is accepted if the config allows it, and reported as plain text', () => {
    const hash = parse('hunter2', { allowPlainText: true });
    expect(hash.grade).toBe('broken');
    expect(verifyPassword(hash, Buffer.from('hunter2'))).toBe(true);
    expect(verifyPassword(hash, Buffer.from('hunter'))).toBe(false);
  });

  test('is never a text that looks like a hash', () => {
    expect(parsePasswordHash('$2y$10$tooshort', { allowPlainText: true })).toHaveProperty('problem');
    expect(parsePasswordHash('{SSHA}abc', { allowPlainText: true })).toHaveProperty('problem');
  });

  test.each([
    '{crypt}$6$salt$abc',
    '{ssha}MTIzNDU2Nzg5MDEyMzQ1Njc4OTBzYWx0',
    '{SHA512-CRYPT}$6$salt$abc',
    '{BLF-CRYPT}$2y$10$abc',
    '{PBKDF2-SHA256}10000$a$b',
    '{sha256.hex}abc',
    '{plain}hunter2',
    '$P$BabcdefghijklmnopqrstuvwxyzABCD',
    '_J9..rasmBYk8r9AiWnU',
    'rqXexS6ZhobKA',
    '$1$ab',
    '$2$10$abc',
    '$2y$',
    '$y$j9T$abc',
    '$7$CU..../....abc',
    '$sha1$40000$jtNX3nZ2$hBNaIXkt4wBI2o5rsi8KejSjNqIq',
    '$md5,rounds=904$iPPKEBnEkp3JV8uX$0L6m7rOFTVFn.SGqo2M9W1',
    '$argon2i$v=19$m=8',
    '$argon2id$',
    '$scrypt$ln=16,r=8,p=1$aM15713r3Xsvxbi31lqr1Q$nFNh2CVHVjNldFVKDHDlm4CbdRSCdEBsjjJxD+iCs5E',
    '$pbkdf2-sha256$6400$0ZrzXitFSGltTQnBWOsdeA$Y11AchqV4b0sUisdZd0Xr97KWoymNE0LNNrnEgY4H9M',
    '$H$9aaaaaSXBjgypwqm.JsMssPLiS8YQ00',
    '$S$DKIs1F9Pp.M/DBuRqAcSBGmvGbLFNYBdFoXPJZbAEDDnyVjQ6cOC',
    '$A$005$THISISACOMBINATIONOFINVALIDSALT',
    '$sm3$rounds=5000$salt$W2hwcjLsuzB6yJ1WWRWnhKbVNjnwJnv1uyOEwyMCqn4',
    '$unknown$x$5f4dcc3b5aa765d61d8327deb882cf99',
    'pbkdf2_sha256$260000$salt$hash',
    'pbkdf2_sha1$260000$salt$hash',
    'pbkdf2:sha256:600000$salt$5f4d',
    'pbkdf2$10000$5f4d$5f4d',
    'scrypt:32768:8:1$salt$5f4d',
    'scrypt$16384$salt$8$1$hash',
    'argon2$argon2id$v=19$m=512,t=2,p=2$salt$hash',
    'bcrypt$$2b$12$abc',
    'bcrypt_sha256$$2b$12$abc',
    'unsalted_md5$$5f4d',
    'md5$salt$5f4d',
    'sha1$salt$5f4d',
    'sha256$salt$1$5f4d',
    'crypt$$rqXexS6ZhobKA',
    'blake2b$salt$5f4dcc3b5aa765d61d8327deb882cf99',
    'SCRAM-SHA-256$4096:c2FsdA==$sT0redHaxKey0000000000000000000000000000000=:sErver00',
  ])('is not %s, with a hint for a password that looks so', (text) => {
    const found = parsePasswordHash(text, { allowPlainText: true });
    expect(found).toHaveProperty('hint', expect.stringContaining('write {PLAIN} before it'));
    const plain = parse(`{PLAIN}${text}`, { allowPlainText: true });
    expect(verifyPassword(plain, Buffer.from(text))).toBe(true);
  });
});

test.each([
  'a$b',
  'pa$$word',
  '$',
  '$$',
  '$ecret',
  '$ecret$',
  '$HOME/bin',
  '$correct$horse$battery',
  'US$5$off',
  'sharon$1',
  'sharon$1$2',
  'shadow$x$y',
  'md5$um',
  'sha$1$2',
  'scrypt$1',
  'pbkdf2-is-fun$',
  'pbkdf2',
  'argon2lover$x$y',
  'bcrypt$',
  'cryptic$a$b',
  'my$pass$averylongpassphrasewithoutdigits',
  '{}$x',
  '{a b}$x',
  'a{SHA}$x',
])('%s is a password in plain text, not a hash', (text) => {
  const hash = parse(text, { allowPlainText: true });
  expect([hash.algorithm, verifyPassword(hash, Buffer.from(text))]).toEqual(['plain', true]);
  expect(reject(text).problem).toBe('not a hash; plain-text passwords are not accepted');
});

describe('a hash that would occupy a thread for too long is rejected:', () => {
  test.each([
    ['bcrypt', `$2y$31$${'a'.repeat(53)}`],
    ['argon2id by memory', '$argon2id$v=19$m=4000000,t=2,p=1$c29tZXNhbHQxNmJ5dGVz$c29tZXNhbHQxNmJ5dGVzYWFh'],
    ['argon2id by passes', '$argon2id$v=19$m=1024,t=900,p=1$c29tZXNhbHQxNmJ5dGVz$c29tZXNhbHQxNmJ5dGVzYWFh'],
    ['sha512-crypt', `$6$rounds=999999999$salt$${'a'.repeat(86)}`],
  ])('%s', (_, text) => {
    expect(reject(text).problem).toContain('is not accepted');
  });
});

test.each([
  [`$2y$12$${'a'.repeat(53)}`, 'good', 'bcrypt cost 12'],
  [`$2y$05$${'a'.repeat(53)}`, 'weak', 'bcrypt cost 5'],
  ['$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQxNmJ5dGVz$c29tZXNhbHQxNmJ5dGVzYWFh', 'good', 'argon2id m=65536 t=3 p=4'],
  [`$6$salt$${'a'.repeat(86)}`, 'weak', 'sha512-crypt rounds 5000'],
  [`$5$rounds=60000$salt$${'a'.repeat(43)}`, 'good', 'sha256-crypt rounds 60000'],
  [`$apr1$salt$${'a'.repeat(22)}`, 'broken', 'apr1'],
  [`{SHA}${'a'.repeat(27)}=`, 'broken', 'sha1'],
])('%s is graded %s', (text, grade, kind) => {
  const hash = parse(text);
  expect([hash.grade, hash.kind]).toEqual([grade, kind]);
  expect(hash.advice === undefined).toBe(grade === 'good');
});
