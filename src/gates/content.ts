/** Is this content the route takes at all? Judged by the header alone, before anything is read. */
import type { Exchange } from '../core/exchange.ts';
import { refuse } from '../core/refusal.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Gate } from './gate.ts';

/** What the route takes. */
export interface ContentOptions {
  /** Media types without parameters, lower case. */
  readonly contentTypes: readonly string[];
  /** Largest content in bytes. */
  readonly maxBody: number;
  readonly allowQuery: boolean;
  readonly allowContentEncoding: boolean;
}

/** Checks the query, Content-Encoding, Content-Type and declared Content-Length. */
export function createContentGate(options: ContentOptions): Gate {
  const contentTypes = new Set(options.contentTypes);
  return {
    name: 'content',
    check(exchange: Exchange): Verdict {
      // Neither is covered by the signature, so whoever holds one genuine delivery could vary them at will.
      if (exchange.target.query !== undefined && !options.allowQuery) return refuse('malformed_request', 'query_not_signed');
      if (!options.allowContentEncoding && isEncoded(exchange)) return refuse('unsupported_media_type', 'content_encoding');
      if (exchange.headers.count('content-type') > 1) return refuse('malformed_request', 'malformed', 'repeated Content-Type');
      const contentType = exchange.headers.get('content-type');
      if (contentType === undefined || !contentTypes.has(toMediaType(contentType))) {
        return refuse('unsupported_media_type', 'unsupported_media_type');
      }
      const { declaredLength } = exchange.body;
      if (declaredLength !== undefined && declaredLength > options.maxBody) return refuse('body_too_large', 'body_too_large');
      return undefined;
    },
  };
}

/** `identity` says that there is no encoding (RFC 9110 §12.5.3), so it hides nothing from the signature. */
function isEncoded(exchange: Exchange): boolean {
  if (exchange.headers.count('content-encoding') > 1) return true;
  const coding = exchange.headers.get('content-encoding');
  return coding !== undefined && coding.trim().toLowerCase() !== 'identity';
}

/** The media type without parameters (RFC 9110 §8.3.1), lower case. */
function toMediaType(value: string): string {
  const end = value.indexOf(';');
  return (end === -1 ? value : value.slice(0, end)).trim().toLowerCase();
}
