/** The injector's own authority as it lies in a Secret: who signs now, who will, who did. */
import { createPrivateKey, generateKeyPairSync, X509Certificate } from 'node:crypto';
import { type EpochMilliseconds, type Milliseconds, toInstant } from '../../core/clock.ts';
import { type Issuer, issueAuthority, type Validity } from './certificate.ts';
import type { SecretData } from './cluster-secret.ts';

/** All authorities of one moment. */
export interface Authorities {
  /** Signs servers. */
  readonly current: Issuer;
  /** Is trusted already, and will sign once everybody trusts it. */
  readonly next?: Issuer;
  /** Is still trusted, as servers that it signed may be running. */
  readonly previous?: Previous;
}

/** One whose key is gone. */
export interface Previous {
  readonly certificate: X509Certificate;
  /** When it stopped to sign. */
  readonly since: EpochMilliseconds;
}

/** The Secret holds something that is not ours, or broken. */
export interface UnusableSecret {
  readonly problem: string;
}

/** Clocks of nodes differ: what is valid from now on must be so for one that is slow. */
export const BACKDATED_MS: Milliseconds = 300_000;
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

/** A new authority that lasts for `life` from now on. */
export function createAuthority(now: EpochMilliseconds, life: Milliseconds): Issuer {
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { certificate: issueAuthority(NAME, keys, toValidity(now, life)), privateKey: keys.privateKey };
}

/** From a little before now. */
export function toValidity(now: EpochMilliseconds, life: Milliseconds): Validity {
  return { notBefore: now - BACKDATED_MS, notAfter: now + life };
}

/** When it was made, to the second. */
export function toMadeAt({ validFrom }: X509Certificate): EpochMilliseconds {
  return Date.parse(validFrom) + BACKDATED_MS;
}

/** When it ends. */
export function toEnd({ validTo }: X509Certificate): EpochMilliseconds {
  return Date.parse(validTo);
}

/** Everything that is to be trusted, the one that signs first. */
export function toTrusted({ current, next, previous }: Authorities): X509Certificate[] {
  return [current, next, previous].flatMap((each) => (each === undefined ? [] : [each.certificate]));
}

/** How it is written. */
export function toSecretData({ current, next, previous }: Authorities): SecretData {
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

/** How it is read; undefined where nothing was written yet. No text of a problem holds what a key holds. */
export function readSecretData(data: SecretData): Authorities | UnusableSecret | undefined {
  const names = Object.keys(data);
  if (names.length === 0) return undefined;
  const foreign = names.filter((name) => !KNOWN.includes(name));
  if (foreign.length > 0)
    return { problem: `it holds ${foreign.join(', ')}, which are not the injector's: give it a Secret of its own` };
  const current = readIssuer(data, KEYS.certificate, KEYS.key);
  if ('problem' in current) return current;
  const next = data[KEYS.nextCertificate] === undefined ? undefined : readIssuer(data, KEYS.nextCertificate, KEYS.nextKey);
  const previous = readPrevious(data);
  return {
    current,
    // Without a whole successor another is announced; without a whole predecessor nothing is left to trust.
    ...(next === undefined || 'problem' in next ? undefined : { next }),
    ...(previous === undefined ? undefined : { previous }),
  };
}

function readIssuer(data: SecretData, certificateName: string, keyName: string): Issuer | UnusableSecret {
  const broken = {
    problem: `its ${certificateName} and ${keyName} are no authority with its key: empty it, and another is made`,
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
