/** The injector's CA as stored in a Secret: the certificate that signs now, the next one and the previous one. */
import { createPrivateKey, generateKeyPairSync, X509Certificate } from 'node:crypto';
import { type EpochMilliseconds, type Milliseconds, toInstant } from '../../core/clock.ts';
import { type CertificateValidity, type Issuer, issueCa } from './certificate.ts';
import type { SecretData } from './cluster-objects.ts';

/** All CA certificates that are in use at one time. */
export interface CaSet {
  /** Signs server certificates. */
  readonly current: Issuer;
  /** Already trusted; signs once every API server trusts it. */
  readonly next?: Issuer;
  /** Still trusted, because servers may still use certificates that it signed. */
  readonly previous?: Previous;
}

/** A CA certificate whose key was deleted. */
interface Previous {
  readonly certificate: X509Certificate;
  /** When it stopped signing. */
  readonly since: EpochMilliseconds;
}

/** The Secret contains keys of another program, or data that cannot be parsed. */
interface UnusableSecret {
  readonly problem: string;
}

/** Clocks of nodes differ: a new certificate must be valid on a node whose clock is slow. */
const BACKDATED_MS: Milliseconds = 300_000;
const NAME = 'sidegate injector';
const KEYS = {
  certificate: 'ca.crt',
  key: 'ca.key',
  nextCertificate: 'next.crt',
  nextKey: 'next.key',
  previousCertificate: 'previous.crt',
  previousSince: 'previous.since',
} as const;
const KNOWN: readonly string[] = Object.values(KEYS);

/** Creates a CA that is valid for `life` from now on. */
export function createCa(now: EpochMilliseconds, life: Milliseconds): Issuer {
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { certificate: issueCa(NAME, keys, toValidity(now, life)), privateKey: keys.privateKey };
}

/** Starts before now, by BACKDATED_MS. */
export function toValidity(now: EpochMilliseconds, life: Milliseconds): CertificateValidity {
  return { notBefore: now - BACKDATED_MS, notAfter: now + life };
}

/** When the certificate was issued, to the second. */
export function toIssuedAt({ validFrom }: X509Certificate): EpochMilliseconds {
  return Date.parse(validFrom) + BACKDATED_MS;
}

/** Not so if its end has passed, or if the clock was ahead when it was issued. */
export function isValidAt(certificate: X509Certificate, now: EpochMilliseconds): boolean {
  return Date.parse(certificate.validFrom) <= now && now < toEnd(certificate);
}

/** When the certificate expires. */
export function toEnd({ validTo }: X509Certificate): EpochMilliseconds {
  return Date.parse(validTo);
}

/** All CA certificates to trust; the one that signs is first. */
export function toTrusted({ current, next, previous }: CaSet): X509Certificate[] {
  return [current, next, previous].flatMap((each) => (each === undefined ? [] : [each.certificate]));
}

/** Converts to the data of the Secret. */
export function toSecretData({ current, next, previous }: CaSet): SecretData {
  return {
    [KEYS.certificate]: toBase64(current.certificate.toString()),
    [KEYS.key]: toKeyText(current),
    ...(next === undefined
      ? undefined
      : { [KEYS.nextCertificate]: toBase64(next.certificate.toString()), [KEYS.nextKey]: toKeyText(next) }),
    ...(previous === undefined
      ? undefined
      : {
          [KEYS.previousCertificate]: toBase64(previous.certificate.toString()),
          [KEYS.previousSince]: toBase64(toInstant(previous.since)),
        }),
  };
}

/** Parses the data of the Secret; undefined if it is empty. Messages never contain a private key. */
export function readSecretData(data: SecretData): CaSet | UnusableSecret | undefined {
  const names = Object.keys(data);
  if (names.length === 0) return undefined;
  const foreign = names.filter((name) => !KNOWN.includes(name));
  if (foreign.length > 0)
    return { problem: `it contains ${foreign.join(', ')}, which the injector did not write: use a separate Secret for the CA` };
  const current = readIssuer(data, KEYS.certificate, KEYS.key);
  if ('problem' in current) return current;
  const next = data[KEYS.nextCertificate] === undefined ? undefined : readIssuer(data, KEYS.nextCertificate, KEYS.nextKey);
  const previous = readPrevious(data);
  return {
    current,
    // If the next CA is unusable, the rotation announces a new one. If the previous one is unusable, it is no longer trusted.
    ...(next === undefined || 'problem' in next ? undefined : { next }),
    ...(previous === undefined ? undefined : { previous }),
  };
}

function readIssuer(data: SecretData, certificateName: string, keyName: string): Issuer | UnusableSecret {
  const broken = {
    problem: `its ${certificateName} and ${keyName} are not a CA certificate with its key: delete all its keys, and the rotation controller creates a new CA`,
  };
  try {
    const certificate = new X509Certificate(toText(data[certificateName]));
    const privateKey = createPrivateKey(toText(data[keyName]));
    const isOurs = certificate.subject.startsWith(`CN=${NAME} `) && certificate.ca && certificate.checkPrivateKey(privateKey);
    return isOurs ? { certificate, privateKey } : broken;
  } catch {
    return broken;
  }
}

function readPrevious(data: SecretData): Previous | undefined {
  try {
    const since = Date.parse(toText(data[KEYS.previousSince]));
    return Number.isNaN(since) ? undefined : { certificate: new X509Certificate(toText(data[KEYS.previousCertificate])), since };
  } catch {
    return undefined;
  }
}

function toKeyText({ privateKey }: Issuer): string {
  return toBase64(privateKey.export({ type: 'pkcs8', format: 'pem' }).toString());
}

function toBase64(text: string): string {
  return Buffer.from(text, 'utf8').toString('base64');
}

function toText(base64 = ''): string {
  return Buffer.from(base64, 'base64').toString('utf8');
}
