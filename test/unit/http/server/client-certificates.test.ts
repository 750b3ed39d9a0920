import type { PeerCertificate } from 'node:tls';
import { expect, test } from 'vitest';
import { toCertificateNames } from '../../../../src/http/server/client-certificates.ts';

const toNames = (subjectaltname: string | undefined, subject: object = {}): string[] =>
  toCertificateNames({ subject, subjectaltname } as unknown as PeerCertificate);

test.each([
  ['DNS:a.example', ['DNS:a.example']],
  [
    'DNS:a.example, URI:spiffe://prod/billing, IP Address:127.0.0.1',
    ['DNS:a.example', 'URI:spiffe://prod/billing', 'IP Address:127.0.0.1'],
  ],
  ['email:ops@a.example, DNS:b', ['email:ops@a.example', 'DNS:b']],
  // One name that looks like two: CVE-2021-44532.
  ['DNS:"good.example, DNS:evil.example"', ['DNS:good.example, DNS:evil.example']],
  ['URI:"http://a/\\"quoted\\"", DNS:b', ['URI:http://a/"quoted"', 'DNS:b']],
  ['DNS:"a\\u0000.example"', ['DNS:a\0.example']],
  [undefined, []],
])('reads the alternative names %j', (text, names) => {
  expect(toNames(text)).toEqual(names);
});

test('reads a single common name, and none if there are several', () => {
  expect(toNames(undefined, { CN: 'billing' })).toEqual(['CN:billing']);
  expect(toNames('DNS:a', { CN: ['billing', 'admin'] })).toEqual(['DNS:a']);
});
