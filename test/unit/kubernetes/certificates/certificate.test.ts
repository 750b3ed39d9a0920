import { execFileSync } from 'node:child_process';
import { generateKeyPairSync, type KeyObject, type X509Certificate } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect, createServer } from 'node:tls';
import { describe, expect, test } from 'vitest';
import {
  type CertificateValidity,
  integer,
  issueCa,
  issueServer,
  type KeyPair,
  oid,
  time,
} from '../../../../src/kubernetes/certificates/certificate.ts';
import { startServer, useFolder } from '../../../support/fixtures.ts';
import { fc } from '../../../support/property.ts';

const NAMES = ['injector.gate.svc', 'injector.gate.svc.cluster.local'];
const HOUR = 3_600_000;
const now = Date.now();
const folder = useFolder();

const toKeys = (): KeyPair => generateKeyPairSync('ec', { namedCurve: 'P-256' });
const toPem = (key: KeyObject): string => key.export({ type: 'pkcs8', format: 'pem' }) as string;
const toValidity = (from: number, to: number): CertificateValidity => ({ notBefore: from, notAfter: to });
const openssl = (...args: string[]): string => execFileSync('openssl', args, { encoding: 'utf8', stdio: 'pipe' });

function makeAuthority(validity = toValidity(now - HOUR, now + 24 * HOUR)) {
  const keys = toKeys();
  const certificate = issueCa('sidegate injector', keys, validity);
  return { certificate, privateKey: keys.privateKey };
}

function write(name: string, certificate: X509Certificate): string {
  const file = join(folder, name);
  writeFileSync(file, certificate.toString());
  return file;
}

describe('a server certificate', () => {
  const authority = makeAuthority();
  const keys = toKeys();
  const server = issueServer(NAMES, keys.publicKey, toValidity(now - HOUR, now + HOUR), authority);

  test('is accepted by OpenSSL in strict mode, for its names and as a server', () => {
    const files = ['-CAfile', write('ca.pem', authority.certificate), write('server.pem', server)];
    for (const name of NAMES)
      expect(openssl('verify', '-x509_strict', '-purpose', 'sslserver', '-verify_hostname', name, ...files)).toMatch(/: OK$/m);
    expect(() => openssl('verify', '-x509_strict', '-verify_hostname', 'other.gate.svc', ...files)).toThrow(/hostname mismatch/);
    expect(() => openssl('verify', '-x509_strict', '-purpose', 'sslclient', ...files)).toThrow(
      /unsuitable|unsupported certificate purpose/,
    );
  });

  test('is not accepted with another CA of the same kind', () => {
    const other = write('other.pem', makeAuthority().certificate);
    expect(() => openssl('verify', '-x509_strict', '-CAfile', other, write('server.pem', server))).toThrow(
      /unable to get local issuer/,
    );
  });

  test('is accepted if two CAs are trusted, in either order', () => {
    const other = makeAuthority().certificate.toString();
    for (const bundle of [other + authority.certificate, authority.certificate + other]) {
      writeFileSync(join(folder, 'both.pem'), bundle);
      expect(openssl('verify', '-x509_strict', '-CAfile', join(folder, 'both.pem'), write('server.pem', server))).toMatch(
        /: OK$/m,
      );
    }
  });

  test('names its purpose and its issuer in its extensions', () => {
    const text = openssl('x509', '-text', '-noout', '-in', write('server.pem', server));
    expect(text).toMatch(/Version: 3/);
    expect(text).toMatch(/Basic Constraints: critical\s+CA:FALSE/);
    expect(text).toMatch(/Key Usage: critical\s+Digital Signature\n/);
    expect(text).toMatch(/Extended Key Usage:\s+TLS Web Server Authentication\n/);
    expect(text).toContain(NAMES.map((name) => `DNS:${name}`).join(', '));
    const ca = openssl('x509', '-text', '-noout', '-in', write('ca.pem', authority.certificate));
    expect(ca).toMatch(/Basic Constraints: critical\s+CA:TRUE, pathlen:0/);
    expect(ca).toMatch(/Key Usage: critical\s+Certificate Sign, CRL Sign\n/);
    const [, caKeyId] = /Subject Key Identifier:\s+(\S+)/.exec(ca) ?? [];
    const [, issuerKeyId] = /Authority Key Identifier:\s+(\S+)/.exec(text) ?? [];
    expect(issuerKeyId).toBe(caKeyId);
  });

  test('is parsed by Node with the same values', () => {
    expect(server.checkIssued(authority.certificate)).toBe(true);
    expect(server.verify(authority.certificate.publicKey)).toBe(true);
    expect(server.ca).toBe(false);
    expect(authority.certificate.ca).toBe(true);
    expect(server.checkHost('injector.gate.svc')).toBe('injector.gate.svc');
    expect(Date.parse(server.validFrom)).toBe(Math.floor((now - HOUR) / 1000) * 1000);
    expect(server.checkPrivateKey(keys.privateKey)).toBe(true);
  });

  test('never outlives its issuer', () => {
    const late = issueServer(NAMES, keys.publicKey, toValidity(now, now + 1000 * HOUR), authority);
    expect(late.validTo).toBe(authority.certificate.validTo);
  });

  test.each(['TLSv1.2', 'TLSv1.3'] as const)(
    'supports a handshake with %s, only for clients that trust its CA',
    async (version) => {
      const port = await startServer(createServer({ cert: server.toString(), key: toPem(keys.privateKey) }));
      const handshake = (ca: X509Certificate, servername: string): Promise<string> =>
        new Promise((done) => {
          const options = { port, host: '127.0.0.1', servername, ca: ca.toString(), minVersion: version, maxVersion: version };
          const socket = connect(options, () => {
            done(socket.getProtocol() ?? '');
            socket.destroy();
          });
          socket.on('error', (error: NodeJS.ErrnoException) => done(error.code ?? error.message));
        });
      expect(await handshake(authority.certificate, 'injector.gate.svc')).toBe(version);
      expect(await handshake(authority.certificate, 'other.gate.svc')).toBe('ERR_TLS_CERT_ALTNAME_INVALID');
      expect(await handshake(makeAuthority().certificate, 'injector.gate.svc')).toMatch(/UNABLE_TO_/);
    },
  );
});

