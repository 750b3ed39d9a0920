/** Reads TLS files: certificates, keys, CAs, revocation lists. */
import { readFile } from 'node:fs/promises';
import { Secret } from '../../core/secret.ts';
import type { ListenTlsConfig } from '../schema/config.ts';
import { toReadProblem, UNREAD_HINT } from './read-problem.ts';

/** A certificate chain and its key. */
export interface PairBytes {
  readonly certFile: string;
  readonly cert: Buffer;
  readonly key: Secret;
}

/** A file that cannot be read. */
export interface FileProblem {
  /** Config path, relative to the `tls` section. */
  readonly path: string;
  readonly message: string;
  readonly hint: string;
}

/** The files that could be read, and the problems with the others. */
export interface TlsFiles {
  readonly pairs: readonly PairBytes[];
  readonly clientCa: Buffer | undefined;
  readonly clientCrl: Buffer | undefined;
  readonly problems: readonly FileProblem[];
}

/** Reads all files of a `tls` section. */
export async function readTlsFiles(config: ListenTlsConfig): Promise<TlsFiles> {
  const problems: FileProblem[] = [];
  const read = async (file: string, path: string): Promise<Buffer | undefined> => {
    try {
      return await readFile(file);
    } catch (thrown) {
      problems.push({ path, message: `${file} ${toReadProblem(thrown)}`, hint: UNREAD_HINT });
      return undefined;
    }
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
