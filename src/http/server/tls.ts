/** TLS on the data port: certificates by server name and revocation lists, reloaded when their files change, and checked before use. */
import { constants, X509Certificate } from 'node:crypto';
import { createSecureContext, type SecureContext, type SecureContextOptions, type TlsOptions } from 'node:tls';
import { readElement } from '../../core/bytes.ts';
import { type EpochMilliseconds, toInstant } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { error, type Path, type Problem, under, warning } from '../../core/problem.ts';
import { guardCallback } from '../../core/safe-events.ts';
import type { Secret } from '../../core/secret.ts';

/** A certificate chain and its private key, PEM. */
interface TlsPair {
  /** Its settings, in the section. */
  readonly at: Path;
  readonly certFile: string;
  readonly cert: Buffer;
  readonly key: Secret;
}

/** The TLS settings of a port. */
export interface TlsSettings {
  /** The first pair is the default if no server name matches. */
  readonly pairs: readonly TlsPair[];
  readonly clientCa: Buffer | undefined;
  /** Revocation lists of the client CAs, PEM. */
  readonly clientCrl: Buffer | undefined;
  readonly clientCertificate: 'require' | 'request';
  readonly minVersion: '1.2' | '1.3';
  /** Offers HTTP/2. */
  readonly http2: boolean;
}

/** Old clients offer only the second one (curl -0), and would fail in the handshake without it (RFC 7301 §3.2). */
const HTTP_1 = ['http/1.1', 'http/1.0'];
const DAY_MS = 86_400_000;
const EXPIRES_SOON_MS = 14 * DAY_MS;

interface NamedContext {
  readonly certificate: X509Certificate;
  readonly context: SecureContext;
}

/** The current TLS contexts of all pairs. */
export class TlsContexts {
  #contexts: readonly NamedContext[];
  #settings: TlsSettings;
  #trustVersion = 0;

  /** Throws the error of OpenSSL if a certificate and key do not match; check with `findTlsProblems` first. */
  constructor(settings: TlsSettings) {
    this.#settings = settings;
    this.#contexts = buildContexts(settings);
  }

