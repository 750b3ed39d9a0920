/** Reads TLS files: certificates, keys, CAs, revocation lists. */
import type { Clock } from '../../core/clock.ts';
import { type Path, type Problem, under, unwrap } from '../../core/problem.ts';
import { Secret } from '../../core/secret.ts';
import { findTlsProblems, type TlsSettings } from '../../http/server/tls.ts';
import type { ListenTlsConfig } from '../schema/config.ts';
import { readPem } from './bounded-read.ts';

type TlsFiles = Pick<TlsSettings, 'pairs' | 'clientCa' | 'clientCrl'>;

/** Reads all files of a `tls` section that can be read. */
async function readTlsFiles(config: ListenTlsConfig, problems: Problem[]): Promise<TlsFiles> {
  const read = async (file: string | undefined, path: Path): Promise<Buffer | undefined> =>
    file === undefined ? undefined : unwrap(await readPem(file), path, problems);
  const pairs = [];
  for (const [index, { certFile, keyFile }] of [config, ...config.additionalCertificates].entries()) {
    const at = index === 0 ? [] : ['additionalCertificates', index - 1];
    const cert = await read(certFile, [...at, 'certFile']);
    const key = await read(keyFile, [...at, 'keyFile']);
    if (cert !== undefined && key !== undefined) pairs.push({ certFile, cert, key: new Secret(key) });
  }
  const clientCa = await read(config.clientCaFile, ['clientCaFile']);
  return { pairs, clientCa, clientCrl: await read(config.clientCrlFile, ['clientCrlFile']) };
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
  readonly problems: readonly Problem[];
}

/** Returns undefined if the section is omitted. `section`: its config path. */
export async function readTls(config: ListenTlsConfig | undefined, section: Path, clock: Clock): Promise<TlsRead | undefined> {
  if (config === undefined) return undefined;
  const unread: Problem[] = [];
  const files = await readTlsFiles(config, unread);
  const { clientCertificate, minVersion } = config;
  const settings = { ...files, clientCertificate, minVersion, http2: config.http2 ?? false };
  // A pair cannot be checked without its files.
  const problems = unread.length > 0 ? unread : findTlsProblems(settings, clock.now());
  return { settings, problems: under(section, problems) };
}
