/** A captured request, independent of the capture format. */
import type { EpochMilliseconds } from '../../core/clock.ts';

/** One request as sent on the wire, as far as the format contains it. */
export interface Captured {
  readonly method: string;
  /** Scheme and host; undefined if the capture has only the target. */
  readonly origin: string | undefined;
  /** In origin-form. */
  readonly target: string;
  /** Name, value, name, value, …; values are latin1, like header fields. */
  readonly headers: readonly string[];
  /** Empty if the capture has none. */
  readonly body: Buffer;
  /** False if the capture says that the body, or a part of it, is missing. */
  readonly isBodyComplete?: boolean;
  /** When it was sent, if the capture contains the time. */
  readonly at?: EpochMilliseconds;
  /** Possible differences from the original request. */
  readonly notes: readonly string[];
}

/** Reads a file that a curl command line names. */
export type ReadNamedFile = (file: string) => Buffer;

/** Splits an absolute URL, or a target, without changing its bytes. */
export function splitUrl(url: string): { origin: string | undefined; target: string } {
  const [, origin, rest = ''] = /^(https?:\/\/[^/?#]+)([^#]*)/i.exec(url) ?? [];
  if (origin === undefined) return { origin, target: url };
  return { origin, target: rest.startsWith('/') ? rest : `/${rest}` };
}
