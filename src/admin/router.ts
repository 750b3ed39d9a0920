/** Routes authorized requests of the admin port to their endpoint. */

import type { IncomingMessage } from 'node:http';
import type { RequestBody } from '../core/request.ts';
import type { Secret } from '../core/secret.ts';
import { type AccessDenial, isFromLoopback, isFromOtherSite, namesThisMachine, PortAccess } from '../http/server/port-access.ts';
import type { AdminDenialLabel } from './admin-metrics.ts';

/** A request, as an endpoint receives it. */
export interface AdminRequest {
  readonly request: IncomingMessage;
  readonly body: RequestBody;
  readonly query: URLSearchParams;
  /** The path segment that matches `*`. */
  readonly parameter: string;
}

interface CommonEndpoint {
  /** One segment may be `*`. */
  readonly path: string;
  respond(request: AdminRequest): AdminResponse | Promise<AdminResponse>;
}

/** Public, for probes and scrapers: the response holds nothing confidential, and the request changes nothing. */
interface PublicEndpoint extends CommonEndpoint {
  readonly method: 'GET';
  readonly isOpen: true;
}

/** Every other endpoint rejects requests that pages of another origin cause. `loopback`: only for clients in the pod, without a token. */
interface GuardedEndpoint extends CommonEndpoint {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly isOpen: false | 'loopback';
}

/** An endpoint of the admin port. Only the router authorizes requests, so that no endpoint can forget a check. */
export type AdminEndpoint = PublicEndpoint | GuardedEndpoint;

/** The table of endpoints. */
export class AdminRouter {
  readonly #endpoints: readonly AdminEndpoint[];
  readonly #access: AdminAccess;
  readonly #onDenied: (reason: AdminDenialLabel) => void;

  constructor(endpoints: readonly AdminEndpoint[], access: AdminAccess, onDenied: (reason: AdminDenialLabel) => void) {
    this.#endpoints = endpoints;
    this.#access = access;
    this.#onDenied = onDenied;
  }

  async respond(request: IncomingMessage, body: RequestBody): Promise<AdminResponse> {
    const [path = '', ...rest] = (request.url ?? '').split('?');
    const found = this.#endpoints.filter((endpoint) => toParameter(endpoint.path, path) !== undefined);
    if (found.length === 0) {
      const paths = new Set(this.#endpoints.map((endpoint) => endpoint.path));
      return toPlain(404, `not found; the endpoints are ${[...paths].join(', ')}`);
    }
    const denial = authorize(found, request, this.#access);
    if (denial !== undefined) {
      this.#onDenied(denial.reason);
      return denial.response;
    }
    const method = request.method === 'HEAD' ? 'GET' : request.method;
    const endpoint = found.find((each) => each.method === method);
    if (endpoint === undefined) {
      const allow = found.map((each) => (each.method === 'GET' ? 'GET, HEAD' : each.method)).join(', ');
      return toPlain(405, `allowed methods: ${allow}`, { Allow: allow });
    }
    const parameter = toParameter(endpoint.path, path) ?? '';
    return endpoint.respond({ request, body, query: new URLSearchParams(rest.join('?')), parameter });
  }
}

function authorize(found: readonly AdminEndpoint[], request: IncomingMessage, access: AdminAccess): Denial | undefined {
  if (found.every(({ isOpen }) => isOpen === true)) return undefined;
  const denial = authorizeSite(request);
  if (denial !== undefined) return denial;
  return found.every(({ isOpen }) => isOpen === 'loopback') ? authorizeLoopback(request) : access.authorize(request);
}

/** Returns the segment that matches `*`, or '' if the pattern has none; undefined if the path does not match. */
function toParameter(pattern: string, path: string): string | undefined {
  const [expected, actual] = [pattern.split('/'), path.split('/')];
  if (expected.length !== actual.length) return undefined;
  let parameter = '';
  for (const [i, segment] of expected.entries()) {
    if (segment === '*') parameter = actual[i] as string;
    else if (segment !== actual[i]) return undefined;
  }
  return parameter;
}

// Responses of the admin port, as endpoints return them.

/** A response; the server adds the fields that all responses have. */
export interface AdminResponse {
  readonly status: number;
  readonly contentType: string;
  readonly text: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** In every response: a browser runs nothing of it, shows it in no frame, and sends its URL to no other origin. The console's page has another policy. */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'Cache-Control': 'no-store',
  'Content-Security-Policy': "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
};
const PLAIN = 'text/plain; charset=utf-8';

/** One line of text: the result or the problem, and how to fix it. */
export function toPlain(status: number, line: string, headers?: Readonly<Record<string, string>>): AdminResponse {
  const response = { status, contentType: PLAIN, text: `${line}\n` };
  return headers === undefined ? response : { ...response, headers };
}

/** A JSON value. */
export function toJson(value: unknown, contentType = 'application/json'): AdminResponse {
  return { status: 200, contentType, text: `${JSON.stringify(value, undefined, 2)}\n` };
}

// Authorizes requests for the journal, the keys and `forget`: by the admin token or, if none is configured, by the loopback address.

/** Why a request is rejected, and the response that says so. */
interface Denial {
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

/** Rejects what a web page of another origin sends from a browser: it cannot read the response, but the request may change something. */
function authorizeSite(request: IncomingMessage): Denial | undefined {
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

function toDenial(reason: keyof typeof DENIAL_TEXTS): Denial {
  const challenge = CHALLENGES[reason];
  const fields = challenge === undefined ? undefined : { 'WWW-Authenticate': challenge };
  return { reason, response: toPlain(fields === undefined ? 403 : 401, DENIAL_TEXTS[reason], fields) };
}