  /** Replaces the settings for new connections. Returns false if no certificate, CA or list changed. */
  replace(settings: TlsSettings): boolean {
    const hasSameTrust = isSameTrust(settings, this.#settings);
    if (hasSameTrust && isSamePairs(settings.pairs, this.#settings.pairs)) return false;
    this.#contexts = buildContexts(settings);
    if (!hasSameTrust) this.#trustVersion++;
    this.#settings = settings;
    return true;
  }

  get settings(): TlsSettings {
    return this.#settings;
  }

  /** How client certificates are requested; undefined if they are not. */
  get clientCertificate(): TlsSettings['clientCertificate'] | undefined {
    return this.#settings.clientCa === undefined ? undefined : this.#settings.clientCertificate;
  }

  /** Changes with each change of the client CAs or their revocation lists. */
  get trustVersion(): number {
    return this.#trustVersion;
  }

  /** The options for https.createServer. */
  toServerOptions(): TlsOptions {
    const { clientCa, clientCertificate } = this.#settings;
    return {
      ...toContextOptions(this.#settings, 0),
      ALPNProtocols: this.#settings.http2 ? ['h2', ...HTTP_1] : HTTP_1,
      requestCert: clientCa !== undefined,
      rejectUnauthorized: clientCa !== undefined && clientCertificate === 'require',
      // Must not throw: an unusual name must not end the process (CVE-2026-21637).
      SNICallback: guardCallback((name, done) => done(null, this.find(name))),
    };
  }

  /** Finds the first pair that is valid for the name, or the first of all. */
  find(name: string): SecureContext {
    const found = this.#contexts.find(({ certificate }) => isFor(certificate, name)) ?? (this.#contexts[0] as NamedContext);
    return found.context;
  }
}

/** Finds problems of the pairs before they are used, and of the client CAs. Paths are relative to the `tls` section. */
export function findTlsProblems(settings: TlsSettings, now: EpochMilliseconds): Problem[] {
  const found: Problem[] = [];
  for (const pair of settings.pairs) {
    const { certFile } = pair;
    const path = [...pair.at, 'certFile'];
    const certificate = readCertificate(pair);
    if (certificate === undefined) {
      found.push(error(path, `${certFile} contains no certificate`, 'use a PEM file with the server certificate first'));
      continue;
    }
    const problem = tryContext({ ...settings, pairs: [pair], clientCa: undefined, clientCrl: undefined });
    if (problem !== undefined) found.push(error(path, `${certFile} and its key: ${problem}`));
    const end = Date.parse(certificate.validTo);
    if (end <= now) found.push(warning(path, `${certFile} expired on ${certificate.validTo}`, 'renew it'));
    else if (end - now < EXPIRES_SOON_MS) found.push(warning(path, `${certFile} expires on ${certificate.validTo}`, 'renew it'));
  }
  const { clientCa, clientCrl } = settings;
  const authorities = clientCa === undefined ? [] : readCertificates(clientCa);
  const ofLists = clientCrl === undefined ? [] : findCrlProblems(clientCrl, authorities, now);
  return [...found, ...under(['clientCrlFile'], ofLists)];
}

function isSameTrust(a: TlsSettings, b: TlsSettings): boolean {
  return isSameFile(a.clientCa, b.clientCa) && isSameFile(a.clientCrl, b.clientCrl);
}

/** Comparing the certificates is enough, because a key belongs to one certificate. */
function isSamePairs(a: readonly TlsPair[], b: readonly TlsPair[]): boolean {
  return a.length === b.length && a.every(({ cert }, index) => b[index]?.cert.equals(cert));
}

function isSameFile(a: Buffer | undefined, b: Buffer | undefined): boolean {
  return a === undefined || b === undefined ? a === b : a.equals(b);
}

function buildContexts(settings: TlsSettings): NamedContext[] {
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
  // TLS 1.2 would accept further handshakes later, whose messages nothing limits.
  const secureOptions = constants.SSL_OP_NO_RENEGOTIATION;
  if (clientCa === undefined) return { secureOptions };
  // A resumed session is not verified again, although a certificate of its chain may have expired or been revoked.
  const verified = { ca: clientCa, secureOptions: secureOptions | constants.SSL_OP_NO_TICKET };
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

/** Says what is wrong with CAs in PEM. OpenSSL ignores a certificate that it cannot read, and all that follow it, without an error. */
export function findBundleProblem(bundle: Buffer | string): string | undefined {
  const text = bundle.toString('latin1');
  const blocks = splitPem(text, 'CERTIFICATE');
  if (blocks.length === 0) return isCertificate(text) ? undefined : 'contains no certificate';
  const broken = blocks.findIndex((pem) => !isCertificate(pem));
  if (broken !== -1) return `has a certificate that cannot be read: number ${broken + 1}`;
  return /-----END CERTIFICATE-----[^\r\n]/.test(text) ? 'lacks a line break after -----END CERTIFICATE-----' : undefined;
}

function isCertificate(pem: string): boolean {
  try {
    return new X509Certificate(pem).raw.length > 0;
  } catch {
    return false;
  }
}

/** Reads the certificates of a bundle that can be parsed. */
function readCertificates(bundle: Buffer): X509Certificate[] {
  const found: X509Certificate[] = [];
  for (const pem of splitPem(bundle.toString('latin1'), 'CERTIFICATE')) {
    try {
      found.push(new X509Certificate(pem));
    } catch {
      // `findBundleProblem` reports it.
    }
  }
  return found;
}

function tryContext(settings: TlsSettings): string | undefined {
  try {
    createSecureContext(toContextOptions(settings, 0));
    return undefined;
  } catch (thrown) {
    return toErrorText(thrown);
  }
}

/** A certificate revocation list (RFC 5280 §5) of a file. */
interface Crl {
  readonly pem: string;
  /** The name of the CA, in DER. */
  readonly issuer: Buffer | undefined;
  readonly thisUpdate: EpochMilliseconds | undefined;
  /** When the list expires. OpenSSL then rejects every certificate of its CA. */
  readonly nextUpdate: EpochMilliseconds | undefined;
}

const LABEL = 'X509 CRL';
const TAG = { integer: 0x02, utcTime: 0x17, generalizedTime: 0x18, sequence: 0x30 };
const RENEW = 'publish a new list of that CA; until then all clients with a certificate of that CA are rejected';
const NOT_PEM = 'the file must be PEM; to convert DER, run openssl crl -inform DER -in list.crl -out list.pem';
const TIME = /^(\d{2}|\d{4})(\d{2})(\d{2})(\d{2})(\d{2})(\d{2})Z$/;
/** RFC 5280 §4.1.2.5.1: two-digit years of UTCTime from 50 on mean 19xx. */
const FIRST_YEAR_OF_1900 = 50;

/** Splits a PEM file into its lists, because OpenSSL reads only the first block of the text that Node passes to it. */
function splitCrls(file: Buffer): string[] {
  return splitPem(file.toString('latin1'), LABEL);
}

/** The blocks of one kind (RFC 7468 §2). */
function splitPem(text: string, label: string): string[] {
  const [begin, close] = [`-----BEGIN ${label}-----`, `-----END ${label}-----`];
  const blocks: string[] = [];
  for (let at = text.indexOf(begin); at !== -1; at = text.indexOf(begin, at + begin.length)) {
    const end = text.indexOf(close, at);
    // A truncated block is kept, so that OpenSSL rejects it: a list must not be ignored silently.
    blocks.push(text.slice(at, end === -1 ? undefined : end + close.length));
    if (end === -1) break;
  }
  return blocks;
}

/** Parses the lists of a file for which `findCrlProblems` reports no error. */
function parseCrls(file: Buffer): Crl[] {
  return splitCrls(file).map((pem) => ({ pem, ...readHead(toDer(pem)) }));
}

/** Reports why the file cannot be used, or which clients it causes to be rejected. */
function findCrlProblems(file: Buffer, authorities: readonly X509Certificate[], now: EpochMilliseconds): Problem[] {
  const found: Problem[] = [];
  const blocks = splitCrls(file);
  if (blocks.length === 0) return [error([], 'the file contains no certificate revocation list', NOT_PEM)];
  for (const [index, pem] of blocks.entries()) {
    const problem = tryCrl(pem);
    if (problem !== undefined) found.push(error([], `list ${index + 1} in the file cannot be parsed (${problem})`, NOT_PEM));
  }
  if (found.length > 0) return found;
  const lists = parseCrls(file);
  for (const [index, { thisUpdate = now, nextUpdate = Number.POSITIVE_INFINITY }] of lists.entries()) {
    if (nextUpdate <= now) found.push(warning([], `list ${index + 1} in the file expired on ${toInstant(nextUpdate)}`, RENEW));
    if (thisUpdate > now)
      found.push(warning([], `list ${index + 1} in the file is not valid before ${toInstant(thisUpdate)}`, RENEW));
  }
  for (const { raw, subject } of authorities)
    if (!lists.some(({ issuer }) => issuer !== undefined && raw.includes(issuer)))
      found.push(warning([], `the file contains no list of the CA "${subject.replaceAll('\n', ', ')}"`, RENEW));
  return found;
}

/** When the first list of a file expires; undefined if none expires. */
export function findNextUpdate(file: Buffer): EpochMilliseconds | undefined {
  const times = parseCrls(file).flatMap(({ nextUpdate }) => (nextUpdate === undefined ? [] : [nextUpdate]));
  return times.length === 0 ? undefined : Math.min(...times);
}

function tryCrl(pem: string): string | undefined {
  try {
    createSecureContext({ crl: pem });
    return undefined;
  } catch (thrown) {
    return toErrorText(thrown);
  }
}

function toDer(pem: string): Buffer {
  return Buffer.from(pem.replaceAll(/-----[A-Z0-9 ]{1,40}-----/g, ''), 'base64');
}

/** Parses the fields before the revoked certificates (RFC 5280 §5.1). Used only for warnings and a metric; OpenSSL decides. */
function readHead(der: Buffer): Omit<Crl, 'pem'> {
  const list = readElement(der, 0, TAG.sequence);
  const signed = list && readElement(der, list.start, TAG.sequence);
  const version = signed && readElement(der, signed.start, TAG.integer);
  const algorithm = signed && readElement(der, version?.end ?? signed.start, TAG.sequence);
  const issuer = algorithm && readElement(der, algorithm.end, TAG.sequence);
  const [thisUpdate, nextUpdate] = issuer === undefined ? [] : readTimes(der, issuer.end);
  return { issuer: issuer && der.subarray(algorithm?.end, issuer.end), thisUpdate, nextUpdate };
}

function readTimes(der: Buffer, at: number): EpochMilliseconds[] {
  const times: EpochMilliseconds[] = [];
  for (let next = at; times.length < 2; ) {
    const element = readElement(der, next, TAG.utcTime) ?? readElement(der, next, TAG.generalizedTime);
    const time = element && toTime(der.toString('latin1', element.start, element.end));
    if (element === undefined || time === undefined) break;
    times.push(time);
    next = element.end;
  }
  return times;
}

function toTime(text: string): EpochMilliseconds | undefined {
  const [year = Number.NaN, month = 0, ...rest] = TIME.exec(text)?.slice(1).map(Number) ?? [];
  if (Number.isNaN(year)) return undefined;
  const century = year >= 100 ? 0 : year >= FIRST_YEAR_OF_1900 ? 1900 : 2000;
  const [day, hour, minute, second] = rest;
  return Date.UTC(century + year, month - 1, day, hour, minute, second);
}
