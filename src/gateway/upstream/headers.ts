/**
 * Builds the request header for the app: removes everything that a client must not set, then adds sidegate's own fields. Also the response header
 * for the sender: the app's, without hop-by-hop fields and fields that could disable the sender.
 */
import {
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  hash,
  type JsonWebKey,
  type KeyObject,
  sign as signBytes,
} from 'node:crypto';
import type { Admitted } from '../../core/admitted.ts';
import { parseBase64, parseHex } from '../../core/bytes.ts';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import {
  decideFieldAction,
  type FieldAction,
  type FieldSettings,
  HOP_BY_HOP,
  isMethodOverride,
} from '../../core/field-policy.ts';
import { findConnectionOptions, type HeaderFields, type RawHeaders, rememberByName, toFoldedName } from '../../core/head.ts';
import { createHmacFunction } from '../../core/hmac.ts';
import type { Fault } from '../../core/problem.ts';
import type { Client } from '../../core/request.ts';
import type { Secret } from '../../core/secret.ts';
import { formatTraceparent } from '../../telemetry/tracing/trace-context.ts';
import type { RequestTrace } from '../../telemetry/tracing/tracer.ts';

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
    if (
      this.#context.certificate === 'forward' &&
      client.certificate !== undefined &&
      admitted.sender.certificateName !== undefined
    )
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

// The identity of the client and the route: its fields for the app, and for a proxy that sends auth requests, and its signed token.

/** The data about the client that a route reports. */
export interface IdentityContext extends Pick<FieldSettings, 'user'> {
  /** The name of the route. */
  readonly route: string;
  /** Signs the identity; default: it is not signed. */
  readonly signer?: IdentitySigner;
}

const USER_FIELDS: readonly string[] = ['Sidegate-User', 'X-Forwarded-User'];

/** Adds the field lines as raw pairs. `more`: additional field names for the user; all of them are empty without a user, because a proxy copies them. */
export function addIdentity(out: string[], admitted: Admitted, context: IdentityContext, more: readonly string[] = []): void {
  const { head, sender, claimed, observed } = admitted;
  const user = context.user === 'forward' ? sender.user : undefined;
  out.push('Sidegate-Route', context.route);
  if (claimed !== undefined) out.push('Sidegate-Key', toFieldText(claimed.event.keyName));
  if (user !== undefined || more.length > 0) {
    const text = user === undefined ? '' : toFieldText(user.name);
    for (const name of [...USER_FIELDS, ...more]) out.push(name, text);
  }
  out.push('Sidegate-Request-Id', head.requestId);
  // A request that passed unverified in observe mode gets no token.
  if (observed !== undefined) {
    out.push('Sidegate-Observed', observed.code);
    return;
  }
  const token = context.signer?.sign(admitted);
  if (token !== undefined) out.push('Sidegate-Identity', token);
}

/**
 * Everything except visible ASCII, and `%` and the delimiters of lists, parameters and quoted strings (RFC 9110 §5.6): one name
 * stays one name.
 */
