/** Builds the header fields that the forward proxy sends to a destination: the client's, without hop-by-hop fields. */

import type { Admitted } from '../../core/admitted.ts';
import { HOP_BY_HOP, isTraceField, TRACE } from '../../core/field-policy.ts';
import { findConnectionOptions, toFoldedName } from '../../core/headers.ts';
import type { RequestTrace } from '../../telemetry/tracing/tracer.ts';
import { addFraming } from '../upstream/request-headers.ts';
import { addTrace } from '../upstream/trace-headers.ts';

/** Fields that are rewritten; Expect was already handled by the gate. */
const REWRITTEN = new Set(['host', 'via', 'content-length', 'expect', 'max-forwards']);
const HTTP_PORT = 80;

/** Forwards the fields meant for the origin, such as Authorization (RFC 9110 §11.6.2), and reveals nothing about the client. */
export class ProxyHeaderPolicy {
  readonly #pseudonym: string;
  readonly #trustsTraces: boolean;

  /** `pseudonym`: this proxy's name in Via (RFC 9110 §7.6.3). `trustsTraces`: forwards the client's trace context. */
  constructor(pseudonym: string, trustsTraces: boolean) {
    this.#pseudonym = pseudonym;
    this.#trustsTraces = trustsTraces;
  }

  toUpstreamHeaders(admitted: Admitted, trace?: RequestTrace): string[] {
    const { headers, destination, method } = admitted.head;
    const { host, port } = destination as NonNullable<typeof destination>;
    const named = findConnectionOptions(headers);
    const name = host.includes(':') ? `[${host}]` : host;
    // Host is set to the target's host and port (RFC 9112 §3.2.2).
    const out = ['Host', port === HTTP_PORT ? name : `${name}:${port}`];
    headers.names.forEach((field, i) => {
      const folded = toFoldedName(field);
      if (TRACE.has(folded) || (isTraceField(folded) && !this.#trustsTraces)) return;
      if (HOP_BY_HOP.has(folded) || REWRITTEN.has(folded) || named?.has(field) === true) return;
      out.push(headers.raw[i * 2] as string, headers.raw[i * 2 + 1] as string);
    });
    out.push('Via', [...headers.all('via'), `1.1 ${this.#pseudonym}`].join(', '));
    const maxForwards = parseMaxForwards(method, headers.get('max-forwards'));
    if (maxForwards !== undefined && maxForwards > 0) out.push('Max-Forwards', String(maxForwards - 1));
    addTrace(out, trace);
    addFraming(out, admitted);
    out.push('Connection', 'close');
    return out;
  }
}

/** How often the request may still be forwarded; applies to TRACE and OPTIONS only (RFC 9110 §7.6.2). */
export function parseMaxForwards(method: string, value: string | undefined): number | undefined {
  if ((method !== 'TRACE' && method !== 'OPTIONS') || value === undefined || !/^[0-9]{1,9}$/.test(value)) return undefined;
  return Number(value);
}
