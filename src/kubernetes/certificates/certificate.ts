/** Issues X.509 v3 certificates (RFC 5280): an authority of our own, and the server certificates that it signs. Pure: keys and times are handed in. */
import { createHash, type KeyObject, randomBytes, sign, X509Certificate } from 'node:crypto';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { bitString, explicit, implicit, integer, octetString, oid, sequence, setOf, time, utf8String, yes } from './der.ts';

/** When a certificate is valid; both ends to the second. */
export interface Validity {
  readonly notBefore: EpochMilliseconds;
  readonly notAfter: EpochMilliseconds;
}

/** A P-256 key pair. */
export interface KeyPair {
  readonly publicKey: KeyObject;
  readonly privateKey: KeyObject;
}

/** Who signs. */
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

/** What a certificate says, in the parts that differ. */
interface Contents {
  readonly issuer: Buffer;
  readonly subject: Buffer;
  readonly validity: Validity;
  readonly publicKey: KeyObject;
  readonly extensions: readonly Buffer[];
}

/** An authority: it vouches for itself, and signs servers only, no further authorities. Its name tells it from others by its key. */
export function issueAuthority(name: string, keys: KeyPair, validity: Validity): X509Certificate {
  const keyId = toKeyId(keys.publicKey);
  // Two that are trusted at once must not share a name, or a verifier may try the wrong key and stop there.
  const subject = toName(`${name} ${keyId.toString('hex', 0, 4)}`);
  const extensions = [
    extension(OID.basicConstraints, true, sequence(yes(), integer(Buffer.from([0])))),
    // keyCertSign and cRLSign (§4.2.1.3).
    extension(OID.keyUsage, true, bitString(Buffer.from([0b0000_0110]), 1)),
    extension(OID.subjectKeyId, false, octetString(keyId)),
  ];
  return seal({ issuer: subject, subject, validity, publicKey: keys.publicKey, extensions }, keys.privateKey);
}

/** A server's certificate for these DNS names. It never outlives its issuer. */
export function issueServer(
  names: readonly string[],
  publicKey: KeyObject,
  validity: Validity,
  { certificate, privateKey }: Issuer,
): X509Certificate {
  const dnsNames = names.map((name) => implicit(DNS_NAME, Buffer.from(name, 'latin1')));
  const issuerKeyId = toKeyId(certificate.publicKey);
  const extensions = [
    extension(OID.basicConstraints, true, sequence()),
    // digitalSignature, which is all that TLS 1.3 and ECDHE ask for.
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

function seal({ issuer, subject, validity, publicKey, extensions }: Contents, by: KeyObject): X509Certificate {
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

/** Byte for byte as the issuer has it, or the chain breaks (§7.1); ours have one common name alone. */
function toSubject({ subject }: X509Certificate): Buffer {
  return toName(subject.replace(/^CN=/, ''));
}

/** Positive, never 0, with more than the 64 random bits that public authorities must have. */
function toSerial(): Buffer {
  const serial = randomBytes(SERIAL_BYTES);
  serial[0] = ((serial[0] ?? 0) & 0x7f) | 0x40;
  return serial;
}

/** RFC 7093 §2 (1): the first 160 bits of the SHA-256 of the key's bits; SHA-1 may be switched off (FIPS). */
function toKeyId(publicKey: KeyObject): Buffer {
  const { x = '', y = '' } = publicKey.export({ format: 'jwk' });
  const point = Buffer.concat([Buffer.from([4]), Buffer.from(x, 'base64url'), Buffer.from(y, 'base64url')]);
  return createHash('sha256').update(point).digest().subarray(0, KEY_ID_BYTES);
}
