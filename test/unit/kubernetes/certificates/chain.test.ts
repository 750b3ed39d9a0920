import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { findChainProblem, readCertificates } from '../../../../src/kubernetes/certificates/certificate.ts';
import { makeAuthority } from '../../../support/certificates.ts';
import { useFolder } from '../../../support/fixtures.ts';

const folder = useFolder();
const authority = makeAuthority(folder, 'root');
const read = (file: string) => readCertificates(readFileSync(file, 'utf8'));
const [root, other] = [read(authority.ca), read(makeAuthority(folder, 'other').ca)];
const chain = read(authority.issue('server', 'DNS:injector.gate.svc').cert);
const now = Date.now();

test('accepts a server whose CA is trusted', () => {
  expect(findChainProblem(chain, root, 'injector.gate.svc', now)).toBeUndefined();
  expect(findChainProblem(chain, [...other, ...root], 'injector.gate.svc', now)).toBeUndefined();
});

test('accepts a server that is trusted itself', () => {
  expect(findChainProblem(chain, chain, undefined, now)).toBeUndefined();
});

test.each([
  ['no certificate at all', [], root, 'injector.gate.svc', now, /no certificate yet/],
  ['an empty bundle', chain, [], 'injector.gate.svc', now, /is empty/],
  ['a bundle without its CA', chain, other, 'injector.gate.svc', now, /does not contain its CA/],
  ['another name', chain, root, 'injector.other.svc', now, /not for injector\.other\.svc/],
  ['a certificate that has ended', chain, root, 'injector.gate.svc', now + 3 * 86_400_000, /expired on/],
  ['a certificate that has not begun', chain, root, 'injector.gate.svc', now - 86_400_000, /is not valid before/],
] as const)('reports %s', (_, given, trusted, name, at, problem) => {
  expect(findChainProblem(given, trusted, name, at)).toMatch(problem);
});

test('skips text that is not a certificate', () => {
  expect(readCertificates('-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n')).toEqual([]);
  expect(readCertificates('')).toEqual([]);
});
