/** TLS on the data port: pairs by name, taken up anew when their files change, and what is wrong with them known before. */
import { constants, X509Certificate } from 'node:crypto';
import { createSecureContext, type SecureContext, type SecureContextOptions, type TlsOptions } from 'node:tls';
import { findCrlProblems, splitCrls, splitPem } from '../../auth/client-certificates/crl.ts';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { guardCallback } from '../../core/safe-events.ts';
import type { Secret } from '../../core/secret.ts';

/** A certificate chain and its key, PEM. */
export interface TlsPair {
  readonly certFile: string;
  readonly cert: Buffer;
  readonly key: Secret;
}

/** What the listener is told. */
export interface TlsSettings {
  /** The first is used where no name fits. */
  readonly pairs: readonly TlsPair[];
  readonly clientCa: Buffer | undefined;
  /** Revocation lists of the client CAs, PEM. */
  readonly clientCrl: Buffer | undefined;
  readonly clientCertificate: 'require' | 'request';
  readonly minVersion: '1.2' | '1.3';
  /** Offers HTTP/2. */
  readonly http2: boolean;
}

/** What is wrong with a pair, the client CAs or their revocation lists. */
export interface TlsProblem {
  readonly severity: 'error' | 'warning';
  /** The pair's index, or the setting that names the file. */
  readonly subject: number | 'clientCaFile' | 'clientCrlFile';
  readonly message: string;
  readonly hint?: string;
}

/** Old clients offer the second alone (curl -0), and without it are refused in the handshake (RFC 7301 §3.2). */
const HTTP_1 = ['http/1.1', 'http/1.0'];
const DAY_MS = 86_400_000;
const EXPIRES_SOON_MS = 14 * DAY_MS;

interface Named {
  readonly certificate: X509Certificate;
  readonly context: SecureContext;
}

/** The contexts of all pairs at one moment. */
export class TlsContexts {
  #named: readonly Named[];
  #settings: TlsSettings;
  #trustVersion = 0;

  /** Throws what OpenSSL says where a pair does not belong together; `findTlsProblems` tells before. */
  constructor(settings: TlsSettings) {
    this.#settings = settings;
    this.#named = toNamed(settings);
  }

