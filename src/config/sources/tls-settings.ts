/** Reads the TLS section of a port and reports the problems of its files. */

import type { Clock } from '../../core/clock.ts';
import { findTlsProblems, type TlsProblem, type TlsSettings } from '../../http/server/tls.ts';
import type { ListenTlsConfig } from '../schema/config.ts';
import type { SourceProblem } from './source-problem.ts';
import { readTlsFiles } from './tls-files.ts';

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
