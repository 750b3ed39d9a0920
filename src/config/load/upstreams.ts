/** Gives every route its app: its own, or the one that the top of the config names for all. */
import { error, type Path, type Rating } from '../rules/rating.ts';
import type { SocketAddress } from '../schema/scalars.ts';

interface WithUpstreams<R> {
  readonly upstream?: SocketAddress | undefined;
  readonly routes: readonly R[];
}

/** What came of it. */
export interface Provided<R> {
  readonly routes: (R & { readonly upstream: SocketAddress })[];
  /** Routes that have none. */
  readonly ratings: readonly Rating[];
  /** A finding about a route's upstream, at the place that names it. */
  readonly toOwnPlace: (rating: Rating) => Rating;
}

/** No app has it, and no rule finds anything wrong with it. */
const NOWHERE: SocketAddress = { host: '', port: -1 };
const TOP: Path = ['upstream'];

/** `isNeeded`: false where nothing will be forwarded, so a route without an app is no error. */
export function provideUpstreams<R extends { readonly upstream?: SocketAddress | undefined }>(
  { upstream: top, routes }: WithUpstreams<R>,
  isNeeded: boolean,
): Provided<R> {
  const provided = routes.map((route) => ({ ...route, upstream: route.upstream ?? top ?? NOWHERE }));
  const homeless =
    top !== undefined || !isNeeded ? [] : routes.flatMap((route, index) => (route.upstream === undefined ? [index] : []));
  const hint = 'give it here, or one upstream at the top for all routes, or --upstream http://127.0.0.1:3000';
  return {
    routes: provided,
    ratings: homeless.map((index) => error(['routes', index, 'upstream'], 'missing: the app of this route', hint)),
    toOwnPlace(rating) {
      const [section, index, key] = rating.path;
      const isOfRoute = section === 'routes' && key === 'upstream' && typeof index === 'number';
      return isOfRoute && top !== undefined && routes[index]?.upstream === undefined ? { ...rating, path: TOP } : rating;
    },
  };
}
