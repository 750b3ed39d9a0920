/** Authorizes requests for the journal, the keys and `forget`: by the admin token or, if none is configured, by the loopback address. */
import type { IncomingMessage } from 'node:http';
import type { Secret } from '../core/secret.ts';
import { type AccessDenial, isFromLoopback, isFromOtherSite, namesThisMachine, PortAccess } from '../http/server/port-access.ts';
import type { AdminDenialLabel } from './admin-metrics.ts';
import { type AdminResponse, toPlain } from './response.ts';

/** Why a request is rejected, and the response that says so. */
export interface Denial {
  readonly reason: AdminDenialLabel;
  readonly response: AdminResponse;
}

const CHALLENGE = 'Bearer realm="sidegate-admin"';
/** What to do instead. */
export const DENIAL_TEXTS: Readonly<Record<AccessDenial | 'cross_origin', string>> = {
  not_loopback: 'only requests from this machine are accepted: use kubectl exec or port-forward, or set admin.token',
  foreign_host:
    'the Host must be localhost or an IP address other than 0.0.0.0, as a web page could otherwise send this request (DNS rebinding); or set admin.token',
  no_token: 'send the token of admin.token as Authorization: Bearer TOKEN',
  wrong_token: 'this is not the token of admin.token',
  cross_origin: 'a page of another origin caused this request; or a proxy changed the Host',
};
const CHALLENGES: Readonly<Record<string, string>> = { no_token: CHALLENGE, wrong_token: `${CHALLENGE}, error="invalid_token"` };

/** Rejects what a web page of another origin sends from a browser: it cannot read the response, but the request may change something. */
export function authorizeSite(request: IncomingMessage): Denial | undefined {
  if (!isFromOtherSite(request)) return undefined;
  return toDenial('cross_origin');
}

/** Authorizes a request that only processes in the same pod may send, with or without a token. */
export function authorizeLoopback(request: IncomingMessage): Denial | undefined {
  if (isFromLoopback(request)) {
    // The injected hook is a script that sends HTTP/1.0 without a Host. Browsers always send one.
    const isLocal = request.headers.host === undefined || namesThisMachine(request);
    return isLocal ? undefined : toDenial('foreign_host');
  }
  const line = 'this endpoint accepts only requests from inside the pod: use an exec preStop hook that calls 127.0.0.1';
  return { reason: 'not_loopback', response: toPlain(403, line) };
}

/** Authorizes requests for the endpoints that are not public. */
export class AdminAccess {
  readonly #access: PortAccess;

  /** `token`: checked with `findTokenProblem`; undefined if none is configured. */
  constructor(token: Secret | undefined) {
    this.#access = new PortAccess(token);
  }

  /** Replaces the token after a rotation. */
  replace(token: Secret): void {
    this.#access.replace(token);
  }

  /** Returns undefined if the request is authorized. */
  authorize(request: IncomingMessage): Denial | undefined {
    const reason = this.#access.authorize(request);
    return reason === undefined ? undefined : toDenial(reason);
  }
}

function toDenial(reason: keyof typeof DENIAL_TEXTS): Denial {
  const challenge = CHALLENGES[reason];
  const fields = challenge === undefined ? undefined : { 'WWW-Authenticate': challenge };
  return { reason, response: toPlain(fields === undefined ? 403 : 401, DENIAL_TEXTS[reason], fields) };
}
