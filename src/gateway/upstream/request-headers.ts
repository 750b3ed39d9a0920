/** Writes the header the app gets: first everything a client must not say is removed, then the gate's own fields are added. */

import type { Admitted } from '../../core/admitted.ts';
import type { Client } from '../../core/client.ts';
import { findConnectionOptions, type HeaderFields, isPlainOption, toFoldedName } from '../../core/headers.ts';
import type { RequestTrace } from '../../core/request-trace.ts';
import { isTraceField } from '../../telemetry/tracing/trace-fields.ts';
import { addIdentity, type IdentityContext } from './identity.ts';
import {
  findProxyClaim,
  HOP_BY_HOP,
  isMethodOverride,
  isOwnField,
  isProtectedField,
  type ProxyClaim,
  TRACE,
} from './managed-names.ts';
import { addTrace } from './trace-headers.ts';

/** What becomes of a client's field; a claim depends on the proxy that the request came by. */
type FieldAction = 'pass' | 'drop' | Exclude<ProxyClaim, 'override'>;

/** Written anew for every request, whoever stands before us; Expect was answered by us (RFC 9110 §10.1.1). */
const REWRITTEN = new Set(['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host', 'via', 'content-length', 'expect']);
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** Names seen before with their action: bounded, as names are the client's choice. */
const MAX_CACHED_NAMES = 1_000;

/** What the header tells of its route, and what the route keeps from the app. */
export interface HeaderContext extends IdentityContext {
  /** Hands the client's credentials on; a gate before the app acts as its origin, so it may keep them (RFC 9110 §11.6.2). */
  readonly forwardAuthorization: boolean;
  /** What becomes of the client's certificate; left out: the route asks for none. */
  readonly certificate?: 'forward' | 'hide';
  /** The app may take the request for one of another method. */
  readonly forwardMethodOverride?: boolean;
  /** Lower-cased names of what the route's signature is read from. */
  readonly signatureHeaders?: readonly string[];
  /** Whoever is let through is trusted with the app's traces: fields of other tracing systems are passed, too. */
  readonly trustsTraces?: boolean;
}

/**
 * A `Connection` option that must not be there, or undefined; a malformed one counts, too. Whoever names a field there that
 * the gate or the app relies on wants it gone behind the check (CVE-2022-31813, CVE-2024-45410).
 */
export function findForbiddenConnectionToken(headers: HeaderFields): string | undefined {
  if (headers.get('connection') === undefined) return undefined;
  for (const line of headers.all('connection')) {
    if (isPlainOption(line)) continue;
    for (const part of line.split(',')) {
      const token = part.trim();
      if (token === '') continue;
      if (!TOKEN.test(token)) return 'an invalid token';
      const name = toFoldedName(token);
      if (isProtectedField(name)) return name;
    }
  }
  return undefined;
}

/** A field that would have an app run another method than the one that was checked, or undefined. */
export function findMethodOverride({ names }: HeaderFields): string | undefined {
  return names.find((name) => isMethodOverride(toFoldedName(name)));
}

/** Decides about names, remembering what it decided. */
export class HeaderPolicy {
  readonly #context: HeaderContext;
  readonly #actions = new Map<string, FieldAction>();

  constructor(context: HeaderContext) {
    this.#context = context;
  }

