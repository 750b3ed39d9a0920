/** The endpoints for machines: metrics, liveness, readiness, and the public keys of Sidegate-Identity. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { Exposition, ExpositionFormat } from '../../telemetry/metrics/openmetrics.ts';
import { BudgetedExposition, toFormat } from '../exposition.ts';
import { type AdminResponse, toJson, toPlain } from '../response.ts';
import type { AdminEndpoint } from '../router.ts';

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
