/** Resolves the upstream of every route: its own, or the top-level one. */
import { error, type Path, type Rating } from '../rules/rating.ts';
import type { SocketAddress } from '../schema/scalars.ts';

interface WithUpstreams<R> {
  readonly upstream?: SocketAddress | undefined;
  readonly routes: readonly R[];
}

/** The routes with their upstreams. */
export interface ResolvedUpstreams<R> {
  readonly routes: (R & { readonly upstream: SocketAddress })[];
  /** Errors for routes without an upstream. */
  readonly ratings: readonly Rating[];
  /** Moves a finding about an inherited upstream to the top-level key. */
  readonly toOwnPath: (rating: Rating) => Rating;
}

/** A placeholder address that no rule objects to. */
const NOWHERE: SocketAddress = { host: '', port: -1 };
const TOP: Path = ['upstream'];

/** `isNeeded` is false if nothing will be forwarded; a route without an upstream is then not an error. */
export function provideUpstreams<R extends { readonly upstream?: SocketAddress | undefined }>(
  { upstream: top, routes }: WithUpstreams<R>,
  isNeeded: boolean,
): ResolvedUpstreams<R> {
  const provided = routes.map((route) => ({ ...route, upstream: route.upstream ?? top ?? NOWHERE }));
  const missing =
    top !== undefined || !isNeeded ? [] : routes.flatMap((route, index) => (route.upstream === undefined ? [index] : []));
  const hint = 'set it here, or set a top-level upstream for all routes, or pass --upstream http://127.0.0.1:3000';
  return {
    routes: provided,
    ratings: missing.map((index) => error(['routes', index, 'upstream'], 'missing: the address of the app', hint)),
    toOwnPath(rating) {
      const [section, index, key] = rating.path;
      const isOfRoute = section === 'routes' && key === 'upstream' && typeof index === 'number';
      return isOfRoute && top !== undefined && routes[index]?.upstream === undefined ? { ...rating, path: TOP } : rating;
    },
  };
}