  /** The field lines for the app, raw pairs in the order they are sent. */
  toUpstreamHeaders(admitted: Admitted, trace?: RequestTrace): string[] {
    const { head, claimed } = admitted;
    const { client, headers } = head;
    // Removed before ours are added: the other order lets a client remove ours (CVE-2026-33805).
    const named = findConnectionOptions(headers);
    const out: string[] = [];
    const { raw, names } = headers;
    for (let i = 0; i < names.length; i++) {
      const name = names[i] as string;
      const action = this.#findAction(name);
      const value = raw[i * 2 + 1] as string;
      if (action !== 'pass' && !isTrustedClaim(action, value, client)) continue;
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
    // A byte sequence of structured fields (RFC 9440 §2.1).
    if (this.#context.certificate === 'forward' && client.certificate !== undefined)
      out.push('Client-Cert', `:${client.certificate.raw.toString('base64')}:`);
    addFraming(out, admitted);
    if (head.upgrade === undefined) out.push('Connection', 'keep-alive');
    else out.push('Connection', 'Upgrade', 'Upgrade', head.upgrade.protocol);
    return out;
  }

  #findAction(name: string): FieldAction {
    const known = this.#actions.get(name);
    if (known !== undefined) return known;
    const action = decideAction(name, this.#context);
    if (this.#actions.size < MAX_CACHED_NAMES) this.#actions.set(name, action);
    return action;
  }
}

function decideAction(name: string, context: HeaderContext): FieldAction {
  const { signatureHeaders = [], trustsTraces = false } = context;
  const folded = toFoldedName(name);
  // Written anew, or not at all. A stranger must not write into the app's traces, nor have everything recorded.
  if (TRACE.has(folded) || (isTraceField(folded) && !trustsTraces && !signatureHeaders.includes(name))) return 'drop';
  if (isWithheld(folded, context)) return 'drop';
  if (HOP_BY_HOP.has(folded) || REWRITTEN.has(folded) || isOwnField(folded)) return 'drop';
  // Another spelling of a managed name: an app may read it as the real thing, and nobody honest writes one.
  if (folded !== name && isProtectedField(folded)) return 'drop';
  if (signatureHeaders.some((signed) => signed !== name && toFoldedName(signed) === folded)) return 'drop';
  return decideClaim(findProxyClaim(folded), context);
}

function decideClaim(claim: ProxyClaim | undefined, { user, certificate }: HeaderContext): FieldAction {
  if (claim === undefined) return 'pass';
  // What a route checks itself, no proxy may contradict.
  const isChecked = (claim === 'identity' && user !== undefined) || (claim === 'certificate' && certificate !== undefined);
  return claim === 'override' || isChecked ? 'drop' : claim;
}

/** Is the claim one that the client's proxy is trusted to make? Proxies pass on what they do not know, so an address must be the right one. */
function isTrustedClaim(action: Exclude<FieldAction, 'pass'>, value: string, client: Client): boolean {
  switch (action) {
    case 'drop':
      return false;
    case 'identity':
    case 'certificate':
    case 'unchecked':
      return client.viaIdentityProxy;
    case 'clientAddress':
      return client.viaIdentityProxy || (client.viaTrustedProxy && value === client.address);
    case 'route':
      return client.viaTrustedProxy || client.viaIdentityProxy;
  }
}

/** The route keeps the field from its app, even where a trusted proxy wrote it. */
function isWithheld(folded: string, { forwardAuthorization, forwardMethodOverride }: HeaderContext): boolean {
  if (folded === 'authorization') return !forwardAuthorization;
  return isMethodOverride(folded) && forwardMethodOverride !== true;
}

/** HTTP/1.0 may lack it, our HTTP/1.1 must not; empty, as the target has no authority (RFC 9110 §7.2). */
function addHost(out: string[], headers: HeaderFields): void {
  if (headers.get('host') === undefined) out.push('Host', '');
}

function addForwarded(out: string[], admitted: Admitted): void {
  const { client, headers } = admitted.head;
  const chain = client.viaTrustedProxy ? headers.all('x-forwarded-for') : [];
  out.push('X-Forwarded-For', [...chain, client.peer].join(', '), 'X-Forwarded-Proto', client.scheme);
  const host = (client.viaTrustedProxy ? headers.all('x-forwarded-host').at(-1) : undefined) ?? headers.get('host');
  if (host !== undefined) out.push('X-Forwarded-Host', host);
}

/** RFC 9110 §7.6.3: one list, each hop adds itself at the end. */
function toVia(headers: HeaderFields): string {
  return headers.get('via') === undefined ? '1.1 sidegate' : `${headers.all('via').join(', ')}, 1.1 sidegate`;
}

/** Always by us, whatever the method: content without a length is the next request to whoever gets it (CVE-2026-29057). */
export function addFraming(out: string[], { head, body }: Admitted): void {
  if (body.length === undefined) out.push('Transfer-Encoding', 'chunked');
  else if (body.length > 0 || expectsContent(head.method)) out.push('Content-Length', String(body.length));
}

/** Methods whose requests carry content by definition: 0 is said, not left open (RFC 9110 §8.6). */
function expectsContent(method: string): boolean {
  return method === 'POST' || method === 'PUT' || method === 'PATCH';
}
