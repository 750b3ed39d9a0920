/** TLS on the data port: pairs by name, taken up anew when their files change, and what is wrong with them known before. */
import { X509Certificate } from 'node:crypto';
import { createSecureContext, type SecureContext, type SecureContextOptions, type TlsOptions } from 'node:tls';
import type { EpochMilliseconds } from '../core/clock.ts';
import { toErrorText } from '../core/errors.ts';
import { guardCallback } from '../core/safe-events.ts';
import type { Secret } from '../core/secret.ts';

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
  readonly clientCertificate: 'require' | 'request';
  readonly minVersion: '1.2' | '1.3';
  /** Offers HTTP/2. */
  readonly http2: boolean;
}

/** What is wrong with a pair or the authorities. */
export interface TlsProblem {
  readonly severity: 'error' | 'warning';
  /** Of the pair; -1 for the client authorities. */
  readonly index: number;
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

  /** Throws what OpenSSL says where a pair does not belong together; `findTlsProblems` tells before. */
  constructor(settings: TlsSettings) {
    this.#settings = settings;
    this.#named = toNamed(settings);
  }

  /** New connections get these; those that are open keep theirs. */
  replace(settings: TlsSettings): void {
    this.#named = toNamed(settings);
    this.#settings = settings;
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
  for (const [index, { certFile }] of settings.pairs.entries()) {
    const certificate = readCertificate(settings.pairs[index] as TlsPair);
    if (certificate === undefined) {
      found.push({ severity: 'error', index, message: `${certFile} holds no certificate`, hint: 'a PEM file, our own first' });
      continue;
    }
    const problem = tryContext(settings, index);
    if (problem !== undefined) found.push({ severity: 'error', index, message: `${certFile} and its key: ${problem}` });
    const end = Date.parse(certificate.validTo);
    if (end <= now)
      found.push({ severity: 'warning', index, message: `${certFile} expired on ${certificate.validTo}`, hint: 'renew it' });
    else if (end - now < EXPIRES_SOON_MS)
      found.push({ severity: 'warning', index, message: `${certFile} expires on ${certificate.validTo}`, hint: 'renew it' });
  }
  // A bad file must not mean that any client is let in (as in Caddy, 2026-02).
  if (settings.clientCa !== undefined && !hasCertificate(settings.clientCa))
    found.push({ severity: 'error', index: -1, message: 'the file of client authorities holds no certificate' });
  return found;
}

function toNamed(settings: TlsSettings): Named[] {
  return settings.pairs.map((pair, index) => ({
    certificate: new X509Certificate(pair.cert),
    context: createSecureContext(toContextOptions(settings, index)),
  }));
}

function toContextOptions({ pairs, clientCa, minVersion }: TlsSettings, index: number): SecureContextOptions {
  const { cert, key } = pairs[index] as TlsPair;
  return { cert, key: key.expose(), minVersion: `TLSv${minVersion}`, ...(clientCa === undefined ? undefined : { ca: clientCa }) };
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

function tryContext(settings: TlsSettings, index: number): string | undefined {
  try {
    createSecureContext(toContextOptions(settings, index));
    return undefined;
  } catch (thrown) {
    return toErrorText(thrown);
  }
}
