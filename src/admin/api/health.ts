/** What machines ask on a beat: metrics, liveness, readiness, and the public keys of Sidegate-Identity. */
import type { Milliseconds } from '../../core/clock.ts';
import type { Metrics } from '../../telemetry/metrics/metrics.ts';
import type { ExpositionFormat } from '../../telemetry/metrics/openmetrics.ts';
import { type Answer, toJson, toPlain } from '../answer.ts';
import { toFormat } from '../exposition.ts';
import type { Endpoint } from '../router.ts';

/** What they are told about. */
export interface HealthParts {
  readonly metrics: Metrics;
  /** The public keys that Sidegate-Identity is checked by, as a JWK Set. */
  readonly toKeySet: () => object;
  /** Why the gate should get no traffic now, or undefined when it is ready. */
  readonly notReadyBecause: () => string | undefined;
  /** For how long the event loop has not got round in time, where only a restart helps. */
  readonly stuckFor: () => Milliseconds | undefined;
}

/** What every process of ours is asked. */
export type ProbedParts = Pick<HealthParts, 'notReadyBecause' | 'stuckFor'> & { readonly metrics: Pick<Metrics, 'exposition'> };

const open = { method: 'GET', isOpen: true } as const;

/** Open to everybody: probes and scrapers have no token, and none of it is secret. */
export function createHealthEndpoints(parts: HealthParts): Endpoint[] {
  const keySet = { ...open, path: '/identity/jwks.json', answer: () => toJson(parts.toKeySet(), 'application/jwk-set+json') };
  return [...createProbedEndpoints(parts), keySet];
}

/** Metrics, liveness and readiness alone. */
export function createProbedEndpoints({ metrics, notReadyBecause, stuckFor }: ProbedParts): Endpoint[] {
  return [
    { ...open, path: '/metrics', answer: ({ request }) => toExposition(metrics, toFormat(request.headers.accept)) },
    { ...open, path: '/healthz', answer: () => toLiveness(stuckFor()) },
    {
      ...open,
      path: '/readyz',
      answer() {
        const reason = notReadyBecause();
        return reason === undefined ? toPlain(200, 'ready') : toPlain(503, `not ready: ${reason}`);
      },
    },
  ];
}

/** Whoever answers at all is alive, but for one that takes seconds for each turn. */
function toLiveness(stuckFor: Milliseconds | undefined): Answer {
  if (stuckFor === undefined) return toPlain(200, 'ok');
  return toPlain(503, `not alive: for ${Math.round(stuckFor / 1_000)} s no turn of the event loop has come in time`);
}

async function toExposition(metrics: Pick<Metrics, 'exposition'>, format: ExpositionFormat): Promise<Answer> {
  try {
    return { status: 200, ...(await metrics.exposition(format)), headers: { Vary: 'Accept' } };
  } catch {
    return toPlain(500, 'the metrics could not be written');
  }
}
