/** The rate limits of the endpoints, to find those that may send sooner than before. */
import type { Endpoint } from '../endpoints/endpoint.ts';

export class RateLimits {
  #limits = new Map<string, number>();

  /** Replaces all limits. Returns the endpoints whose limit was raised or removed: their lanes may be waiting for a token of the old one. */
  replace(endpoints: readonly Pick<Endpoint, 'id' | 'rateLimit'>[]): readonly string[] {
    const before = this.#limits;
    this.#limits = new Map(endpoints.flatMap(({ id, rateLimit }) => (rateLimit === undefined ? [] : [[id, rateLimit]])));
    return endpoints
      .filter(({ id, rateLimit = Number.POSITIVE_INFINITY }) => rateLimit > (before.get(id) ?? Number.POSITIVE_INFINITY))
      .map(({ id }) => id);
  }
}
