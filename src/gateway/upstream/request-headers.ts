/** Builds the request header for the app: removes everything that a client must not set, then adds sidegate's own fields. */

import type { Admitted } from '../../core/admitted.ts';
import { decideFieldAction, type FieldAction, type FieldSettings, isMethodOverride } from '../../core/field-policy.ts';
import { findConnectionOptions, type HeaderFields, rememberByName, toFoldedName } from '../../core/headers.ts';
import type { Client } from '../../core/request.ts';
import type { RequestTrace } from '../../telemetry/tracing/tracer.ts';
import { addIdentity, type IdentityContext } from './identity.ts';
import { addTrace } from './trace-headers.ts';

/** The settings of a route for the request header. */
export type HeaderContext = IdentityContext & FieldSettings;

/** Finds a field that would make an app run another method than the one that was checked. */
export function findMethodOverride({ names }: HeaderFields): string | undefined {
  return names.find((name) => isMethodOverride(toFoldedName(name)));
}

/** Decides which fields of a client are forwarded. */
export class HeaderPolicy {
  readonly #context: HeaderContext;
  readonly #findAction: (name: string) => FieldAction;

  constructor(context: HeaderContext) {
    this.#context = context;
    this.#findAction = rememberByName((name) => decideFieldAction(name, context));
  }

  /** The field lines for the app: raw pairs in the order they are sent. */
  toUpstreamHeaders(admitted: Admitted, trace?: RequestTrace): string[] {
    const { head, claimed } = admitted;
    const { client, headers } = head;
    // Client fields are removed before ours are added: in the other order, a client could remove ours (CVE-2026-33805).
    const named = findConnectionOptions(headers);
    const out: string[] = [];
    const { raw, names } = headers;
    for (let i = 0; i < names.length; i++) {
      const name = names[i] as string;
      const action = this.#findAction(name);
      const value = raw[i * 2 + 1] as string;
      if (action !== 'pass' && !isTrustedClaim(action, name, value, client)) continue;
      if (named?.has(name) === true) continue;
      out.push(raw[i * 2] as string, value);
    }
    addHost(out, headers);
    addForwarded(out, admitted);
    out.push('Via', toVia(headers));
    addTrace(out, trace);
    addIdentity(out, admitted, this.#context);
    if (claimed?.isStale === true) out.push('Sidegate-Stale', 'true');
    if (claimed?.isUnchecked === true) out.push('Sidegate-Unchecked', 'true');
    // A byte sequence in structured field syntax (RFC 9440 §2.1).
    if (this.#context.certificate === 'forward' && client.certificate !== undefined)
      out.push('Client-Cert', `:${client.certificate.raw.toString('base64')}:`);
    addFraming(out, admitted);
    if (head.upgrade === undefined) out.push('Connection', 'keep-alive');
    else out.push('Connection', 'Upgrade', 'Upgrade', head.upgrade.protocol);
    return out;
  }
}

/**
 * Returns whether the proxy in front is trusted to make this assertion. Proxies forward fields that they do not know, so an
 * address must be the right one.
 */
function isTrustedClaim(action: Exclude<FieldAction, 'pass'>, name: string, value: string, client: Client): boolean {
  switch (action) {
    case 'identity':
    case 'certificate':
    case 'unchecked':
      return client.viaIdentityProxy;
    case 'clientAddress':
      return client.viaIdentityProxy || (client.viaTrustedProxy && value === client.address);
    case 'route':
      return (client.viaTrustedProxy || client.viaIdentityProxy) && hasRouteForm(toFoldedName(name), value);
    default:
      return false;
  }
}

/** The forms of list members in fields of which apps make links. Proxies that do not set such a field pass on what a client wrote. */
const ROUTE_FORMS: readonly (readonly [names: RegExp, form: RegExp])[] = [
  [/^x-(?:forwarded|real)-port/, /^\d{1,5}$/],
  [/^x-(?:forwarded-(?:proto|scheme)|scheme|url-scheme)/, /^(?:https?|wss?)$/i],
  // A path, and not `//evil.example`.
  [/^x-forwarded-(?:prefix|context)/, /^\/(?:[A-Za-z0-9._~!$&'()*+;=:@%-][A-Za-z0-9._~!$&'()*+;=:@%/-]*)?$/],
  [/^x-forwarded-server/, /^[A-Za-z0-9._:[\]-]+$/],
];

function hasRouteForm(name: string, value: string): boolean {
  const form = ROUTE_FORMS.find(([names]) => names.test(name))?.[1];
  return form === undefined || value.split(',').every((member) => form.test(member.trim()));
}

/** Addresses, names and ports of hops. */
const HOPS = /^[0-9A-Za-z._:%[\], \t-]*$/;

/** The hops after the last one that is malformed: proxies append theirs to what a client wrote. */
function toHops(lines: readonly string[]): readonly string[] {
  const text = lines.join(', ');
  if (HOPS.test(text)) return lines;
  const hops = text.split(',').map((hop) => hop.trim());
  return hops.slice(hops.findLastIndex((hop) => !HOPS.test(hop)) + 1);
}

/** HTTP/1.0 may lack Host, but our HTTP/1.1 request must have it; empty, because the target has no host (RFC 9110 §7.2). */
function addHost(out: string[], headers: HeaderFields): void {
  if (headers.get('host') === undefined) out.push('Host', '');
}

function addForwarded(out: string[], admitted: Admitted): void {
  const { client, headers } = admitted.head;
  const chain = client.viaTrustedProxy ? toHops(headers.all('x-forwarded-for')) : [];
  out.push('X-Forwarded-For', [...chain, client.peer].join(', '), 'X-Forwarded-Proto', client.scheme);
  const host = (client.viaTrustedProxy ? headers.all('x-forwarded-host').at(-1) : undefined) ?? headers.get('host');
  if (host !== undefined) out.push('X-Forwarded-Host', host);
}

/** RFC 9110 §7.6.3: one list, and each hop appends itself. */
function toVia(headers: HeaderFields): string {
  return headers.get('via') === undefined ? '1.1 sidegate' : `${headers.all('via').join(', ')}, 1.1 sidegate`;
}

/**
 * sidegate always sets the framing, for every method: the app would read a body without a length as the next request
 * (CVE-2026-29057).
 */
export function addFraming(out: string[], { head, body }: Admitted): void {
  if (body.length === undefined) out.push('Transfer-Encoding', 'chunked');
  else if (body.length > 0 || requiresBody(head.method)) out.push('Content-Length', String(body.length));
}

/** Methods whose requests have a body by definition: a length of 0 is sent explicitly (RFC 9110 §8.6). */
function requiresBody(method: string): boolean {
  return method === 'POST' || method === 'PUT' || method === 'PATCH';
}
