/** Writes the header that a destination gets from the forward proxy: the client's, without what is of its hop. */

import type { Admitted } from '../../core/admitted.ts';
import { toFoldedName, toNamedByConnection } from '../../core/headers.ts';
import type { RequestTrace } from '../../core/request-trace.ts';
import { isTraceField } from '../../telemetry/tracing/trace-fields.ts';
import { HOP_BY_HOP, TRACE } from '../upstream/managed-names.ts';
import { addFraming } from '../upstream/request-headers.ts';
import { addTrace } from '../upstream/trace-headers.ts';

/** Fields written anew; Expect was answered by us. */
const REWRITTEN = new Set(['host', 'via', 'content-length', 'expect', 'max-forwards']);
const HTTP_PORT = 80;

/** A proxy passes on what is for the origin, Authorization above all (RFC 9110 §11.6.2), and says nothing of the client. */
export class ProxyHeaderPolicy {
  readonly #pseudonym: string;
  readonly #trustsTraces: boolean;

  /** `pseudonym`: what Via calls this proxy (RFC 9110 §7.6.3). `trustsTraces`: the client's traces go on beyond the proxy. */
  constructor(pseudonym: string, trustsTraces: boolean) {
    this.#pseudonym = pseudonym;
    this.#trustsTraces = trustsTraces;
  }

  toUpstreamHeaders(admitted: Admitted, trace?: RequestTrace): string[] {
    const { headers, destination, method } = admitted.head;
    const { host, port } = destination as NonNullable<typeof destination>;
    const named = toNamedByConnection(headers);
    const name = host.includes(':') ? `[${host}]` : host;
    // The target's authority counts, whatever Host says (RFC 9112 §3.2.2).
    const out = ['Host', port === HTTP_PORT ? name : `${name}:${port}`];
    headers.names.forEach((field, i) => {
      const folded = toFoldedName(field);
      if (TRACE.has(folded) || (isTraceField(folded) && !this.#trustsTraces)) return;
      if (HOP_BY_HOP.has(folded) || REWRITTEN.has(folded) || named?.has(field) === true) return;
      out.push(headers.raw[i * 2] as string, headers.raw[i * 2 + 1] as string);
    });
    out.push('Via', [...headers.all('via'), `1.1 ${this.#pseudonym}`].join(', '));
    const forwards = toForwardsLeft(method, headers.get('max-forwards'));
    if (forwards !== undefined && forwards > 0) out.push('Max-Forwards', String(forwards - 1));
    addTrace(out, trace);
    addFraming(out, admitted);
    out.push('Connection', 'close');
    return out;
  }
}

/** How often the request may still be forwarded; counts for TRACE and OPTIONS only (RFC 9110 §7.6.2). */
export function toForwardsLeft(method: string, value: string | undefined): number | undefined {
  if ((method !== 'TRACE' && method !== 'OPTIONS') || value === undefined || !/^[0-9]{1,9}$/.test(value)) return undefined;
  return Number(value);
}
