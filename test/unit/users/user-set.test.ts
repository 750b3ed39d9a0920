/** The lines of htpasswd files that nginx and httpd accept: which are accepted, and what is said of the others (docs/how-to/basic-auth.md). */
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { verifyPassword } from '../../../src/users/password-verify.ts';
import { parseHtpasswd } from '../../../src/users/user-set.ts';

const PASSWORD = 'open sesame';
const SHA = `{SHA}${createHash('sha1').update(PASSWORD).digest('base64')}`;
const salted = (salt: Buffer): string =>
  `{SSHA}${Buffer.concat([createHash('sha1').update(PASSWORD).update(salt).digest(), salt]).toString('base64')}`;
const SSHA = salted(Buffer.from('01020304', 'hex'));
/** By htpasswd. */
const APR1 = '$apr1$xxxxxxxx$dxHfLAsjHkDRmG83UXe8K0';

const read = (text: string, allowPlainText = false) => parseHtpasswd(text, { allowPlainText });

/** The users that can log in with the password. */
function users(text: string, allowPlainText = false): string[] {
  return read(text, allowPlainText)
    .entries.filter(({ hash }) => verifyPassword(hash, Buffer.from(PASSWORD)))
    .map(({ user }) => user);
}

describe('a line is accepted', () => {
  test.each([
    ['with a third field', `ada:${SHA}:a comment`, ['ada']],
    ['with further fields, as in /etc/passwd', `ada:${SHA}:1000:1000:Ada Lovelace:/home/ada:/bin/sh`, ['ada']],
    ['with an empty third field', `ada:${SHA}:`, ['ada']],
    ['with spaces at the end', `ada:${SHA}  \t`, ['ada']],
    ['with spaces before the third field', `ada:${SHA} : x`, ['ada']],
    ['with spaces at the beginning', `  ada:${SHA}`, ['ada']],
    ['after a byte order mark', `\ufeffada:${SHA}`, ['ada']],
    ['with CRLF', `ada:${SHA}\r\nbob:${SHA}\r\n`, ['ada', 'bob']],
    ['without a line end', `ada:${SHA}`, ['ada']],
    ['between comments and blank lines', `# a\n\n  \n\t# b:c\nada:${SHA}\n#bob:${SHA}\n`, ['ada']],
    ['with a user beyond ASCII', `J\u00fcrgen:${SHA}\nJu\u0308rg:${SHA}`, ['J\u00fcrgen', 'J\u00fcrg']],
    ['with {SSHA}', `ada:${SSHA}`, ['ada']],
    ['with {SSHA}, a long salt and a third field', `ada:${salted(Buffer.alloc(32, 7))}:x`, ['ada']],
    ['twice for a user', `ada:${SHA}\nada:${SSHA}`, ['ada', 'ada']],
  ])('%s', (_title, text, expected) => {
    expect(read(text).problems).toEqual([]);
    expect(users(text)).toEqual(expected);
  });

  test.each([
    ['{PLAIN} as in nginx', `ada:{PLAIN}${PASSWORD}`],
    ['plain text as in httpd on Windows', `ada:${PASSWORD}`],
  ])('with %s, if plain text is allowed', (_title, text) => {
    expect(users(text, true)).toEqual(['ada']);
    expect(read(text).problems[0]?.problem).toContain('plain-text passwords are not accepted');
  });

  test('with a colon in a password in plain text', () => {
    const [entry] = read('ada:a:b', true).entries;
    expect(entry && verifyPassword(entry.hash, Buffer.from('a:b'))).toBe(true);
  });

  test('with the hash of htpasswd and a third field, and no other password matches', () => {
    const [entry] = read(`ada:${APR1}:x`).entries;
    expect(entry?.hash).toMatchObject({ algorithm: 'apr1', text: APR1 });
    expect(entry && verifyPassword(entry.hash, Buffer.from('x'))).toBe(false);
    const [other] = read(`ada:${SSHA}`).entries;
    expect(other && verifyPassword(other.hash, Buffer.from('open sesam'))).toBe(false);
  });
});

describe('a line is an error, with its number and a fix', () => {
  test.each([
    ['MD5 crypt', '$1$salt$qJH7.N4xYta3aEG/dfqo/0', /unsupported format: MD5 crypt/],
    ['yescrypt', '$y$j9T$F5Jx5fExrKuPp53xLKQ..1$X3DX6M94c7o.9agCG9G317fhZg9SqC.5i5rd.RhAtQ7', /yescrypt/],
    [
      'bcrypt of crypt_blowfish with a fault',
      '$2x$05$abcdefghijklmnopqrstuuAbCdEfGhIjKlMnOpQrStUvWxYz01234',
      /an old form of bcrypt/,
    ],
    ['MD5 of LDAP', '{MD5}X03MO1qnZdYdgyfeuILPmQ==', /MD5 of LDAP/],
    ['SHA-512 of LDAP', '{SSHA512}abcdef', /SHA-2 of LDAP/],
    ['crypt of LDAP', '{CRYPT}rl0uE51AuW8xk', /crypt of LDAP/],
    ['DES crypt', 'rqXexS6ZhobKA', /DES crypt, or a plain-text password/],
    ['{SSHA} without a salt that is cut off', '{SSHA}abc', /incomplete/],
    ['no hash', '', /the hash is missing/],
    ['a field that is empty', ':x', /the hash is missing/],
  ])('%s', (_title, hash, expected) => {
    const { problems, entries } = read(`# users\nada:${hash}\n`);
    expect(entries).toEqual([]);
    expect(problems).toEqual([
      { line: 2, problem: expect.stringMatching(expected), hint: expect.stringContaining('hash-password') },
    ]);
  });
});
