import { expect, test } from 'vitest';
import { toSecret } from '../../../src/core/secret.ts';

const KEY = 'abcdefghijklmnopqrstuvwxyz012345';

function warn(content: string | Buffer): string[] {
  const read = toSecret(Buffer.from(content as string), 'f');
  return 'problem' in read ? [read.problem] : [...read.warnings];
}

test.each([
  ['two lines', `${KEY}\nb${KEY}\n`],
  ['a zero-width space', `${KEY}\u200b`],
  ['a no-break space', `abc\u00a0${KEY}`],
  ['a NUL', `${KEY}\0`],
  ['a soft hyphen', `abc\u00ad${KEY}`],
  ['a mark in the middle', `abc\ufeff${KEY}`],
])('warns of a secret with %s', (_, content) => {
  expect(warn(content)).toEqual([expect.stringContaining('has a line break or an invisible character in it')]);
});

test.each([
  'undefined',
  'null',
  '$GITHUB_SECRET',
  `\${GITHUB_SECRET}`,
  '{{ .Values.secret }}',
  '<secret>',
  'YOUR_SECRET',
  'ENC[AES256_GCM,data:abc,iv:x,tag:y,type:str]',
  'op://vault/item/field',
  'arn:aws:secretsmanager:us-east-1:1:secret:x',
  '/run/secrets/github',
  `export GH=${KEY}`,
])('warns of a placeholder: %s', (content) => {
  expect(warn(content)).toEqual([expect.stringContaining('looks like a placeholder')]);
});

test.each([
  KEY,
  `${KEY}\r\n`,
  'a secret with blanks and ünïcode',
  '$ecret-0f-a-sender',
  'nullable',
  '-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n',
  Buffer.from([0xff, 0x00, 0x0a, 0x80, 0x41]),
])('has no warning for %o', (content) => {
  expect(warn(content)).toEqual([]);
});
