/** Reads certificate revocation lists (RFC 5280 §5): their issuers and validity periods. */
import type { X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { readElement } from '../../core/bytes.ts';
import { type EpochMilliseconds, toInstant } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { error, type Problem, warning } from '../../core/problem.ts';

/** One list in a file. */
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
export function splitCrls(file: Buffer): string[] {
  return splitPem(file, LABEL);
}

/** The blocks of one kind (RFC 7468 §2). */
export function splitPem(file: Buffer, label: string): string[] {
  const [begin, close] = [`-----BEGIN ${label}-----`, `-----END ${label}-----`];
  const text = file.toString('latin1');
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
export function findCrlProblems(file: Buffer, authorities: readonly X509Certificate[], now: EpochMilliseconds): Problem[] {
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
