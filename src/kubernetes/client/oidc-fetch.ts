/** Carries the requests of `openid-client` with the rules of all our requests: deadline, bound, no redirects, the given CA and proxy. */
import type { CustomFetch } from 'openid-client';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { ClusterAccess } from './access.ts';
import { Transport } from './transport.ts';

const TIMEOUT: Milliseconds = 15_000;
const MAX_BYTES = 1_048_576;

/** How the provider is reached. */
export interface OidcReach extends Pick<ClusterAccess, 'ca' | 'proxyEnv'> {
  readonly clock: Clock;
}

/** The result rejects with KubeError if there is no whole answer. */
export function createOidcFetch({ clock, ca, proxyEnv }: OidcReach): CustomFetch {
  return async (address, { method, headers, body }) => {
    const url = new URL(address);
    const access: ClusterAccess = { server: new URL(url.origin), ca, proxyEnv, headers, credentials: async () => ({}) };
    const transport = new Transport(access, clock);
    const content =
      body === undefined || body === null
        ? undefined
        : { type: 'application/x-www-form-urlencoded', bytes: Buffer.from(String(body)) };
    const path = url.pathname + url.search;
    try {
      const answer = await transport.send(
        { method, path, accept: 'application/json', content, timeout: TIMEOUT, maxBytes: MAX_BYTES },
        {},
      );
      // The content is parsed as JSON in any case, whatever its type says.
      return new Response(answer.body.length === 0 ? null : new Uint8Array(answer.body), {
        status: answer.status,
        headers: { 'content-type': 'application/json' },
      });
    } finally {
      transport.close();
    }
  };
}
