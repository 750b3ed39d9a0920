/** Who may see the journal and the keys, and forget ids: whoever has the token, or, where none is set, whoever is on this machine. */
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { BlockList, isIP } from 'node:net';
import { isEqualInConstantTime } from '../core/bytes.ts';
import type { Secret } from '../core/secret.ts';
import type { AdminDenialLabel } from '../telemetry/metrics/labels.ts';
import { type Answer, toPlain } from './answer.ts';

/** Why somebody may not. */
export interface Denial {
  readonly reason: AdminDenialLabel;
  readonly answer: Answer;
}

const SHORTEST_TOKEN = 16;
/** What a client can send behind `Bearer` (RFC 6750 §2.1). */
const TOKEN = /^[A-Za-z0-9._~+/-]+=*$/;
const CREDENTIALS = /^Bearer +([^ ]+)$/i;
const CHALLENGE = 'Bearer realm="sidegate-admin"';
const HOST = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]]+))(?::\d{1,5})?$/;

/** What keeps a secret from being a token; undefined where nothing does. */
export function findTokenProblem(secret: Secret): { readonly problem: string; readonly hint: string } | undefined {
  const hint = 'for example what `openssl rand -hex 32` prints';
  if (secret.length < SHORTEST_TOKEN)
    return { problem: `the token has ${secret.length} bytes; ${SHORTEST_TOKEN} are the least`, hint };
  if (!TOKEN.test(secret.expose().toString('latin1')))
    return { problem: 'the token has characters that no client can send (RFC 6750 §2.1)', hint };
  return undefined;
}

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet('127.0.0.0', 8, 'ipv4');
LOOPBACK.addAddress('::1', 'ipv6');

/** Whether the connection comes from this machine, which for a pod is the pod itself. */
function isFromLoopback({ remoteAddress = '' }: { readonly remoteAddress?: string | undefined }): boolean {
  return LOOPBACK.check(remoteAddress, isIP(remoteAddress) === 6 ? 'ipv6' : 'ipv4');
}

/** Judges a request for what nobody outside of the pod may ask, with a token or without. */
export function judgeLoopback({ socket }: IncomingMessage): Denial | undefined {
  if (isFromLoopback(socket)) return undefined;
  const line = 'only callers inside this pod may: make the preStop hook an exec that calls 127.0.0.1';
  return { reason: 'not_loopback', answer: toPlain(403, line) };
}

/** Judges requests for what is not open to everybody who reaches the port. */
export class AdminAccess {
  #digest: Buffer | undefined;

  /** `token`: one without a problem; undefined where the config asks for none. */
  constructor(token: Secret | undefined) {
    this.#digest = toDigest(token);
  }

  /** Takes over a rotated token. */
  replace(token: Secret): void {
    this.#digest = toDigest(token);
  }

  /** Undefined for whoever may. */
  judge(request: IncomingMessage): Denial | undefined {
    return this.#digest === undefined ? judgePlace(request) : judgeToken(request, this.#digest);
  }
}

function judgePlace({ socket, headersDistinct }: IncomingMessage): Denial | undefined {
  if (!isFromLoopback(socket)) {
    const line = 'only callers on this machine may: use kubectl exec or port-forward, or set admin.token';
    return { reason: 'not_loopback', answer: toPlain(403, line) };
  }
  const hosts = headersDistinct['host'] ?? [];
  // A page may have its own name lead to this machine (DNS rebinding), and then read what it likes; it cannot do so by address.
  if (hosts.length !== 1 || !isHostOfThisMachine(hosts[0] as string)) {
    const line = 'the Host must be localhost or an IP address, or any page that a browser here shows could ask: set admin.token';
    return { reason: 'foreign_host', answer: toPlain(403, line) };
  }
  return undefined;
}

function judgeToken({ headers }: IncomingMessage, expected: Buffer): Denial | undefined {
  const { authorization } = headers;
  if (authorization === undefined) {
    const answer = toPlain(401, 'send Authorization: Bearer and the token of admin.token', { 'WWW-Authenticate': CHALLENGE });
    return { reason: 'no_token', answer };
  }
  const given = CREDENTIALS.exec(authorization)?.[1] ?? '';
  // Digests have one length, so the time tells nothing of the token's.
  if (isEqualInConstantTime(sha256(Buffer.from(given, 'latin1')), expected)) return undefined;
  const challenge = { 'WWW-Authenticate': `${CHALLENGE}, error="invalid_token"` };
  return { reason: 'wrong_token', answer: toPlain(401, 'this is not the token of admin.token', challenge) };
}

function isHostOfThisMachine(text: string): boolean {
  const match = HOST.exec(text);
  const host = match?.[1] ?? match?.[2] ?? '';
  // Browsers resolve localhost by themselves, so no name server can make it lead elsewhere (RFC 6761 §6.3).
  return host.toLowerCase() === 'localhost' || isIP(host) !== 0;
}

function toDigest(token: Secret | undefined): Buffer | undefined {
  return token === undefined ? undefined : sha256(token.expose());
}

function sha256(bytes: Buffer): Buffer {
  return createHash('sha256').update(bytes).digest();
}
