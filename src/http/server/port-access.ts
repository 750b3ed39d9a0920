/** Authorizes requests on a port for operators or the app: by a bearer token or, if none is configured, by the loopback address. */
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { isEqualInConstantTime } from '../../core/bytes.ts';
import { isLoopbackIp, normalizeIp } from '../../core/ip-address.ts';
import type { Fault } from '../../core/problem.ts';
import type { Secret } from '../../core/secret.ts';

/** Why a request is not authorized; a closed set, used as a metric label. */
export type AccessDenial = 'not_loopback' | 'foreign_host' | 'no_token' | 'wrong_token';

/** The rule of one port. */
export class PortAccess {
  #token: BearerToken | undefined;

  /** `token`: checked with `findTokenProblem`; undefined if none is configured. */
  constructor(token: Secret | undefined) {
    this.#token = toToken(token);
  }

  /** Whether requests need a token. */
  get hasToken(): boolean {
    return this.#token !== undefined;
  }

  /** Replaces the token after a rotation. */
  replace(token: Secret | undefined): void {
    this.#token = toToken(token);
  }

  /** Returns undefined if the request is authorized. */
  authorize(request: IncomingMessage): AccessDenial | undefined {
    if (this.#token === undefined) return authorizeLocal(request);
    const { authorization } = request.headers;
    if (authorization === undefined) return 'no_token';
    return this.#token.isPresentedIn(authorization) ? undefined : 'wrong_token';
  }
}

function authorizeLocal(request: IncomingMessage): AccessDenial | undefined {
  if (!isFromLoopback(request)) return 'not_loopback';
  return namesThisMachine(request) ? undefined : 'foreign_host';
}

/**
 * Whether the connection comes from this machine: in Kubernetes, from the same pod. Both of its addresses must be loopback addresses: Istio's
 * proxy forwards what other pods send from 127.0.0.6 to the pod's own address.
 */
export function isFromLoopback({ socket }: Pick<IncomingMessage, 'socket'>): boolean {
  return isLoopbackIp(socket.remoteAddress ?? '') && isLoopbackIp(socket.localAddress ?? '');
}

const HOST = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]]+))(?::\d{1,5})?$/;

/**
 * Whether the Host is localhost or an IP address. DNS rebinding: a web page can make its own host name resolve to this machine and then read
 * the responses. It cannot do so with an address. Browsers mark no requests to addresses that are not loopback ones (Fetch Metadata §3), but
 * lead here, such as 0.0.0.0.
 */
export function namesThisMachine({ headersDistinct }: Pick<IncomingMessage, 'headersDistinct'>): boolean {
  const hosts = headersDistinct['host'] ?? [];
  return hosts.length === 1 && isHostOfThisMachine(hosts[0] as string);
}

function isHostOfThisMachine(text: string): boolean {
  const match = HOST.exec(text);
  const host = match?.[1] ?? match?.[2] ?? '';
  // Browsers resolve localhost themselves, so a name server cannot point it elsewhere (RFC 6761 §6.3).
  return host.toLowerCase() === 'localhost' || (isIP(host) !== 0 && !leadsHere(host));
}

/** Whether another address than a loopback address leads to this machine. */
function leadsHere(host: string): boolean {
  const ip = normalizeIp(host) ?? host;
  const isMapped = host.includes(':') && !ip.includes(':');
  return isMapped || ip === '0.0.0.0' || ip === '::';
}

/** The values of `Sec-Fetch-Site` in requests that no other origin caused (Fetch Metadata §2.4). */
const OWN_SITES: ReadonlySet<unknown> = new Set([undefined, 'none', 'same-origin']);

/**
 * Whether a page of another origin caused the request. A page can send POST requests without a body, or of type text/plain, to any port: it
 * cannot read the responses, but the requests have an effect. Browsers mark requests with `Sec-Fetch-Site`, and those that may change something
 * with `Origin` (Fetch §3.2), which pages cannot forge. Behind a TLS proxy that passes the Host on, the origin is https, and browsers always
 * send both.
 */
export function isFromOtherSite({ headers }: IncomingMessage): boolean {
  const { origin, host, 'sec-fetch-site': site } = headers;
  if (!OWN_SITES.has(site)) return true;
  if (origin === undefined || origin === `http://${host}`) return false;
  return site !== 'same-origin' || origin !== `https://${host}`;
}

// Bearer tokens (RFC 6750).

const MIN_TOKEN_BYTES = 16;
/** The characters that a client can send after `Bearer` (RFC 6750 §2.1). */
const TOKEN = /^[A-Za-z0-9._~+/-]+=*$/;
const CREDENTIALS = /^Bearer +([^ ]+)$/i;

/** Returns why a secret cannot be a token; undefined if it can. */
export function findTokenProblem(secret: Secret): Fault | undefined {
  const hint = 'create one with `openssl rand -hex 32`';
  if (secret.length < MIN_TOKEN_BYTES)
    return { problem: `the token has ${secret.length} bytes; it needs at least ${MIN_TOKEN_BYTES}`, hint };
  if (!TOKEN.test(secret.expose().toString('latin1')))
    return { problem: 'the token contains characters that a client cannot send (RFC 6750 §2.1)', hint };
  return undefined;
}

/** A token that requests have to present. */
class BearerToken {
  readonly #digest: Buffer;

  /** `secret`: checked with `findTokenProblem`. */
  constructor(secret: Secret) {
    this.#digest = sha256(secret.expose());
  }

  /** Whether an `Authorization` field presents this token. */
  isPresentedIn(authorization: string): boolean {
    const presented = CREDENTIALS.exec(authorization)?.[1] ?? '';
    // Digests have a fixed length, so the timing does not reveal the length of the token.
    return isEqualInConstantTime(sha256(Buffer.from(presented, 'latin1')), this.#digest);
  }
}

function sha256(bytes: Buffer): Buffer {
  return createHash('sha256').update(bytes).digest();
}

function toToken(token: Secret | undefined): BearerToken | undefined {
  return token === undefined ? undefined : new BearerToken(token);
}
