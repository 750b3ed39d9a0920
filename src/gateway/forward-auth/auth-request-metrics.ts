/** The metrics of the forward-auth endpoint. */
import type { Registry } from '@prometheus-io/client';
import type { Milliseconds } from '../../core/clock.ts';
import type { Reason } from '../../core/refusal.ts';
import {
  BoundCounters,
  BoundHistogram,
  type CounterFamily,
  createFamilies,
  type Exemplar,
  type HistogramFamily,
  PerRoute,
  type RouteIdentity,
  type RouteSeries,
  toCodeLabel,
  toMethodLabel,
} from '../../telemetry/metrics/series.ts';

/** A response of the forward-auth endpoint. */
interface AuthResponse {
  readonly method: string;
  readonly status: number;
  readonly reason: Reason;
}

/** The metrics. */
export interface AuthRequestMetrics {
  /** Counts a response; `route`: that of the original request. */
  authRequest(route: string | undefined, response: AuthResponse, duration: Milliseconds, exemplar?: Exemplar): void;
}

/** The properties of a route that decide which series it has from the start. */
export interface AuthRouteLabels extends RouteIdentity {
  /** Other proxies may use it through the forward-auth endpoint. */
  readonly authz?: boolean;
  /** It requires a password. */
  readonly requiresPassword?: boolean;
}

/** Seconds: an auth request takes microseconds, or the time of a password hash. */
const BUCKETS = [0.001, 0.005, 0.025, 0.1, 1];

class AuthSeries implements RouteSeries<AuthRouteLabels> {
  readonly #responses: BoundCounters;
  readonly #duration: BoundHistogram;

  constructor(responses: CounterFamily, duration: HistogramFamily, { name }: RouteIdentity) {
    this.#responses = new BoundCounters(responses, name);
    this.#duration = new BoundHistogram(duration, name);
  }

  initialize(labels: AuthRouteLabels): void {
    if (labels.authz === true) for (const response of toAlertedResponses(labels)) this.#responses.get(toId(response));
  }

  count(response: AuthResponse, duration: Milliseconds, exemplar: Exemplar | undefined): void {
    this.#responses.get(toId(response)).add();
    this.#duration.get().observe(duration / 1000, exemplar);
  }

  remove(): void {
    this.#responses.remove();
    this.#duration.remove();
  }
}

function toId({ method, status, reason }: AuthResponse): string {
  return `${toMethodLabel(method)} ${toCodeLabel(status)} ${reason}`;
}

/** Registers the metrics. */
export function createAuthRequestMetrics(
  registers: Registry[],
): AuthRequestMetrics & { readonly setRoutes: (routes: readonly AuthRouteLabels[]) => void } {
  const { counter, histogram } = createFamilies(registers);
  const families = {
    authzRequests: counter(
      'sidegate_authz_requests_total{route,method,code,reason}',
      'Responses of the forward-auth endpoint, by route and method of the original request, status and reason.',
    ),
    authzDuration: histogram(
      'sidegate_authz_request_duration_seconds{route}',
      'Time from the end of the head of an auth request to the end of the response.',
      BUCKETS,
    ),
  };
  const routes = new PerRoute<AuthRouteLabels, AuthSeries>(
    (route) => new AuthSeries(families.authzRequests, families.authzDuration, route),
  );
  return {
    authRequest: (route, response, duration, exemplar) => routes.get(route).count(response, duration, exemplar),
    setRoutes: (next) => routes.set(next),
  };
}

/** The responses to other proxies that alerts use, including the successful ones for ratios. */
function toAlertedResponses({ requiresPassword }: AuthRouteLabels): AuthResponse[] {
  const method = 'GET';
  const wrong: readonly AuthResponse[] = [
    { method, status: 401, reason: 'bad_credentials' },
    { method, status: 403, reason: 'banned' },
  ];
  return [{ method, status: 200, reason: 'ok' }, ...(requiresPassword === true ? wrong : [])];
}