const NOT_PLAIN = /[^\x21-\x7e]|[",;%\\]/gu;

/** Formats the name of a user, a certificate or a key as a header value; special characters are percent-encoded UTF-8, so that it can be decoded. */
function toFieldText(name: string): string {
  return name.replace(NOT_PLAIN, (character) =>
    [...Buffer.from(character)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''),
  );
}

// The token (JWT, RFC 7519): signs who the client is and what it requested, so that an app can verify that a request passed sidegate.

/** The algorithms for signing tokens. */
type IdentityAlgorithm = 'hmac-sha256' | 'ed25519';

/** A public key in the form in which it is published. */
type PublishedKey = JsonWebKey & { readonly kid: string };

const toHmac = createHmacFunction('sha256');

/** The signing key; a private field, so that no log or serialization shows it. */
export class IdentityKey {
  readonly name: string;
  readonly algorithm: IdentityAlgorithm;
  /** The first part of a token, the same for all tokens. */
  readonly head: string;
  readonly #key: KeyObject;

  constructor(name: string, algorithm: IdentityAlgorithm, key: KeyObject) {
    this.name = name;
    this.algorithm = algorithm;
    this.#key = key;
    const alg = algorithm === 'ed25519' ? 'EdDSA' : 'HS256';
    this.head = toPart({ alg, typ: 'JWT', kid: this.toPublicKey()?.kid ?? name });
  }

  /** The last part of a token. */
  sign(text: string): string {
    if (this.algorithm === 'ed25519') return signBytes(null, Buffer.from(text), this.#key).toString('base64url');
    return toHmac(this.#key, [text]).toString('base64url');
  }

  /** The public key for verifiers (RFC 8037 §2); undefined if the same secret signs and verifies. */
  toPublicKey(): PublishedKey | undefined {
    if (this.algorithm !== 'ed25519') return undefined;
    const { crv, kty, x } = createPublicKey(this.#key).export({ format: 'jwk' });
    // The thumbprint (RFC 7638 §3), so that a new key under the same name has another ID.
    const kid = hash('sha256', JSON.stringify({ crv, kty, x }), 'base64url');
    return { crv, kty, x, kid, alg: 'EdDSA', use: 'sig' } as PublishedKey;
  }
}

/** The configuration of a key. */
interface IdentityKeySource {
  readonly name: string;
  readonly algorithm: IdentityAlgorithm;
  readonly encoding: 'utf8' | 'base64' | 'hex' | undefined;
}

/** RFC 7518 §3.2. */
const MIN_SECRET_BYTES = 32;
const SECOND_MS: Milliseconds = 1_000;

/** Parses the key from the content of its file or variable. */
export function parseIdentityKey({ name, algorithm, encoding }: IdentityKeySource, secret: Secret): IdentityKey | Fault {
  if (algorithm === 'ed25519') return parsePrivateKey(name, secret);
  const bytes = toBytes(secret.expose(), encoding);
  if (bytes === undefined)
    return { problem: `the secret is not ${encoding}`, hint: 'set encoding to the encoding of the secret' };
  if (bytes.length < MIN_SECRET_BYTES)
    return {
      problem: `the secret has ${bytes.length} bytes`,
      hint: `HMAC-SHA256 needs ${MIN_SECRET_BYTES} or more (openssl rand -base64 32)`,
    };
  return new IdentityKey(name, algorithm, createSecretKey(bytes));
}

function parsePrivateKey(name: string, secret: Secret): IdentityKey | Fault {
  const hint = 'a private key in PEM (openssl genpkey -algorithm ed25519)';
  try {
    const key = createPrivateKey(secret.expose());
    if (key.asymmetricKeyType === 'ed25519') return new IdentityKey(name, 'ed25519', key);
    return { problem: `the key is of type ${key.asymmetricKeyType}, not ed25519`, hint };
  } catch {
    return { problem: 'this is not a private key', hint };
  }
}

function toBytes(bytes: Buffer, encoding: IdentityKeySource['encoding']): Buffer | undefined {
  if (encoding === 'base64') return parseBase64(bytes.toString('latin1'));
  if (encoding === 'hex') return parseHex(bytes.toString('latin1'));
  return bytes;
}

interface Retired {
  readonly key: PublishedKey;
  readonly until: EpochMilliseconds;
}

/** The settings that all tokens share. */
interface TokenSettings {
  /** The app that the tokens are for (RFC 7519 §4.1.3): another app that trusts the same key must reject them. */
  readonly audience: string;
  readonly ttl: Milliseconds;
}

/** Signs with the current key, if there is one. */
export class IdentitySigner {
  readonly #clock: Clock;
  #key: IdentityKey | undefined;
  #settings: TokenSettings | undefined;
  /** Earlier keys, whose tokens may still be in use. */
  #retired: readonly Retired[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Replaces the key, starting with the next request. Undefined: requests are not signed. */
  replace(key: IdentityKey | undefined, settings: TokenSettings | undefined): void {
    const now = this.#clock.now();
    const before = this.#key?.toPublicKey();
    const live = this.#retired.filter(({ until }) => until > now);
    this.#retired =
      before === undefined || this.#key === key ? live : [...live, { key: before, until: now + (this.#settings?.ttl ?? 0) }];
    this.#key = key;
    this.#settings = settings;
  }

  /** Returns the token; undefined without a key. */
  sign({ head, route, sender, claimed }: Admitted): string | undefined {
    const key = this.#key;
    const settings = this.#settings;
    if (key === undefined || settings === undefined) return undefined;
    const issuedAt = Math.floor(this.#clock.now() / SECOND_MS);
    const { requestId, method, target, headers } = head;
    const { user, certificateName } = sender;
    const text = `${key.head}.${toPart({
      iss: 'sidegate',
      aud: settings.audience,
      sub: user?.name,
      route,
      method,
      host: headers.get('host'),
      path: target.raw,
      certificate: certificateName,
      webhook: claimed === undefined ? undefined : { id: claimed.event.id, key: claimed.event.keyName },
      iat: issuedAt,
      exp: issuedAt + Math.ceil(settings.ttl / SECOND_MS),
      jti: requestId,
    })}`;
    return `${text}.${key.sign(text)}`;
  }

  /** Returns a JWK Set (RFC 7517 §5): the current public key, and earlier ones whose tokens are still valid. */
  toKeySet(): { readonly keys: readonly JsonWebKey[] } {
    const now = this.#clock.now();
    const current = this.#key?.toPublicKey();
    const retired = this.#retired.filter(({ until, key }) => until > now && key.kid !== current?.kid);
    return { keys: [...(current === undefined ? [] : [current]), ...retired.map(({ key }) => key)] };
  }
}

function toPart(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}
