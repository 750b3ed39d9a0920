/** X.509 v3 certificates (RFC 5280): issues a CA certificate and the server certificates that it signs, and verifies chains. Pure: keys and times are parameters. */

import { createHash, type KeyObject, randomBytes, sign, X509Certificate } from 'node:crypto';
import { type EpochMilliseconds, toInstant } from '../../core/clock.ts';

/** When a certificate is valid; both ends to the second. */
export interface CertificateValidity {
  readonly notBefore: EpochMilliseconds;
  readonly notAfter: EpochMilliseconds;
}

/** A P-256 key pair. */
export interface KeyPair {
  readonly publicKey: KeyObject;
  readonly privateKey: KeyObject;
}

/** A CA certificate with its key. */
export interface Issuer {
  readonly certificate: X509Certificate;
  readonly privateKey: KeyObject;
}

const OID = {
  ecdsaWithSha256: '1.2.840.10045.4.3.2',
  commonName: '2.5.4.3',
  subjectKeyId: '2.5.29.14',
  keyUsage: '2.5.29.15',
  subjectAltName: '2.5.29.17',
  basicConstraints: '2.5.29.19',
  authorityKeyId: '2.5.29.35',
  extendedKeyUsage: '2.5.29.37',
  serverAuth: '1.3.6.1.5.5.7.3.1',
} as const;
const VERSION_3 = Buffer.from([2]);
/** RFC 5280 §4.1.2.2: at most 20 bytes, and the highest bit is the sign. */
const SERIAL_BYTES = 16;
const KEY_ID_BYTES = 20;
const DNS_NAME = 2;

/** The fields in which certificates differ. */
interface CertificateContents {
  readonly issuer: Buffer;
  readonly subject: Buffer;
  readonly validity: CertificateValidity;
  readonly publicKey: KeyObject;
  readonly extensions: readonly Buffer[];
}

/** Issues a self-signed CA certificate that can sign server certificates, but no further CAs. Its name contains a part of its key's ID. */
export function issueCa(name: string, keys: KeyPair, validity: CertificateValidity): X509Certificate {
  const keyId = toKeyId(keys.publicKey);
  // Two CAs that are trusted at the same time must have different names: otherwise a verifier may try only the wrong key.
  const subject = toName(`${name} ${keyId.toString('hex', 0, 4)}`);
  const extensions = [
    extension(OID.basicConstraints, true, sequence(yes(), integer(Buffer.from([0])))),
    // keyCertSign and cRLSign (§4.2.1.3).
    extension(OID.keyUsage, true, bitString(Buffer.from([0b0000_0110]), 1)),
    extension(OID.subjectKeyId, false, octetString(keyId)),
  ];
  return seal({ issuer: subject, subject, validity, publicKey: keys.publicKey, extensions }, keys.privateKey);
}

/** Issues a server certificate for these DNS names. It expires no later than its issuer. */
export function issueServer(
  names: readonly string[],
  publicKey: KeyObject,
  validity: CertificateValidity,
  { certificate, privateKey }: Issuer,
): X509Certificate {
  const dnsNames = names.map((name) => implicit(DNS_NAME, Buffer.from(name, 'latin1')));
  const issuerKeyId = toKeyId(certificate.publicKey);
  const extensions = [
    extension(OID.basicConstraints, true, sequence()),
    // digitalSignature: TLS 1.3 and ECDHE need no other usage.
    extension(OID.keyUsage, true, bitString(Buffer.from([0b1000_0000]), 7)),
    extension(OID.extendedKeyUsage, false, sequence(oid(OID.serverAuth))),
    extension(OID.subjectKeyId, false, octetString(toKeyId(publicKey))),
    extension(OID.authorityKeyId, false, sequence(implicit(0, issuerKeyId))),
    extension(OID.subjectAltName, false, sequence(...dnsNames)),
  ];
  const notAfter = Math.min(validity.notAfter, Date.parse(certificate.validTo));
  const subject = toName('sidegate server');
  return seal(
    { issuer: toSubject(certificate), subject, validity: { ...validity, notAfter }, publicKey, extensions },
    privateKey,
  );
}

