/** The results of `npm run bench -- sizing`, and the rules that derive the memory request and limit from them. */

/** Limits of the container that are measured, in MiB. */
export const LIMITS = [96, 128, 192, 256] as const;
/** The request is rounded up to a multiple of this, in MiB. */
const REQUEST_STEP = 32;
/** A load is served if at least this share of its responses is 2xx. */
const SERVED_SHARE = 0.9999;

/** `usual`: determines the memory request; `normal`: must be served without shedding; `excessive`: may be shed. */
export type LoadKind = 'idle' | 'usual' | 'normal' | 'excessive';

/** One load under one limit. Memory in MiB. */
export interface Measurement {
  readonly limit: number;
  readonly load: string;
  /** Peak resident memory of the process, with the pages of the program. */
  readonly rss: number;
  /** Peak of the memory that was charged to the container, without page cache that can be freed at once. */
  readonly workingSet: number;
  /** Peak of the sockets' buffers in the kernel. */
  readonly sockets: number;
  /** Peak of the heap in use. */
  readonly heap: number;
  readonly perSecond: number;
  /** Responses by status. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Requests without a response. */
  readonly failed: number;
  /** In milliseconds; only for loads that wait for each response. */
  readonly p99?: number;
  /** IDs in memory at the end; only for loads without Redis. */
  readonly ids?: number;
  /** The number of hits by limit (`sidegate_limit_hits_total`). */
  readonly limitHits: Readonly<Record<string, number>>;
  readonly oomKills: number;
}

/** A load, as the page describes it. */
export interface LoadFacts {
  readonly name: string;
  readonly title: string;
  readonly kind: LoadKind;
}

/** A complete run. */
export interface SizingRun {
  readonly date: string;
  readonly machine: string;
  /** Version 1 does not charge the sockets' buffers to the container. */
  readonly cgroups: 'v1' | 'v2';
  readonly loads: readonly LoadFacts[];
  readonly measurements: readonly Measurement[];
}

/** The memory that counts against a limit, in MiB: both peaks, although they can be at different times. */
export function toTotal({ cgroups }: SizingRun, { workingSet, sockets }: Measurement): number {
  return cgroups === 'v1' ? workingSet + sockets : workingSet;
}

/** The shares of all requests with a 2xx and a 503 response; both 0 without requests. */
export function toShares({ statuses, failed }: Measurement): { readonly served: number; readonly shed: number } {
  const count = (isCounted: (status: string) => boolean): number =>
    Object.entries(statuses).reduce((total, [status, each]) => total + (isCounted(status) ? each : 0), 0);
  const all = Math.max(1, count(() => true) + failed);
  return { served: count((status) => status.startsWith('2')) / all, shed: count((status) => status === '503') / all };
}

/**
 * The limit is the smallest measured one for which this holds, and for every larger one: no load gets the gate killed, none takes
 * more than the limit with the sockets' buffers, and each usual and normal one is served. The request is the peak of the usual
 * loads under any limit, rounded up. Both in MiB. Undefined if no limit will do.
 */
export function recommend(run: SizingRun): { readonly request: number; readonly limit: number } | undefined {
  const { loads, measurements } = run;
  const toKind = (name: string): LoadKind | undefined => loads.find((load) => load.name === name)?.kind;
  const isGood = (one: Measurement): boolean => {
    const kind = toKind(one.load);
    const mustServe = kind === 'usual' || kind === 'normal';
    return one.oomKills === 0 && toTotal(run, one) <= one.limit && (!mustServe || toShares(one).served >= SERVED_SHARE);
  };
  const largestBad = Math.max(0, ...measurements.filter((one) => !isGood(one)).map(({ limit }) => limit));
  const limit = LIMITS.find((each) => each > largestBad);
  const usual = measurements.filter((one) => toKind(one.load) === 'usual');
  if (limit === undefined || usual.length === 0) return undefined;
  const peak = Math.max(...usual.map((one) => toTotal(run, one)));
  return { limit, request: Math.ceil(peak / REQUEST_STEP) * REQUEST_STEP };
}