  /** New connections get these; those that are open keep theirs. False where no certificate, CA or list changed. */
  replace(settings: TlsSettings): boolean {
    const hasSameTrust = isSameTrust(settings, this.#settings);
    if (hasSameTrust && isSamePairs(settings.pairs, this.#settings.pairs)) return false;
    this.#named = toNamed(settings);
    if (!hasSameTrust) this.#trustVersion++;
    this.#settings = settings;
    return true;
  }

  /** How clients are asked for certificates; undefined where they are not. */
  get clientCertificate(): TlsSettings['clientCertificate'] | undefined {
    return this.#settings.clientCa === undefined ? undefined : this.#settings.clientCertificate;
  }

  /** Another one after each change of the client CAs or their revocation lists. */
  get trustVersion(): number {
    return this.#trustVersion;
  }

  /** For https.createServer. */
  toServerOptions(): TlsOptions {
    const { clientCa, clientCertificate } = this.#settings;
    return {
      ...toContextOptions(this.#settings, 0),
      ALPNProtocols: this.#settings.http2 ? ['h2', ...HTTP_1] : HTTP_1,
      requestCert: clientCa !== undefined,
      rejectUnauthorized: clientCa !== undefined && clientCertificate === 'require',
      // Never throws: an odd name must not end the process (CVE-2026-21637).
      SNICallback: guardCallback((name, done) => done(null, this.find(name))),
    };
  }

  /** The first pair that is valid for the name, else the first of all. */
  find(name: string): SecureContext {
    const found = this.#named.find(({ certificate }) => isFor(certificate, name)) ?? (this.#named[0] as Named);
    return found.context;
  }
}

/** What is wrong with the pairs, before they are used. */
export function findTlsProblems(settings: TlsSettings, now: EpochMilliseconds): TlsProblem[] {
  const found: TlsProblem[] = [];
  for (const [subject, { certFile }] of settings.pairs.entries()) {
    const certificate = readCertificate(settings.pairs[subject] as TlsPair);
    if (certificate === undefined) {
      found.push({
        severity: 'error',
        subject,
        message: `${certFile} contains no certificate`,
        hint: 'use a PEM file with the server certificate first',
      });
      continue;
    }
    const problem = tryContext(settings, subject);
    if (problem !== undefined) found.push({ severity: 'error', subject, message: `${certFile} and its key: ${problem}` });
    const end = Date.parse(certificate.validTo);
    if (end <= now)
      found.push({ severity: 'warning', subject, message: `${certFile} expired on ${certificate.validTo}`, hint: 'renew it' });
    else if (end - now < EXPIRES_SOON_MS)
      found.push({ severity: 'warning', subject, message: `${certFile} expires on ${certificate.validTo}`, hint: 'renew it' });
  }
  // A bad file must not mean that any client is let in (as in Caddy, 2026-02).
  if (settings.clientCa !== undefined && !hasCertificate(settings.clientCa))
    found.push({ severity: 'error', subject: 'clientCaFile', message: 'the file of client CAs contains no certificate' });
  return [...found, ...findClientCrlProblems(settings, now)];
}

function findClientCrlProblems({ clientCa, clientCrl }: TlsSettings, now: EpochMilliseconds): TlsProblem[] {
  if (clientCa === undefined || clientCrl === undefined) return [];
  return findCrlProblems(clientCrl, readCertificates(clientCa), now).map((problem) => ({ ...problem, subject: 'clientCrlFile' }));
}

function isSameTrust(a: TlsSettings, b: TlsSettings): boolean {
  return isSameFile(a.clientCa, b.clientCa) && isSameFile(a.clientCrl, b.clientCrl);
}

/** A key belongs to one certificate, so that the certificates tell. */
function isSamePairs(a: readonly TlsPair[], b: readonly TlsPair[]): boolean {
  return a.length === b.length && a.every(({ cert }, index) => b[index]?.cert.equals(cert));
}

function isSameFile(a: Buffer | undefined, b: Buffer | undefined): boolean {
  return a === undefined || b === undefined ? a === b : a.equals(b);
}

function toNamed(settings: TlsSettings): Named[] {
  return settings.pairs.map((pair, index) => ({
    certificate: new X509Certificate(pair.cert),
    context: createSecureContext(toContextOptions(settings, index)),
  }));
}

function toContextOptions(settings: TlsSettings, index: number): SecureContextOptions {
  const { cert, key } = settings.pairs[index] as TlsPair;
  return { cert, key: key.expose(), minVersion: `TLSv${settings.minVersion}`, ...toClientOptions(settings) };
}

function toClientOptions({ clientCa, clientCrl }: TlsSettings): SecureContextOptions {
  if (clientCa === undefined) return {};
  // A resumed session is not verified again: its certificate, or another of its chain, may have expired or been revoked since.
  const verified = { ca: clientCa, secureOptions: constants.SSL_OP_NO_TICKET };
  return clientCrl === undefined ? verified : { ...verified, crl: splitCrls(clientCrl) };
}

function isFor(certificate: X509Certificate, name: string): boolean {
  try {
    return certificate.checkHost(name) !== undefined;
  } catch {
    return false;
  }
}

function readCertificate({ cert }: TlsPair): X509Certificate | undefined {
  try {
    return new X509Certificate(cert);
  } catch {
    return undefined;
  }
}

function hasCertificate(pem: Buffer): boolean {
  try {
    return new X509Certificate(pem).raw.length > 0;
  } catch {
    return false;
  }
}

/** Those of a bundle that can be read. */
function readCertificates(bundle: Buffer): X509Certificate[] {
  const found: X509Certificate[] = [];
  for (const pem of splitPem(bundle, 'CERTIFICATE')) {
    try {
      found.push(new X509Certificate(pem));
    } catch {
      // OpenSSL skips or rejects it when the context is created.
    }
  }
  return found;
}

function tryContext(settings: TlsSettings, index: number): string | undefined {
  try {
    createSecureContext(toContextOptions(settings, index));
    return undefined;
  } catch (thrown) {
    return toErrorText(thrown);
  }
}
