/** Reads the TLS section of a port and reports the problems of its files. */

import type { ListenTlsConfig, SocketListen } from '../../config/schema/config.ts';
import type { SourceProblem } from '../../config/sources/source-problem.ts';
import { readTlsFiles } from '../../config/sources/tls-files.ts';
import type { Clock } from '../../core/clock.ts';
import { findNextUpdate } from '../../users/crl.ts';
import type { ServerMetrics } from './server-metrics.ts';
import { findTlsProblems, TlsContexts, type TlsProblem, type TlsSettings } from './tls.ts';

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

/** Reports when the revocation lists of a port expire: from then on, OpenSSL rejects the clients of that CA. */
export function reportNextUpdate(section: string, { clientCrl }: TlsSettings, metrics: ServerMetrics): void {
  if (clientCrl !== undefined) metrics.crlNextUpdate(section, findNextUpdate(clientCrl));
}

/** The TLS contexts of a port, if it has any; `section`: its config path. */
export function toContexts(section: string, read: TlsRead | undefined, metrics: ServerMetrics): TlsContexts | undefined {
  if (read === undefined) return undefined;
  reportNextUpdate(section, read.settings, metrics);
  return new TlsContexts(read.settings);
}

function toKey(subject: TlsProblem['subject']): string {
  if (typeof subject === 'string') return subject;
  return subject === 0 ? 'certFile' : `additionalCertificates.${subject - 1}.certFile`;
}

/** The value of Strict-Transport-Security (RFC 6797 §6.1); undefined if it is not sent. */
export function toHsts(hsts: SocketListen['hsts']): string | undefined {
  if (hsts === undefined) return undefined;
  const { maxAge, includeSubDomains, preload } = hsts;
  const directives = [`max-age=${Math.floor(maxAge / 1_000)}`];
  if (includeSubDomains) directives.push('includeSubDomains');
  if (preload) directives.push('preload');
  return directives.join('; ');
}
