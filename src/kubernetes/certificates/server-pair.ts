/** The injector's server certificate and key as stored in a Secret, which the rotation controller writes and the injector reads. */

import { createPrivateKey, generateKeyPairSync, X509Certificate } from 'node:crypto';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { Secret } from '../../core/secret.ts';
import { createCa, toValidity } from './ca.ts';
import { type Issuer, issueServer } from './certificate.ts';
import type { SecretData } from './cluster-objects.ts';

/** A certificate with its key, PEM. */
export interface ServerPair {
  readonly cert: Buffer;
  readonly key: Secret;
}

/** A pair with its parsed certificates. */
export interface IssuedPair {
  readonly pair: ServerPair;
  readonly certificate: X509Certificate;
  /** The CA certificate that signed it. */
  readonly issuer: X509Certificate;
}

/** The names and lifetime of a server certificate. */
interface ServerNames {
  readonly service: string;
  readonly namespace: string;
  readonly dnsNames: readonly string[];
  readonly serverLifetime: Milliseconds;
}

/** The keys of a Secret of type kubernetes.io/tls, so that other tools can read it. */
const KEYS = { certificate: 'tls.crt', key: 'tls.key', issuer: 'ca.crt' } as const;

/** Creates a key and issues a certificate for it. */
export function issuePair(issuer: Issuer, names: ServerNames, now: EpochMilliseconds): IssuedPair {
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const certificate = issueServer(toNames(names), keys.publicKey, toValidity(now, names.serverLifetime), issuer);
  const key = new Secret(Buffer.from(keys.privateKey.export({ type: 'pkcs8', format: 'pem' })));
  return { certificate, issuer: issuer.certificate, pair: { cert: Buffer.from(certificate.toString()), key } };
}

/** Creates a temporary certificate that no client trusts, to listen with until the first one is loaded. */
export function createTemporaryPair(now: EpochMilliseconds, life: Milliseconds): ServerPair {
  const names = { service: 'sidegate', namespace: 'none', dnsNames: [], serverLifetime: life };
  return issuePair(createCa(now, life), names, now).pair;
}

/** The API server uses `<service>.<namespace>.svc`; the other names are for manual requests, for example with curl. */
export function toNames({ service, namespace, dnsNames }: Omit<ServerNames, 'serverLifetime'>): string[] {
  const base = `${service}.${namespace}`;
  return [...new Set([`${base}.svc`, `${base}.svc.cluster.local`, base, service, ...dnsNames])];
}

/** Converts to the data of the Secret. */
export function toPairData({ pair, issuer }: IssuedPair): SecretData {
  return {
    [KEYS.certificate]: pair.cert.toString('base64'),
    [KEYS.key]: pair.key.expose().toString('base64'),
    [KEYS.issuer]: Buffer.from(issuer.toString()).toString('base64'),
  };
}

/** Parses the data of the Secret; undefined unless it contains a complete pair whose certificate, key and issuer match. */
export function readPairData(data: SecretData): IssuedPair | undefined {
  const read = (key: string): Buffer => Buffer.from(data[key] ?? '', 'base64');
  try {
    const [cert, key] = [read(KEYS.certificate), read(KEYS.key)];
    const certificate = new X509Certificate(cert);
    const issuer = new X509Certificate(read(KEYS.issuer));
    const isWhole = certificate.checkPrivateKey(createPrivateKey(key)) && certificate.verify(issuer.publicKey);
    return isWhole ? { certificate, issuer, pair: { cert, key: new Secret(key) } } : undefined;
  } catch {
    return undefined;
  }
}
