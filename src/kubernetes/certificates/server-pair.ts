/** The certificate that the injector serves, with its key, as it lies in a Secret: written by the rotation controller, read by the injector. */
import { createPrivateKey, generateKeyPairSync, X509Certificate } from 'node:crypto';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { Secret } from '../../core/secret.ts';
import { createAuthority, toValidity } from './authority.ts';
import { type Issuer, issueServer } from './certificate.ts';
import type { SecretData } from './cluster-secret.ts';

/** A certificate with its key, PEM. */
export interface ServerPair {
  readonly cert: Buffer;
  readonly key: Secret;
}

/** A pair with what both sides need to know of it. */
export interface IssuedPair {
  readonly pair: ServerPair;
  readonly certificate: X509Certificate;
  /** The CA certificate that signed it. */
  readonly issuer: X509Certificate;
}

/** Names and life of a server's certificate. */
export interface ServerNames {
  readonly service: string;
  readonly namespace: string;
  readonly dnsNames: readonly string[];
  readonly serverLife: Milliseconds;
}

/** The keys of a Secret of type kubernetes.io/tls, so that other tools can read it. */
const KEYS = { certificate: 'tls.crt', key: 'tls.key', issuer: 'ca.crt' } as const;

/** Makes a key and has `issuer` sign a certificate for it. */
export function issuePair(issuer: Issuer, names: ServerNames, now: EpochMilliseconds): IssuedPair {
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const certificate = issueServer(toNames(names), keys.publicKey, toValidity(now, names.serverLife), issuer);
  const key = new Secret(Buffer.from(keys.privateKey.export({ type: 'pkcs8', format: 'pem' })));
  return { certificate, issuer: issuer.certificate, pair: { cert: Buffer.from(certificate.toString()), key } };
}

/** A pair that nobody trusts, to listen with until there is a real one. */
export function createStopgap(now: EpochMilliseconds, life: Milliseconds): ServerPair {
  const names = { service: 'sidegate', namespace: 'none', dnsNames: [], serverLife: life };
  return issuePair(createAuthority(now, life), names, now).pair;
}

/** The API server calls by `<service>.<namespace>.svc`; the others are for people with curl. */
export function toNames({ service, namespace, dnsNames }: Omit<ServerNames, 'serverLife'>): string[] {
  const base = `${service}.${namespace}`;
  return [...new Set([`${base}.svc`, `${base}.svc.cluster.local`, base, service, ...dnsNames])];
}

/** How it is written. */
export function toPairData({ pair, issuer }: IssuedPair): SecretData {
  return {
    [KEYS.certificate]: pair.cert.toString('base64'),
    [KEYS.key]: pair.key.expose().toString('base64'),
    [KEYS.issuer]: Buffer.from(issuer.toString()).toString('base64'),
  };
}

/** How it is read; undefined if the Secret holds no such pair, whole and matching. */
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
