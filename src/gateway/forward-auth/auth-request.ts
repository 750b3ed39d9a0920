/**
 * Handles auth requests of the forward-auth endpoint: accepts trusted callers only, and reads the original request from their headers. Proxies
 * forward their clients' own fields beside the ones that they set, so contradicting fields are rejected, and so are missing ones: a client could
 * supply them.
 */

import { findProxyClaim, isOwnField, isProtectedField } from '../../core/field-policy.ts';
import { HeaderFields, parseTarget, type RequestTarget, toFoldedName } from '../../core/head.ts';
import { IpRanges } from '../../core/ip-address.ts';
import { Refusal, refuse } from '../../core/refusal.ts';
import type { Client, ClientResponse, ParsedHead, RequestInfo } from '../../core/request.ts';
import type { RequestHandler } from '../../http/server/server.ts';
import { isAuthority } from '../../http/server/strict-server.ts';
import { isRelayedUpgrade } from '../../http/server/upgrade.ts';

interface AuthRequestRules {
  readonly trustedCallers: readonly string[];
  /** Bytes. */
  readonly maxTarget: number;
}

/** Handles original requests. */
interface OriginalRequestHandler extends RequestHandler {
  /** `authRequest`: what the caller sent. */
  reject(info: RequestInfo, response: ClientResponse, refusal: Refusal, authRequest?: ParsedHead): void;
}

