/** Sends the requests of `openid-client` with a deadline, a size limit, no redirects, and the configured CA and proxy. */
import type { CustomFetch } from 'openid-client';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { ClusterAccess } from './access.ts';
import { Transport } from './transport.ts';

const TIMEOUT: Milliseconds = 15_000;
const MAX_BYTES = 1_048_576;

/** How to connect to the provider. */
export interface OidcReach extends Pick<ClusterAccess, 'ca' | 'proxyEnv'> {
  readonly clock: Clock;
}

/** The returned function rejects with KubeError unless a complete response is received. */
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
      const response = await transport.send(
        { method, path, accept: 'application/json', content, timeout: TIMEOUT, maxBytes: MAX_BYTES },
        {},
      );
      // The body is parsed as JSON regardless of its Content-Type.
      return new Response(response.body.length === 0 ? null : new Uint8Array(response.body), {
        status: response.status,
        headers: { 'content-type': 'application/json' },
      });
    } finally {
      transport.close();
    }
  };
}
