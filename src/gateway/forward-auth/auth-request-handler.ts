/** Handles auth requests of the forward-auth endpoint: accepts trusted callers only, and reads the original request from their headers. */

import { HeaderFields } from '../../core/headers.ts';
import { IpRanges } from '../../core/ip-address.ts';
import { Refusal, refuse } from '../../core/refusal.ts';
import type { Client, ClientResponse, ParsedHead, RequestInfo } from '../../core/request.ts';
import { createForwardedForReader } from '../../http/server/client-address.ts';
import type { RequestHandler } from '../../http/server/server.ts';
import { readOriginalRequest } from './original-request.ts';

/** The trusted callers and proxies. */
interface AuthRequestRules {
  readonly trustedCallers: readonly string[];
  /** Further proxies whose hops in X-Forwarded-For are skipped. */
  readonly trustedProxies: readonly string[];
  /** Bytes. */
  readonly maxTarget: number;
}

/** Handles original requests. */
interface OriginalRequestHandler extends RequestHandler {
  /** `authRequest`: what the caller sent. */
  reject(info: RequestInfo, response: ClientResponse, refusal: Refusal, authRequest?: ParsedHead): void;
}

/** Passes the original request on to `pipeline`. */
export function createAuthRequestHandler(rules: AuthRequestRules, pipeline: OriginalRequestHandler): RequestHandler {
  const callers = new IpRanges(rules.trustedCallers);
  const readClientAddress = createForwardedForReader(rules.trustedProxies);

  const toOriginal = (authRequest: ParsedHead): ParsedHead | Refusal => {
    const { headers } = authRequest;
    const read = readOriginalRequest(headers);
    if (read instanceof Refusal) return read;
    const { method, target, host, scheme } = read;
    if (target.raw.length > rules.maxTarget) return refuse('target_too_long', 'target_too_long', `${target.raw.length} bytes`);
    const address = readClientAddress(headers.all('x-forwarded-for'));
    // Otherwise all clients would share one address, or a client could choose its own.
    if (address === undefined) return refuse('original_request_unclear', 'original_request', 'no address in x-forwarded-for');
    const client: Client = { address, peer: authRequest.client.peer, viaTrustedProxy: true, viaIdentityProxy: false, scheme };
    return { ...authRequest, method, target, client, headers: withHost(headers, host) };
  };

  return {
    handle(authRequest, response) {
      if (!callers.has(authRequest.client.peer))
        return pipeline.reject(authRequest, response, refuse('caller_denied', 'caller_not_trusted'), authRequest);
      const original = toOriginal(authRequest);
      if (original instanceof Refusal) pipeline.reject(authRequest, response, original, authRequest);
      else pipeline.handle(original, response);
    },
    reject: (info, response, refusal) => pipeline.reject(info, response, refusal),
    rejectSocket: (info, socket, refusal) => pipeline.rejectSocket(info, socket, refusal),
  };
}

/** The auth request's own Host is the endpoint's; routes are found by the original request's. */
function withHost({ raw, names }: HeaderFields, host: string): HeaderFields {
  const others = raw.filter((_, i) => names[i >> 1] !== 'host');
  return new HeaderFields([...others, 'Host', host]);
}
