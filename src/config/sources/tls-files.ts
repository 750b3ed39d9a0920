/** Reads TLS files: certificates, keys, CAs, revocation lists. */
import type { Clock } from '../../core/clock.ts';
import { Secret } from '../../core/secret.ts';
import { findTlsProblems, type TlsProblem, type TlsSettings } from '../../http/server/tls.ts';
import type { ListenTlsConfig } from '../schema/config.ts';
import { readPem } from './bounded-read.ts';
import type { SourceProblem } from './source-problem.ts';

/** A certificate chain and its key. */
interface PairBytes {
  readonly certFile: string;
  readonly cert: Buffer;
  readonly key: Secret;
}

/** A file that cannot be read. */
interface FileProblem {
  /** Config path, relative to the `tls` section. */
  readonly path: string;
  readonly message: string;
  readonly hint: string;
}

/** The files that could be read, and the problems with the others. */
interface TlsFiles {
  readonly pairs: readonly PairBytes[];
  readonly clientCa: Buffer | undefined;
  readonly clientCrl: Buffer | undefined;
  readonly problems: readonly FileProblem[];
}

/** Reads all files of a `tls` section. */
async function readTlsFiles(config: ListenTlsConfig): Promise<TlsFiles> {
  const problems: FileProblem[] = [];
  const read = async (file: string, path: string): Promise<Buffer | undefined> => {
    const found = await readPem(file);
    if (Buffer.isBuffer(found)) return found;
    problems.push({ path, message: found.problem, hint: found.hint });
    return undefined;
  };
  const pairs: PairBytes[] = [];
  for (const [index, { certFile, keyFile }] of [config, ...config.additionalCertificates].entries()) {
    const at = index === 0 ? '' : `additionalCertificates.${index - 1}.`;
    const cert = await read(certFile, `${at}certFile`);
    const key = await read(keyFile, `${at}keyFile`);
    if (cert !== undefined && key !== undefined) pairs.push({ certFile, cert, key: new Secret(key) });
  }
  const clientCa = config.clientCaFile === undefined ? undefined : await read(config.clientCaFile, 'clientCaFile');
  const clientCrl = config.clientCrlFile === undefined ? undefined : await read(config.clientCrlFile, 'clientCrlFile');
  return { pairs, clientCa, clientCrl, problems };
}

/** The files to watch. */
export function toTlsFiles(config: ListenTlsConfig | undefined): string[] {
  if (config === undefined) return [];
  const pairs = [config, ...config.additionalCertificates].flatMap(({ certFile, keyFile }) => [certFile, keyFile]);
  return [...pairs, config.clientCaFile, config.clientCrlFile].filter((file) => file !== undefined);
}

/** The settings and the problems found; do not use the settings if there is an error. */
export interface TlsRead {
  readonly settings: TlsSettings;
  readonly problems: readonly SourceProblem[];
}

/** Returns undefined if the section is omitted. `section`: its config path. */
export async function readTls(config: ListenTlsConfig | undefined, section: string, clock: Clock): Promise<TlsRead | undefined> {
  if (config === undefined) return undefined;
  const { pairs, clientCa, clientCrl, problems: unreadable } = await readTlsFiles(config);
  const { clientCertificate, minVersion } = config;
  const settings = { pairs, clientCa, clientCrl, clientCertificate, minVersion, http2: config.http2 ?? false };
  const unread = unreadable.map((problem) => ({ severity: 'error' as const, ...problem, path: `${section}.${problem.path}` }));
  // A pair cannot be checked without its files.
  if (unread.length > 0) return { settings, problems: unread };
  const problems = findTlsProblems(settings, clock.now()).map(({ severity, subject, message, hint }) => ({
    severity,
    path: `${section}.${toKey(subject)}`,
    message,
    ...(hint === undefined ? undefined : { hint }),
  }));
  return { settings, problems };
}

function toKey(subject: TlsProblem['subject']): string {
  if (typeof subject === 'string') return subject;
  return subject === 0 ? 'certFile' : `additionalCertificates.${subject - 1}.certFile`;
}