function seal({ issuer, subject, validity, publicKey, extensions }: CertificateContents, by: KeyObject): X509Certificate {
  const algorithm = sequence(oid(OID.ecdsaWithSha256));
  const content = sequence(
    explicit(0, integer(VERSION_3)),
    integer(toSerial()),
    algorithm,
    issuer,
    sequence(time(validity.notBefore), time(validity.notAfter)),
    subject,
    publicKey.export({ type: 'spki', format: 'der' }),
    explicit(3, sequence(...extensions)),
  );
  return new X509Certificate(sequence(content, algorithm, bitString(sign('sha256', content, by))));
}

function extension(id: string, isCritical: boolean, value: Buffer): Buffer {
  return isCritical ? sequence(oid(id), yes(), octetString(value)) : sequence(oid(id), octetString(value));
}

function toName(commonName: string): Buffer {
  return sequence(setOf(sequence(oid(OID.commonName), utf8String(commonName))));
}

/** Must equal the issuer's subject byte for byte (§7.1). The CAs issued here have a common name only. */
function toSubject({ subject }: X509Certificate): Buffer {
  return toName(subject.replace(/^CN=/, ''));
}

/** Positive, never 0, with more than the 64 random bits that public CAs must use. */
function toSerial(): Buffer {
  const serial = randomBytes(SERIAL_BYTES);
  serial[0] = ((serial[0] ?? 0) & 0x7f) | 0x40;
  return serial;
}

/** RFC 7093 §2 (1): the first 160 bits of the SHA-256 of the key's bits; SHA-1 may be disabled (FIPS). */
function toKeyId(publicKey: KeyObject): Buffer {
  const { x = '', y = '' } = publicKey.export({ format: 'jwk' });
  const point = Buffer.concat([Buffer.from([4]), Buffer.from(x, 'base64url'), Buffer.from(y, 'base64url')]);
  return createHash('sha256').update(point).digest().subarray(0, KEY_ID_BYTES);
}

// Verifies a server's certificate chain against trusted CAs, as the API server will do later.

const PEM = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;
/** Maximum number of intermediates between a server's certificate and its CA. */
const MAX_CHAIN_LENGTH = 10;

/** The certificates in PEM text, in order; blocks that cannot be parsed are skipped. */
export function readCertificates(pem: string): X509Certificate[] {
  return (pem.match(PEM) ?? []).flatMap((block) => {
    try {
      return [new X509Certificate(block)];
    } catch {
      return [];
    }
  });
}

/** Undefined if the chain is valid; otherwise the reason. `chain`: the server's certificate first. */
export function findChainProblem(
  chain: readonly X509Certificate[],
  trusted: readonly X509Certificate[],
  name: string | undefined,
  now: EpochMilliseconds,
): string | undefined {
  const [server, ...intermediates] = chain;
  if (server === undefined) return 'there is no certificate yet';
  if (Date.parse(server.validTo) <= now) return `the certificate expired on ${server.validTo}`;
  if (Date.parse(server.validFrom) > now) return `the certificate is not valid before ${server.validFrom}`;
  if (name !== undefined && server.checkHost(name) === undefined) return `the certificate is not for ${name}`;
  if (trusted.length === 0) return 'the caBundle of the webhook configuration is empty';
  return leadsTo(server, intermediates, trusted, now)
    ? undefined
    : 'the caBundle of the webhook configuration does not contain its CA';
}

function leadsTo(
  server: X509Certificate,
  intermediates: readonly X509Certificate[],
  trusted: readonly X509Certificate[],
  now: EpochMilliseconds,
): boolean {
  let end = server;
  for (let length = 0; length < MAX_CHAIN_LENGTH; length++) {
    const last = end;
    if (trusted.some((root) => root.raw.equals(last.raw) || (isValid(root, now) && isIssuedBy(last, root)))) return true;
    const issuer = intermediates.find((each) => !each.raw.equals(last.raw) && isValid(each, now) && isIssuedBy(last, each));
    if (issuer === undefined) return false;
    end = issuer;
  }
  return false;
}

function isIssuedBy(certificate: X509Certificate, issuer: X509Certificate): boolean {
  return certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);
}

function isValid({ validFrom, validTo }: X509Certificate, now: EpochMilliseconds): boolean {
  return Date.parse(validFrom) <= now && now < Date.parse(validTo);
}

