/** A request that was captured, as all formats are read into it. */
import type { EpochMilliseconds } from '../../core/clock.ts';

/** One request, as it went over the wire as far as the format tells. */
export interface Captured {
  readonly method: string;
  /** Scheme and host; undefined where the capture has the target alone. */
  readonly origin: string | undefined;
  /** In origin-form. */
  readonly target: string;
  /** Name, value, name, value, …; values are latin1, as fields are. */
  readonly headers: readonly string[];
  readonly body: Buffer;
  /** When it was made, where the capture says so. */
  readonly at?: EpochMilliseconds;
  /** What the capture may not tell truly. */
  readonly notes: readonly string[];
}

/** What a command line of curl refers to. */
export type ReadNamedFile = (file: string) => Buffer;

/** An absolute URL, or a target, taken apart without a change of its bytes. */
export function splitUrl(url: string): { origin: string | undefined; target: string } {
  const [, origin, rest = ''] = /^(https?:\/\/[^/?#]+)([^#]*)/i.exec(url) ?? [];
  if (origin === undefined) return { origin, target: url };
  return { origin, target: rest.startsWith('/') ? rest : `/${rest}` };
}