/** Passes the original request on to `pipeline`. The clients of auth requests are those of `createCallerResolver`. */
export function createAuthRequestHandler(rules: AuthRequestRules, pipeline: OriginalRequestHandler): RequestHandler {
  const callers = new IpRanges(rules.trustedCallers);

  const toOriginal = (authRequest: ParsedHead): ParsedHead | Refusal => {
    const { headers } = authRequest;
    const read = readOriginalRequest(headers);
    if (read instanceof Refusal) return read;
    const { method, target, host, scheme } = read;
    if (target.raw.length > rules.maxTarget) return refuse('target_too_long', 'target_too_long', `${target.raw.length} bytes`);
    const { address, peer, viaTrustedProxy } = authRequest.client;
    // Otherwise all clients would share one address, or a client could choose its own.
    if (!viaTrustedProxy) return refuse('original_request_unclear', 'original_request', 'no address in x-forwarded-for');
    // Without the certificate of the caller.
    const client: Client = { address, peer, viaTrustedProxy, viaIdentityProxy: false, scheme };
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

/** The original request, as the proxy describes it. */
interface OriginalRequest {
  readonly method: string;
  readonly target: RequestTarget;
  /** From its Host field. */
  readonly host: string;
  readonly scheme: 'http' | 'https';
}

/** One part of the request, and every field that may contain it. */
interface RequestPart<Value extends string = string> {
  readonly name: string;
  readonly fields: readonly string[];
  /** The part of X-Original-URL that contains it. */
  readonly inUrl?: keyof UrlParts;
  /** Normalizes a value for comparison and use; undefined if it is invalid. */
  readonly read: (value: string) => Value | undefined;
  /** Default: only equal values. */
  readonly isSame?: (one: Value, other: Value) => boolean;
}

interface UrlParts {
  readonly scheme: string;
  readonly host: string;
  readonly uri: string;
}

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}$/;
/** As ingress-nginx writes it: `$scheme://$http_host$request_uri`. Its host is the Host field, also where the request line names another. */
const ABSOLUTE = /^([a-z]{2,5}):\/\/([^/?#]*)(\/.*)$/i;
/** Traefik sends the requested protocol as the scheme of a WebSocket handshake. */
const SCHEMES: ReadonlyMap<string, OriginalRequest['scheme']> = new Map([
  ['http', 'http'],
  ['https', 'https'],
  ['ws', 'http'],
  ['wss', 'https'],
]);

const METHOD: RequestPart = {
  name: 'method',
  fields: ['x-original-method', 'x-forwarded-method'],
  read: (value) => (TOKEN.test(value) ? value : undefined),
};
const URI: RequestPart = { name: 'URI', fields: ['x-original-uri', 'x-forwarded-uri'], inUrl: 'uri', read: (value) => value };
const HOST: RequestPart = {
  name: 'host',
  fields: ['x-original-host', 'x-forwarded-host'],
  inUrl: 'host',
  read: (value) => (isAuthority(value) ? value.toLowerCase() : undefined),
  isSame: isSameHost,
};
const SCHEME: RequestPart<OriginalRequest['scheme']> = {
  name: 'scheme',
  fields: ['x-original-proto', 'x-forwarded-proto'],
  inUrl: 'scheme',
  read: (value) => SCHEMES.get(value.toLowerCase()),
};
const URL_FIELD = 'x-original-url';
/** The proxy sets it on the way to the app, but not always in the auth request; other spellings of it stay. */
const REPLACED_FIELD = 'sidegate-user';
/** Upgrades to HTTP/2 should have it. Some proxies relay upgrades, and pass Upgrade on to no auth request. */
const UPGRADE_SETTINGS = 'http2-settings';
/** nginx chooses the app by the host of the request line, if it has one (RFC 9112 §3.2.2), and writes the Host field into the URL. */
const NO_CHOSEN_HOST = `no x-forwarded-host beside ${URL_FIELD}: set it to the host by which the proxy chooses the app ($host of nginx)`;
const READ_FIELDS = new Set([URL_FIELD, ...[METHOD, URI, HOST, SCHEME].flatMap(({ fields }) => fields)]);

/** The request that the fields describe, or why they are not clear. */
export function readOriginalRequest(headers: HeaderFields): OriginalRequest | Refusal {
  const url = readUrl(headers);
  if (url !== undefined && url instanceof Refusal) return url;
  const method = readPart(METHOD, headers, url);
  if (typeof method !== 'string') return method;
  const uri = readPart(URI, headers, url);
  if (typeof uri !== 'string') return uri;
  if (url !== undefined && HOST.fields.every((field) => headers.count(field) === 0)) return unclear(NO_CHOSEN_HOST);
  const host = readPart(HOST, headers, url);
  if (typeof host !== 'string') return host;
  const scheme = readPart(SCHEME, headers, url);
  if (typeof scheme !== 'string') return scheme;
  const contradiction = findContradiction(headers, host, scheme);
  if (contradiction !== undefined) return unclear(contradiction);
  const target = parseTarget(uri);
  // The client's fault, as on the data port.
  if ('problem' in target) return refuse('malformed_request', 'path_ambiguous', { detail: target.problem, stage: 'route' });
  return { method, target, host, scheme };
}

/**
 * Finds a field by which an app may serve another path than the proxy describes, or further requests that nobody checks, or that only sidegate may
 * send. The data port removes such fields; here the proxy passes them on.
 */
export function findForbiddenField(headers: HeaderFields): string | undefined {
  if (headers.all('upgrade').some((protocols) => !isRelayedUpgrade('GET', protocols))) return 'upgrade';
  return headers.names.find((name) => {
    const folded = toFoldedName(name);
    // Proxies replace a field by its name only, and apps may take the other spelling for it.
    if (folded !== name && isProtectedField(folded)) return true;
    const isForbidden = findProxyClaim(folded) === 'override' || isOwnField(folded) || name === UPGRADE_SETTINGS;
    return isForbidden && !READ_FIELDS.has(name) && name !== REPLACED_FIELD;
  });
}

function readUrl(headers: HeaderFields): UrlParts | Refusal | undefined {
  const count = headers.count(URL_FIELD);
  if (count === 0) return undefined;
  if (count > 1) return unclear(`repeated ${URL_FIELD}`);
  const [, scheme, host, uri] = ABSOLUTE.exec(headers.get(URL_FIELD) as string) ?? [];
  if (scheme === undefined || host === undefined || uri === undefined) return unclear(`${URL_FIELD} is not absolute`);
  return { scheme, host, uri };
}

function readPart<Value extends string>(
  part: RequestPart<Value>,
  headers: HeaderFields,
  url: UrlParts | undefined,
): Value | Refusal {
  const values: (readonly [field: string, value: string])[] = [];
  for (const field of part.fields) {
    if (headers.count(field) > 1) return unclear(`repeated ${field}`);
    const value = headers.get(field);
    if (value !== undefined) values.push([field, value]);
  }
  if (url !== undefined && part.inUrl !== undefined) values.push([URL_FIELD, url[part.inUrl]]);
  let found: Value | undefined;
  for (const [field, value] of values) {
    const read = part.read(value);
    if (read === undefined) return unclear(`${field} is not a valid ${part.name}`);
    const isSame = found === undefined || (part.isSame ?? Object.is)(found, read);
    if (!isSame) return unclear(`${values.map(([each]) => each).join(' and ')} differ`);
    found ??= read;
  }
  return found ?? unclear(`no ${part.name}: none of ${part.fields.join(', ')} is present`);
}

/**
 * Finds why an app that reads Forwarded may serve another request. Addresses are not compared: proxies of the client's own network write theirs, and
 * not each proxy that adds itself to X-Forwarded-For adds itself here.
 */
function findContradiction(headers: HeaderFields, host: string, scheme: OriginalRequest['scheme']): string | undefined {
  const forwarded = readForwarded(headers.all('forwarded'));
  if (forwarded === undefined) return 'forwarded is ambiguous';
  if (forwarded.hosts.some((each) => !isSameHost(HOST.read(each) ?? '', host))) return 'forwarded names another host';
  return forwarded.schemes.some((each) => SCHEME.read(each) !== scheme) ? 'forwarded names another scheme' : undefined;
}

/** `$host` of nginx has no port. */
function isSameHost(one: string, other: string): boolean {
  return one === other || withoutPort(one) === other || one === withoutPort(other);
}

function withoutPort(host: string): string {
  return host.replace(/:\d+$/, '');
}

function unclear(detail: string): Refusal {
  return refuse('original_request_unclear', 'original_request', detail);
}

/** Every host and every scheme that an app may read from Forwarded (RFC 7239). */
interface Forwarded {
  readonly hosts: readonly string[];
  readonly schemes: readonly string[];
}

/**
 * A parameter. Quoted values have the same characters as others: some apps split at separators within quotation marks, or keep a backslash. Many
 * proxies write a port or brackets without quotation marks.
 */
const PARAMETER =
  /^[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=([!#$%&'*+.^_`|~0-9A-Za-z:[\]-]*|"[!#$%&'*+.^_`|~0-9A-Za-z:[\]-]*")[ \t]*$/;
const BLANK = /^[ \t]*$/;

/** Reads all lines as one list; undefined if two apps could split it differently. */
export function readForwarded(lines: readonly string[]): Forwarded | undefined {
  const hosts: string[] = [];
  const schemes: string[] = [];
  for (const text of lines.flatMap((line) => line.split(/[,;]/))) {
    if (BLANK.test(text)) continue;
    const [, spelled, quoted] = PARAMETER.exec(text) ?? [];
    if (spelled === undefined || quoted === undefined) return undefined;
    const value = quoted.replaceAll('"', '');
    const name = spelled.toLowerCase();
    // Spring and Reactor Netty search for `host=` anywhere, so they take `xhost=` for it.
    if (name.endsWith('host')) hosts.push(value);
    else if (name.endsWith('proto')) schemes.push(value);
  }
  return { hosts, schemes };
}