// Encodes values by the distinguished encoding rules (DER, ITU-T X.690).

const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  oid: 0x06,
  utf8String: 0x0c,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const;
const CONTEXT = 0x80;
const CONSTRUCTED = 0x20;
/** Years from 2050 on need four digits (RFC 5280 §4.1.2.5). */
const FIRST_GENERALIZED_YEAR = 2050;
const LAST_YEAR = 9999;

/** Encodes a tag, a length and a value. */
function encode(tag: number, content: Buffer): Buffer {
  return Buffer.concat([Buffer.from([tag]), encodeLength(content.length), content]);
}

function encodeLength(length: number): Buffer {
  if (length < 0x80) return Buffer.from([length]);
  const digits = toBigEndian(length);
  return Buffer.from([0x80 | digits.length, ...digits]);
}

function toBigEndian(value: number): number[] {
  const bytes: number[] = [];
  for (let left = value; left > 0; left = Math.floor(left / 256)) bytes.unshift(left % 256);
  return bytes;
}

/** Encodes values in this order. */
function sequence(...parts: readonly Buffer[]): Buffer {
  return encode(TAG.sequence, Buffer.concat(parts));
}

/** Encodes a set of one value. Certificates need no larger sets, which would have to be sorted (X.690 §10.3). */
function setOf(part: Buffer): Buffer {
  return encode(TAG.set, part);
}

/** Encodes true. All booleans of a certificate default to false, and DER omits defaults (X.690 §11.5). */
function yes(): Buffer {
  return encode(TAG.boolean, Buffer.from([0xff]));
}

/** Encodes a non-negative integer, given in big-endian order. */
export function integer(magnitude: Buffer): Buffer {
  let start = 0;
  while (start < magnitude.length - 1 && magnitude[start] === 0) start++;
  const shortest = magnitude.length === 0 ? Buffer.from([0]) : magnitude.subarray(start);
  // The highest bit is the sign.
  return encode(TAG.integer, (shortest[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.from([0]), shortest]) : shortest);
}

/** Encodes bits; the last `unused` bits of the last byte are ignored. */
function bitString(bits: Buffer, unused = 0): Buffer {
  return encode(TAG.bitString, Buffer.concat([Buffer.from([unused]), bits]));
}

/** Encodes bytes. */
function octetString(bytes: Buffer): Buffer {
  return encode(TAG.octetString, bytes);
}

/** Encodes text. */
function utf8String(text: string): Buffer {
  return encode(TAG.utf8String, Buffer.from(text, 'utf8'));
}

/** Encodes an object identifier such as `2.5.29.14`. */
export function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number);
  return encode(TAG.oid, Buffer.from([first * 40 + second, ...rest].flatMap(toBase128)));
}

function toBase128(value: number): number[] {
  const digits = [value % 128];
  for (let left = Math.floor(value / 128); left > 0; left = Math.floor(left / 128)) digits.unshift(0x80 | (left % 128));
  return digits;
}

/** Encodes a value with a context-specific tag, which contains the value's own tag (explicit tagging). */
function explicit(number: number, value: Buffer): Buffer {
  return encode(CONTEXT | CONSTRUCTED | number, value);
}

/** Encodes a value with a context-specific tag, which replaces its own tag (implicit tagging). */
function implicit(number: number, content: Buffer): Buffer {
  return encode(CONTEXT | number, content);
}

/** A point in time, to the second and in UTC: two digits of the year up to 2049, four from 2050 (RFC 5280 §4.1.2.5). Throws beyond the year 9999. */
export function time(at: EpochMilliseconds): Buffer {
  const digits = `${toInstant(at).slice(0, 19).replace(/[-:T]/g, '')}Z`;
  const year = Number(/^\d{4}/.exec(digits)?.[0]);
  if (!(year >= 1950 && year <= LAST_YEAR))
    throw new RangeError(`the year of ${toInstant(at)} is outside the range of a certificate (1950 to ${LAST_YEAR})`);
  return year < FIRST_GENERALIZED_YEAR
    ? encode(TAG.utcTime, Buffer.from(digits.slice(2), 'latin1'))
    : encode(TAG.generalizedTime, Buffer.from(digits, 'latin1'));
}