describe('a CA', () => {
  test('has a unique name', () => {
    expect(makeAuthority().certificate.subject).not.toBe(makeAuthority().certificate.subject);
    expect(makeAuthority().certificate.subject).toMatch(/^CN=sidegate injector [0-9a-f]{8}$/);
  });

  test('may last beyond 2049, when years have four digits', () => {
    const from = Date.UTC(2049, 11, 31, 23, 59, 59);
    const { certificate } = makeAuthority(toValidity(from, from + 1000));
    const text = openssl('asn1parse', '-in', write('late.pem', certificate));
    expect(text).toMatch(/UTCTIME\s+:491231235959Z/);
    expect(text).toMatch(/GENERALIZEDTIME\s+:20500101000000Z/);
    expect(Date.parse(certificate.validTo)).toBe(from + 1000);
  });

  test('has a positive serial number of 16 bytes, a new one each time', () => {
    const serials = Array.from({ length: 50 }, () => makeAuthority().certificate.serialNumber);
    expect(new Set(serials).size).toBe(50);
    for (const serial of serials) expect(serial).toMatch(/^[4-7][0-9A-F]{31}$/);
  });
});

describe('DER', () => {
  test('has numbers in their shortest form, positive', () => {
    const cases = [
      ['', '020100'],
      ['00', '020100'],
      ['0000', '020100'],
      ['7f', '02017f'],
      ['80', '02020080'],
      ['0080', '02020080'],
      ['00007f', '02017f'],
      ['ff01', '020300ff01'],
    ] as const;
    for (const [magnitude, der] of cases) expect(integer(Buffer.from(magnitude, 'hex')).toString('hex')).toBe(der);
  });

  test('has object identifiers as OpenSSL reads them', () => {
    fc.assert(
      fc.property(fc.array(fc.nat({ max: 2 ** 31 - 1 }), { minLength: 1, maxLength: 5 }), (rest) => {
        const dotted = `1.3.${rest.join('.')}`;
        const der = oid(dotted);
        const digits = der.subarray(2);
        let value = 0;
        const read: number[] = [];
        for (const byte of digits) {
          value = value * 128 + (byte & 0x7f);
          if (byte < 0x80) {
            read.push(value);
            value = 0;
          }
        }
        expect(`1.${(read[0] ?? 0) - 40}.${read.slice(1).join('.')}`).toBe(dotted);
      }),
    );
  });

  test('rejects years that a certificate cannot represent', () => {
    expect(() => time(Date.UTC(10_000, 0, 1))).toThrow(/10000-01-01/);
    expect(() => time(Date.UTC(1949, 11, 31))).toThrow(RangeError);
  });

  test('produces certificates that Node can parse, for any names and times', () => {
    const keys = toKeys();
    const label = fc.stringMatching(/^[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?$/);
    fc.assert(
      fc.property(
        fc.array(label, { minLength: 1, maxLength: 20 }),
        fc.integer({ min: -600_000_000, max: 7_000_000_000 }),
        (names, second) => {
          const authority = {
            certificate: issueCa('a', keys, toValidity(second * 1000, (second + 60) * 1000)),
            privateKey: keys.privateKey,
          };
          const server = issueServer(names, keys.publicKey, toValidity(second * 1000, (second + 30) * 1000), authority);
          expect(server.subjectAltName).toBe(names.map((name) => `DNS:${name}`).join(', '));
          expect([Date.parse(server.validFrom), Date.parse(server.validTo)]).toEqual([second * 1000, (second + 30) * 1000]);
          expect(server.verify(keys.publicKey)).toBe(true);
        },
      ),
      { numRuns: 50 },
    );
  });
});
