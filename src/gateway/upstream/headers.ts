/**
 * Builds the request header for the app: removes everything that a client must not set, then adds sidegate's own fields. Also the response header
 * for the sender: the app's, without hop-by-hop fields and fields that could disable the sender.
 */
import type { Admitted } from '../../core/admitted.ts';
import {
  decideFieldAction,
  type FieldAction,
  type FieldSettings,
  HOP_BY_HOP,
  isMethodOverride,
} from '../../core/field-policy.ts';
import { findConnectionOptions, type HeaderFields, type RawHeaders, rememberByName, toFoldedName } from '../../core/headers.ts';
import type { Client } from '../../core/request.ts';
import { formatTraceparent } from '../../telemetry/tracing/trace-context.ts';
import type { RequestTrace } from '../../telemetry/tracing/tracer.ts';
import { addIdentity, type IdentityContext } from './identity.ts';

/** The settings of a route for the request header. */
export type HeaderContext = IdentityContext & FieldSettings;

/** Finds a field that would make an app run another method than the one that was checked. */
export function findMethodOverride({ names }: HeaderFields): string | undefined {
  return names.find((name) => isMethodOverride(toFoldedName(name)));
}

/** Builds the request header of a route. */
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

/**
 * Adds the trace context for the next hop (W3C Trace Context §3.2, §3.3), as raw pairs. The caller must have removed the client's own fields.
 */
export function addTrace(out: string[], trace: RequestTrace | undefined): void {
  if (trace === undefined) return;
  const { traceId, appParentId: parentId, flags, tracestate } = trace;
  out.push('traceparent', formatTraceparent({ traceId, parentId, flags }));
  if (tracestate !== undefined) out.push('tracestate', tracestate);
}

// The response header.

/** What to do with a field of the app. */
type ResponseFieldAction = 'pass' | 'drop' | 'length' | 'connection';

/** The response header for the sender. */
interface SenderHead {
  /** Raw pairs in the app's order. Do not change them: the next response may share them. */
  readonly fields: string[];
  /** Content-Length in bytes, if the app sends it; validated by the parser. */
  readonly contentLength: number | undefined;
}

/**
 * Fields by which a receiver asks its sender to stop: a bug or a header injection in the app must not silently end all
 * deliveries.
 */
const SENDER_CONTROL_FIELDS = new Set(['webhook-delivery', 'x-slack-no-retry']);

/**
 * Fields that are not allowed as trailers (RFC 9110 §6.5.1): framing, routing, authentication, control data, content description.
 */
const FORBIDDEN_TRAILERS = new Set([
  'content-length',
  'content-type',
  'content-encoding',
  'content-range',
  'host',
  'authorization',
  'www-authenticate',
  'set-cookie',
  'cache-control',
  'location',
  'retry-after',
  'age',
  'date',
  'expires',
  'vary',
  'warning',
]);

const NO_CONTENT = 204;
const FIRST_FINAL = 200;
/** Decides which fields are passed on. */
export class ResponseHeaderPolicy {
  readonly #allowed: ReadonlySet<string>;
  readonly #findAction: (name: string) => ResponseFieldAction;
  /** The latest result, as the same head follows the same head (ResponseHeads). */
  #latest: { readonly status: number; readonly headers: RawHeaders; readonly head: SenderHead } | undefined;

  /** `allowed`: lower-case names that are passed on although a sender may disable itself because of them. */
  constructor(allowed: ReadonlySet<string>) {
    this.#allowed = allowed;
    this.#findAction = rememberByName((name) => this.#decide(name.toLowerCase()));
  }

  /** Returns the header for the sender. The parser has ensured that no field can split the response. */
  toSenderHead(status: number, headers: RawHeaders): SenderHead {
    const latest = this.#latest;
    if (latest !== undefined && latest.headers === headers && latest.status === status) return latest.head;
    const head = this.#buildSenderHead(status, headers);
    this.#latest = { status, headers, head };
    return head;
  }

  #buildSenderHead(status: number, headers: RawHeaders): SenderHead {
    const fields: string[] = [];
    let contentLength: number | undefined;
    let named: ReadonlySet<string> | undefined;
    for (let i = 0; i < headers.length; i += 2) {
      const name = headers[i] as string;
      const value = headers[i + 1] as string;
      const action = this.#findAction(name);
      if (action === 'drop') continue;
      if (action === 'connection') {
        named = addOptions(named, value);
        continue;
      }
      if (action === 'length') {
        // RFC 9110 §8.6: not with 204 or 1xx. With a 101, another proxy might read the first frames as a response body.
        if (status === NO_CONTENT || status < FIRST_FINAL) continue;
        contentLength = Number(value);
      }
      fields.push(name, value);
    }
    return { fields: named === undefined ? fields : withoutNamed(fields, named), contentLength };
  }

  /** Returns the trailers that may be passed on. */
  toSenderTrailers(trailers: RawHeaders): [string, string][] {
    const passed: [string, string][] = [];
    for (let i = 0; i < trailers.length; i += 2) {
      const name = trailers[i] as string;
      if (this.#findAction(name) === 'pass' && !FORBIDDEN_TRAILERS.has(name.toLowerCase()))
        passed.push([name, trailers[i + 1] as string]);
    }
    return passed;
  }

  #decide(name: string): ResponseFieldAction {
    if (name === 'connection') return 'connection';
    if (name === 'content-length') return 'length';
    if (HOP_BY_HOP.has(name)) return 'drop';
    const folded = toFoldedName(name);
    return SENDER_CONTROL_FIELDS.has(folded) && !this.#allowed.has(folded) ? 'drop' : 'pass';
  }
}

/** Adds the options of a Connection line, except the two that most apps send and that name no field. */
function addOptions(named: ReadonlySet<string> | undefined, value: string): ReadonlySet<string> | undefined {
  if (value === 'keep-alive' || value === 'close') return named;
  const options = value.split(',').map((option) => option.trim().toLowerCase());
  return new Set([...(named ?? []), ...options]);
}

function withoutNamed(fields: readonly string[], named: ReadonlySet<string>): string[] {
  const kept: string[] = [];
  for (let i = 0; i < fields.length; i += 2) {
    const name = (fields[i] as string).toLowerCase();
    // Content-Length frames the response, so naming it in Connection must not remove it.
    if (name === 'content-length' || !named.has(name)) kept.push(fields[i] as string, fields[i + 1] as string);
  }
  return kept;
}
