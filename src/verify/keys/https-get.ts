/** Small public documents over HTTPS: bounded in size and time, only from the requested host, without redirects. */
import type { Milliseconds } from '../../core/clock.ts';

/** A fetched document. */
interface RemoteDocument {
  readonly body: Buffer;
  /** How long caches may keep it (RFC 9111 §5.2.2.1, minus its age); undefined if the server does not specify it. */
  readonly freshFor: Milliseconds | undefined;
}

/** Fetches a document; rejects with RemoteFailure and nothing else. */
export type HttpsGet = (
  url: URL,
  options: {
    readonly maxBytes: number;
    readonly timeout: Milliseconds;
  },
) => Promise<RemoteDocument>;

/** Why the fetch failed. The message contains the host, never the query. */
export class RemoteFailure extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'RemoteFailure';
  }
}

/** Redirects connections to another address, with another CA; for tests. */
export interface ConnectOverride {
  readonly ca: Buffer;
  reach(host: string): { readonly host: string; readonly port: number };
}

const MAX_AGE = /^max-age="?(\d{1,9})"?$/;
const SECONDS = /^\d{1,9}$/;

/** The freshness lifetime from Cache-Control and Age; 0 for a document that must not be cached. */
export function toFreshness(headers: {
  readonly 'cache-control'?: string | undefined;
  readonly age?: string | undefined;
}): Milliseconds | undefined {
  const directives = (headers['cache-control'] ?? '').split(',').map((directive) => directive.trim().toLowerCase());
  if (directives.includes('no-store') || directives.includes('no-cache')) return 0;
  const ages = directives.flatMap((directive) => MAX_AGE.exec(directive)?.[1] ?? []).map(Number);
  if (ages.length === 0) return undefined;
  const age = SECONDS.test(headers.age ?? '') ? Number(headers.age) : 0;
  return Math.max(0, Math.min(...ages) - age) * 1_000;
}
