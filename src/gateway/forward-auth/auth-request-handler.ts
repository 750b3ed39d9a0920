/** Handles auth requests of the forward-auth endpoint: accepts trusted callers only, and reads the original request from their headers. */
import type { Answer } from '../../core/answer.ts';
import type { Client, Exchange } from '../../core/exchange.ts';
import { HeaderFields } from '../../core/headers.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import { AddressRanges } from '../server/address-ranges.ts';
import { createForwardedForReader } from '../server/client-address.ts';
import type { ArrivalHandler } from '../server/server.ts';
import { readOriginalRequest } from './original-request.ts';

/** Who is heard and believed. */
export interface AuthRequestRules {
  readonly trustedCallers: readonly string[];
  /** Whose hops in X-Forwarded-For are passed over, beyond the caller. */
  readonly trustedProxies: readonly string[];
  /** Bytes. */
  readonly maxTarget: number;
}

/** Where questions go. */
export interface QuestionHandler extends ArrivalHandler {
  /** `original`: the request in question. */
  handle(original: Exchange, response: Answer): void;
  /** The caller is heard, but what it asks about cannot be judged. */
  decline(question: Exchange, response: Answer, refusal: Refusal): void;
}

/** Passes the original request on to `pipeline`. */
export function createAuthRequestHandler(rules: AuthRequestRules, pipeline: QuestionHandler): ArrivalHandler {
  const callers = new AddressRanges(rules.trustedCallers);
  const readClientAddress = createForwardedForReader(rules.trustedProxies);

  const toOriginal = (question: Exchange): Exchange | Refusal => {
    const { headers } = question;
    const read = readOriginalRequest(headers);
    if ('code' in read) return read;
    const { method, target, host, scheme } = read;
    if (target.raw.length > rules.maxTarget) return refuse('target_too_long', 'target_too_long', `${target.raw.length} bytes`);
    const address = readClientAddress(headers.all('x-forwarded-for'));
    // All clients would be one, and a client could name itself.
    if (address === undefined) return refuse('original_request_unclear', 'original_request', 'no address in x-forwarded-for');
    const client: Client = { address, peer: question.client.peer, viaTrustedProxy: true, viaIdentityProxy: false, scheme };
    return { ...question, method, target, client, headers: withHost(headers, host) };
  };

  return {
    handle(question, response) {
      if (!callers.has(question.client.peer))
        return pipeline.turnAway(question, response, refuse('caller_denied', 'caller_not_trusted'));
      const original = toOriginal(question);
      if ('code' in original) pipeline.decline(question, response, original);
      else pipeline.handle(original, response);
    },
    turnAway: (arrival, response, refusal) => pipeline.turnAway(arrival, response, refusal),
    turnAwaySocket: (arrival, socket, refusal) => pipeline.turnAwaySocket(arrival, socket, refusal),
  };
}

/** The question's own Host is the endpoint's; routes go by the one in question. */
function withHost({ raw, names }: HeaderFields, host: string): HeaderFields {
  const others = raw.filter((_, i) => names[i >> 1] !== 'host');
  return new HeaderFields([...others, 'Host', host]);
}
