/** Is this content the route takes at all? Judged by the header alone, before anything is read. */
import type { Exchange } from '../../../core/exchange.ts';
import { type MediaType, parseMediaType, toMediaForm } from '../../../core/media-type.ts';
import { refuse } from '../../../core/refusal.ts';
import type { Verdict } from '../../../core/verdict.ts';
import type { Gate } from './gate.ts';

/** What the route takes. */
export interface ContentOptions {
  /** Media types without parameters, lower case. */
  readonly contentTypes: readonly string[];
  /** Largest content in bytes. */
  readonly maxBody: number;
  readonly allowQuery: boolean;
  readonly allowContentEncoding: boolean;
  /** The content is signed, so it must have one reading: UTF-8, and no parameter that parsers disagree about. */
  readonly bindsMediaType: boolean;
}

/** Checks the query, Content-Encoding, Content-Type and declared Content-Length; writes `facts.mediaType` where it is bound. */
export function createContentGate(options: ContentOptions): Gate {
  const checkType = compileTypeCheck(options);
  return {
    name: 'content',
    check(exchange: Exchange): Verdict {
      // Neither is covered by the signature, so whoever holds one genuine delivery could vary them at will.
      if (exchange.target.query !== undefined && !options.allowQuery) return refuse('malformed_request', 'query_not_signed');
      if (!options.allowContentEncoding && isEncoded(exchange)) return refuse('unsupported_media_type', 'content_encoding');
      const refusal = checkType(exchange);
      if (refusal !== undefined) return refusal;
      const { declaredLength } = exchange.body;
      if (declaredLength !== undefined && declaredLength > options.maxBody) return refuse('body_too_large', 'body_too_large');
      return undefined;
    },
  };
}

function compileTypeCheck({ contentTypes, bindsMediaType }: ContentOptions): (exchange: Exchange) => Verdict {
  const essences = new Set(contentTypes);
  const usual = toUsual(contentTypes);
  return ({ headers, facts }) => {
    if (headers.count('content-type') > 1) return refuse('malformed_request', 'malformed', 'repeated Content-Type');
    const contentType = headers.get('content-type');
    if (contentType === undefined || !essences.has(toEssence(contentType)))
      return refuse('unsupported_media_type', 'unsupported_media_type');
    if (!bindsMediaType) return undefined;
    const mediaType = usual.get(contentType) ?? parseMediaType(contentType);
    if ('problem' in mediaType) return refuse('unsupported_media_type', 'unsupported_media_type', mediaType.problem);
    facts.mediaType = mediaType;
    return undefined;
  };
}

/** The values that nearly all senders send: they need no parser. */
function toUsual(contentTypes: readonly string[]): ReadonlyMap<string, MediaType> {
  const found = new Map<string, MediaType>();
  for (const essence of contentTypes) {
    const form = toMediaForm(essence);
    if (form === 'multipart') continue;
    for (const parameters of ['', '; charset=utf-8', ';charset=utf-8', '; charset=UTF-8', ';charset=UTF-8'])
      found.set(essence + parameters, { essence, form, boundary: undefined });
  }
  return found;
}

/** `identity` says that there is no encoding (RFC 9110 §12.5.3), so it hides nothing from the signature. */
function isEncoded(exchange: Exchange): boolean {
  if (exchange.headers.count('content-encoding') > 1) return true;
  const coding = exchange.headers.get('content-encoding');
  return coding !== undefined && coding.trim().toLowerCase() !== 'identity';
}

/** The media type without parameters (RFC 9110 §8.3.1), lower case. */
function toEssence(value: string): string {
  const end = value.indexOf(';');
  return (end === -1 ? value : value.slice(0, end)).trim().toLowerCase();
}
