/** Writes the header the app gets: first everything a client must not say is removed, then the gate's own fields are added. */
import type { Admitted } from '../core/admitted.ts';
import { type HeaderFields, toFoldedName } from '../core/headers.ts';

/** What becomes of a client's field. */
type Fate = 'pass' | 'drop' | 'drop-unless-trusted';

/** Of this hop only (RFC 9110 §7.6.1), or rewritten by us. */
const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authorization',
  'proxy-authenticate',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'expect',
  'content-length',
  'http2-settings',
]);

/** By which proxies tell who the client was; beside all of `x-forwarded-*`. */
const CLIENT_CLAIMS = new Set([
  'forwarded',
  'x-forwarded',
  'x-forwarded-for',
  'x-real-ip',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-original-forwarded-for',
  'x-original-host',
  'x-original-uri',
  'x-original-url',
  'x-original-method',
  'x-rewrite-url',
  'x-envoy-external-address',
  'x-envoy-original-path',
  'x-remote-user',
  'remote-user',
  'true-client-ip',
  'cf-connecting-ip',
  'cf-connecting-ipv6',
  'fastly-client-ip',
  'x-azure-clientip',
  'x-azure-socketip',
  'x-appengine-user-ip',
]);
const CLAIM_PREFIX = 'x-forwarded-';
const OWN_PREFIX = 'sidegate-';
/** Ours, written anew for every request, whoever stands before us. */
const REWRITTEN = new Set(['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host']);

/** Fields the gate or the app relies on: whoever names one in `Connection` wants it gone behind the check (CVE-2022-31813 and its kin). */
const PROTECTED_FROM_CONNECTION = new Set([
  'host',
  'content-length',
  'content-type',
  'content-encoding',
  'transfer-encoding',
  'authorization',
  'cookie',
  'via',
]);
const PROTECTED_PREFIXES = ['webhook-', 'svix-', OWN_PREFIX, CLAIM_PREFIX];
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** Names seen before with their fate: bounded, as names are the client's choice. */
const MOST_FATES = 1_000;

/** What the header tells of its route. */
export interface HeaderContext {
  /** The route's name. */
  readonly route: string;
}

/** A `Connection` option that must not be there, or undefined (a malformed one counts, too). */
export function findForbiddenConnectionToken(headers: HeaderFields): string | undefined {
  for (const line of headers.all('connection')) {
    for (const part of line.split(',')) {
      const token = part.trim();
      if (token === '') continue;
      if (!TOKEN.test(token)) return 'something that is no token';
      const folded = toFoldedName(token);
      if (isProtected(folded)) return folded;
    }
  }
  return undefined;
}

function isProtected(folded: string): boolean {
  return (
    PROTECTED_FROM_CONNECTION.has(folded) ||
    CLIENT_CLAIMS.has(folded) ||
    PROTECTED_PREFIXES.some((prefix) => folded.startsWith(prefix))
  );
}

/** Decides about names, remembering what it decided. */
export class HeaderPolicy {
  readonly #fates = new Map<string, Fate>();

  /** The field lines for the app, raw pairs in the order they are sent. */
  toUpstreamHeaders(admitted: Admitted, context: HeaderContext): string[] {
    const { exchange, body } = admitted;
    const { client, headers, facts } = exchange;
    const named = toNamedByConnection(headers);
    const out: string[] = [];
    const { raw, names } = headers;
    for (let i = 0; i < names.length; i++) {
      const name = names[i] as string;
      const fate = this.#fate(name);
      if (fate === 'drop' || (fate === 'drop-unless-trusted' && !client.viaTrustedProxy)) continue;
      if (named?.has(name) === true) continue;
      out.push(raw[i * 2] as string, raw[i * 2 + 1] as string);
    }
    addForwarded(out, admitted);
    out.push('Via', `${toViaChain(headers)}1.1 sidegate`, 'Sidegate-Route', context.route);
    if (facts.delivery !== undefined) out.push('Sidegate-Key', facts.delivery.keyName);
    out.push('Sidegate-Request-Id', exchange.requestId);
    // Always framed by us, whatever the method: what node:http would send unframed is the next request to the app.
    if (body.length > 0 || expectsContent(exchange.method)) out.push('Content-Length', String(body.length));
    out.push('Connection', 'keep-alive');
    return out;
  }

  #fate(name: string): Fate {
    const known = this.#fates.get(name);
    if (known !== undefined) return known;
    const fate = decideFate(name);
    if (this.#fates.size < MOST_FATES) this.#fates.set(name, fate);
    return fate;
  }
}

function decideFate(name: string): Fate {
  const folded = toFoldedName(name);
  const isTwin = folded !== name;
  if (HOP_BY_HOP.has(folded) || folded.startsWith(OWN_PREFIX) || folded === 'via') return 'drop';
  // Frameworks that read `X_Forwarded_For` as the real thing make a twin of it; nobody honest writes one.
  if (isTwin && (isProtected(folded) || PROTECTED_PREFIXES.some((prefix) => folded.startsWith(prefix)))) return 'drop';
  if (REWRITTEN.has(folded)) return 'drop';
  if (CLIENT_CLAIMS.has(folded) || folded.startsWith(CLAIM_PREFIX)) return 'drop-unless-trusted';
  return 'pass';
}

/** Most requests have no options beside `keep-alive` and `close`, and cost nothing here. */
function toNamedByConnection(headers: HeaderFields): ReadonlySet<string> | undefined {
  if (headers.get('connection') === undefined) return undefined;
  const tokens = headers.all('connection').flatMap((line) => line.toLowerCase().split(','));
  return new Set(tokens.map((token) => token.trim()));
}

function addForwarded(out: string[], admitted: Admitted): void {
  const { client, headers } = admitted.exchange;
  const chain = client.viaTrustedProxy ? headers.all('x-forwarded-for') : [];
  out.push('X-Forwarded-For', [...chain, client.peer].join(', '), 'X-Forwarded-Proto', client.scheme);
  const host = (client.viaTrustedProxy ? headers.all('x-forwarded-host').at(-1) : undefined) ?? headers.get('host');
  if (host !== undefined) out.push('X-Forwarded-Host', host);
}

/** RFC 9110 §7.6.3: one list, each hop adds itself at the end. */
function toViaChain(headers: HeaderFields): string {
  if (headers.get('via') === undefined) return '';
  return `${headers.all('via').join(', ')}, `;
}

/** Methods whose requests carry content by definition: 0 is said, not left open (RFC 9110 §8.6). */
function expectsContent(method: string): boolean {
  return method === 'POST' || method === 'PUT' || method === 'PATCH';
}
