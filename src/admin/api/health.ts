/** The endpoints for machines: metrics, liveness, readiness, and the public keys of Sidegate-Identity. */

import { type Clock, type Milliseconds, pause } from '../../core/clock.ts';
import type { Exposition, ExpositionFormat } from '../../telemetry/metrics/openmetrics.ts';
import { type AdminEndpoint, type AdminResponse, toJson, toPlain } from '../router.ts';

/** The endpoints' dependencies. */
export interface HealthParts {
  readonly clock: Clock;
  readonly metrics: Exposition;
  /** The public keys that verify Sidegate-Identity, as a JWK Set. */
  readonly toKeySet: () => object;
  /** Why the gate should get no traffic now, or undefined when it is ready. */
  readonly notReadyBecause: () => string | undefined;
  /** The problem of a gate that is ready: if readiness depended on the store, one outage would take all replicas out of service. */
  readonly degradedBecause?: () => string | undefined;
  /** How long the event loop has been too slow to serve; undefined unless only a restart helps. */
  readonly stuckFor: () => Milliseconds | undefined;
}

const open = { method: 'GET', isOpen: true } as const;

/** All are public: probes and scrapers have no token, and nothing in the responses is secret. */
export function createHealthEndpoints(parts: HealthParts): AdminEndpoint[] {
  const keySet = { ...open, path: '/identity/jwks.json', respond: () => toJson(parts.toKeySet(), 'application/jwk-set+json') };
  return [...createProbedEndpoints(parts), keySet];
}

/** Metrics, liveness and readiness. */
export function createProbedEndpoints({
  metrics,
  clock,
  notReadyBecause,
  degradedBecause,
  stuckFor,
}: Pick<HealthParts, 'clock' | 'notReadyBecause' | 'degradedBecause' | 'stuckFor'> & {
  readonly metrics: Exposition;
}): AdminEndpoint[] {
  const budgeted = new BudgetedExposition(metrics, clock);
  return [
    { ...open, path: '/metrics', respond: ({ request }) => toExposition(budgeted, toFormat(request.headers.accept)) },
    { ...open, path: '/healthz', respond: () => toLiveness(stuckFor()) },
    {
      ...open,
      path: '/readyz',
      respond() {
        const reason = notReadyBecause();
        if (reason !== undefined) return toPlain(503, `not ready: ${reason}`);
        const degraded = degradedBecause?.();
        return toPlain(200, degraded === undefined ? 'ready' : `ready, but ${degraded}`);
      },
    },
  ];
}

/** A process that responds is alive, unless each turn of its event loop takes seconds. */
function toLiveness(stuckFor: Milliseconds | undefined): AdminResponse {
  if (stuckFor === undefined) return toPlain(200, 'ok');
  return toPlain(503, `not alive: the event loop has been blocked for ${Math.round(stuckFor / 1_000)} s`);
}

async function toExposition(metrics: Exposition, format: ExpositionFormat): Promise<AdminResponse> {
  try {
    return { status: 200, ...(await metrics.exposition(format)), headers: { Vary: 'Accept' } };
  } catch {
    return toPlain(500, 'internal error: the metrics cannot be rendered');
  }
}

// Renders metrics for scrapers within a budget, in the format that their Accept header asks for (RFC 9110 §12.5.1).

/** The share of the time that may be spent on rendering, once the burst is used up. */
const MAX_SHARE = 0.1;
/** Also limits how long a scrape waits: a second. */
const BURST_MS: Milliseconds = 100;
/** Further scrapes get the last rendering: a connection whose request waits is not replaced, and probes need connections. */
const MAX_WAITING = 8;
/** Older renderings are not served again. Both formats together are rendered within that time. */
const MAX_AGE_MS: Milliseconds = 2_000;

type Rendered = Awaited<ReturnType<Exposition['exposition']>>;

interface MediaRange {
  readonly type: string;
  readonly version: string | undefined;
  readonly quality: number;
}

/** OpenMetrics if the scraper accepts it and does not prefer the text format; otherwise the text format, which every scraper reads. */
export function toFormat(accept: string | undefined): ExpositionFormat {
  const ranges = (accept ?? '').split(',').map(toRange);
  const best = (matches: (range: MediaRange) => boolean): number =>
    Math.max(0, ...ranges.filter(matches).map(({ quality }) => quality));
  const openMetrics = best(({ type, version }) => type === 'application/openmetrics-text' && (version ?? '1.0.0') === '1.0.0');
  const text = best(({ type, version }) => type === 'text/plain' && (version ?? '0.0.4') === '0.0.4');
  return openMetrics > 0 && openMetrics >= text ? 'openmetrics' : 'text';
}

function toRange(text: string): MediaRange {
  const [type = '', ...rest] = text.split(';').map((piece) => piece.trim().toLowerCase());
  const parameters = new Map(rest.map((piece) => [piece.split('=')[0] ?? '', piece.split('=')[1]?.replaceAll('"', '')]));
  const quality = Number(parameters.get('q') ?? 1);
  return { type, version: parameters.get('version'), quality: quality >= 0 && quality <= 1 ? quality : 0 };
}

/**
 * Renders metrics for all scrapers, who need no token: each rendering takes milliseconds of the event loop. There is one at a time, which the
 * scrapes share that wait for it, and a budget for all. The values are as new as the scrape, unless many others wait.
 */
export class BudgetedExposition implements Exposition {
  readonly #metrics: Exposition;
  readonly #clock: Clock;
  /** Renderings that have not started. */
  readonly #next = new Map<ExpositionFormat, Promise<Rendered>>();
  readonly #last = new Map<ExpositionFormat, { readonly rendered: Rendered; readonly at: Milliseconds }>();
  #waiting = 0;
  #previous: Promise<unknown> = Promise.resolve();
  /** How long may be rendered now; negative after a rendering that took longer. */
  #budget = BURST_MS;
  #filledAt: Milliseconds;

  constructor(metrics: Exposition, clock: Clock) {
    this.#metrics = metrics;
    this.#clock = clock;
    this.#filledAt = clock.monotonic();
  }

  async exposition(format: ExpositionFormat = 'text'): Promise<Rendered> {
    const last = this.#last.get(format);
    const isRecent = last !== undefined && this.#clock.monotonic() - last.at < MAX_AGE_MS;
    if (isRecent && this.#waiting >= MAX_WAITING) return last.rendered;
    this.#waiting++;
    try {
      return await (this.#next.get(format) ?? this.#schedule(format));
    } finally {
      this.#waiting--;
    }
  }

  #schedule(format: ExpositionFormat): Promise<Rendered> {
    const next = this.#previous.then(() => this.#render(format));
    this.#next.set(format, next);
    this.#previous = next.catch(() => undefined);
    return next;
  }

  async #render(format: ExpositionFormat): Promise<Rendered> {
    const clock = this.#clock;
    const now = clock.monotonic();
    this.#budget = Math.min(BURST_MS, this.#budget + (now - this.#filledAt) * MAX_SHARE);
    this.#filledAt = now;
    if (this.#budget < 0) await pause(clock, -this.#budget / MAX_SHARE);
    this.#next.delete(format);
    const startedAt = clock.monotonic();
    try {
      const rendered = await this.#metrics.exposition(format);
      this.#last.set(format, { rendered, at: startedAt });
      return rendered;
    } finally {
      this.#budget = Math.max(-BURST_MS, this.#budget - (clock.monotonic() - startedAt));
    }
  }
}
