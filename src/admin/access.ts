/** Authorizes requests for the journal, the keys and `forget`: by the admin token or, if none is configured, by the loopback address. */
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { isEqualInConstantTime } from '../core/bytes.ts';
import { isLoopbackIp } from '../core/ip-address.ts';
import type { Secret } from '../core/secret.ts';
import type { AdminDenialLabel } from './admin-metrics.ts';
import { type AdminResponse, toPlain } from './response.ts';

/** Why a request is rejected, and the response that says so. */
export interface Denial {
  readonly reason: AdminDenialLabel;
  readonly response: AdminResponse;
}

const MIN_TOKEN_BYTES = 16;
/** The characters that a client can send after `Bearer` (RFC 6750 §2.1). */
const TOKEN = /^[A-Za-z0-9._~+/-]+=*$/;
const CREDENTIALS = /^Bearer +([^ ]+)$/i;
const CHALLENGE = 'Bearer realm="sidegate-admin"';
const HOST = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]]+))(?::\d{1,5})?$/;

/** Returns why a secret cannot be the admin token; undefined if it can. */
export function findTokenProblem(secret: Secret): { readonly problem: string; readonly hint: string } | undefined {
  const hint = 'create one with `openssl rand -hex 32`';
  if (secret.length < MIN_TOKEN_BYTES)
    return { problem: `the token has ${secret.length} bytes; it needs at least ${MIN_TOKEN_BYTES}`, hint };
  if (!TOKEN.test(secret.expose().toString('latin1')))
    return { problem: 'the token contains characters that a client cannot send (RFC 6750 §2.1)', hint };
  return undefined;
}

/** Whether the connection comes from this machine: in Kubernetes, from the same pod. */
function isFromLoopback({ remoteAddress = '' }: { readonly remoteAddress?: string | undefined }): boolean {
  return isLoopbackIp(remoteAddress);
}

/** Authorizes a request that only processes in the same pod may send, with or without a token. */
export function authorizeLoopback({ socket }: IncomingMessage): Denial | undefined {
  if (isFromLoopback(socket)) return undefined;
  const line = 'this endpoint accepts only requests from inside the pod: use an exec preStop hook that calls 127.0.0.1';
  return { reason: 'not_loopback', response: toPlain(403, line) };
}

/** Authorizes requests for the endpoints that are not public. */
export class AdminAccess {
  #digest: Buffer | undefined;

  /** `token`: checked with `findTokenProblem`; undefined if none is configured. */
  constructor(token: Secret | undefined) {
    this.#digest = toDigest(token);
  }

  /** Replaces the token after a rotation. */
  replace(token: Secret): void {
    this.#digest = toDigest(token);
  }

  /** Returns undefined if the request is authorized. */
  authorize(request: IncomingMessage): Denial | undefined {
    return this.#digest === undefined ? authorizeLocal(request) : authorizeToken(request, this.#digest);
  }
}

function authorizeLocal({ socket, headersDistinct }: IncomingMessage): Denial | undefined {
  if (!isFromLoopback(socket)) {
    const line = 'only requests from this machine are accepted: use kubectl exec or port-forward, or set admin.token';
    return { reason: 'not_loopback', response: toPlain(403, line) };
  }
  const hosts = headersDistinct['host'] ?? [];
  // DNS rebinding: a web page can make its own host name resolve to this machine and then read the responses. It cannot do so with an address.
  if (hosts.length !== 1 || !isHostOfThisMachine(hosts[0] as string)) {
    const line =
      'the Host must be localhost or an IP address, as a web page could otherwise send this request (DNS rebinding); or set admin.token';
    return { reason: 'foreign_host', response: toPlain(403, line) };
  }
  return undefined;
}

function authorizeToken({ headers }: IncomingMessage, expected: Buffer): Denial | undefined {
  const { authorization } = headers;
  if (authorization === undefined) {
    const response = toPlain(401, 'send the token of admin.token as Authorization: Bearer TOKEN', {
      'WWW-Authenticate': CHALLENGE,
    });
    return { reason: 'no_token', response };
  }
  const given = CREDENTIALS.exec(authorization)?.[1] ?? '';
  // Digests have a fixed length, so the timing does not reveal the length of the token.
  if (isEqualInConstantTime(sha256(Buffer.from(given, 'latin1')), expected)) return undefined;
  const challenge = { 'WWW-Authenticate': `${CHALLENGE}, error="invalid_token"` };
  return { reason: 'wrong_token', response: toPlain(401, 'this is not the token of admin.token', challenge) };
}

function isHostOfThisMachine(text: string): boolean {
  const match = HOST.exec(text);
  const host = match?.[1] ?? match?.[2] ?? '';
  // Browsers resolve localhost themselves, so a name server cannot point it elsewhere (RFC 6761 §6.3).
  return host.toLowerCase() === 'localhost' || isIP(host) !== 0;
}

function toDigest(token: Secret | undefined): Buffer | undefined {
  return token === undefined ? undefined : sha256(token.expose());
}

function sha256(bytes: Buffer): Buffer {
  return createHash('sha256').update(bytes).digest();
}
