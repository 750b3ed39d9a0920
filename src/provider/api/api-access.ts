/** Authorizes the clients of the API: by the token or by a password; if neither is configured, by the loopback address. */
import type { IncomingMessage } from 'node:http';
import { HeaderFields } from '../../core/headers.ts';
import { toPlainAddress } from '../../core/ip-address.ts';
import { Refusal } from '../../core/refusal.ts';
import type { Secret } from '../../core/secret.ts';
import type { PasswordGate } from '../../gateway/pipeline/gates/gate.ts';
import { type AccessDenial, isFromOtherSite, PortAccess } from '../../http/server/port-access.ts';
import type { ApiResponse } from '../../http-api/operation.ts';
import { toProblem, toRefusalProblem } from '../../http-api/problem.ts';
import type { ProblemCode } from '../../http-api/problem-catalogue.ts';

/** The users of the API (HTTP Basic). */
export interface ApiPassword extends PasswordGate {
  /** For `WWW-Authenticate`. */
  readonly challenge: string;
}

const BEARER_CHALLENGE = 'Bearer realm="sidegate-provider"';
const BASIC = /^basic(?:[\t ]|$)/i;

type ApiDenial = AccessDenial | 'cross_origin' | 'no_password';

const DENIALS: Readonly<Record<ApiDenial, readonly [ProblemCode, string]>> = {
  not_loopback: ['forbidden', 'only requests from this machine are accepted; or set provider.token or provider.basic'],
  foreign_host: [
    'forbidden',
    'the Host must be localhost or an IP address, as a web page could otherwise send this request (DNS rebinding); or set provider.token',
  ],
  cross_origin: ['forbidden', 'requests from web pages are accepted only with the token of provider.token'],
  no_token: ['unauthorized', 'send the token of provider.token as Authorization: Bearer TOKEN'],
  wrong_token: ['unauthorized', 'this is not the token of provider.token'],
  no_password: ['unauthorized', 'send a user of provider.basic and the right password as Authorization: Basic'],
};

export class ApiAccess {
  readonly #port: PortAccess;
  readonly #password: ApiPassword | undefined;

  /** `token`: checked with `findTokenProblem` of core/bearer-token.ts. */
  constructor(token: Secret | undefined, password: ApiPassword | undefined) {
    this.#port = new PortAccess(token);
    this.#password = password;
  }

  /** Replaces the token after a rotation. */
  replace(token: Secret | undefined): void {
    this.#port.replace(token);
  }

  /** Returns undefined if the request is authorized, else the response that rejects it. */
  authorize(request: IncomingMessage): ApiResponse | undefined | Promise<ApiResponse | undefined> {
    const password = this.#password;
    if (password === undefined) return this.#authorizeByPort(request);
    if (this.#port.hasToken && !BASIC.test(request.headers.authorization ?? '')) return this.#authorizeByPort(request);
    // Before the password: a browser adds the one that its user entered to the requests of any page, and a page must not cause bans.
    if (isFromPage(request)) return this.#deny('cross_origin');
    return this.#authorizeByPassword(request, password);
  }

  #authorizeByPort(request: IncomingMessage): ApiResponse | undefined {
    const denial = this.#port.authorize(request);
    if (denial !== undefined) return this.#deny(denial);
    // A page cannot know a token.
    return !this.#port.hasToken && isFromPage(request) ? this.#deny('cross_origin') : undefined;
  }

  async #authorizeByPassword(request: IncomingMessage, password: ApiPassword): Promise<ApiResponse | undefined> {
    const { socket, rawHeaders } = request;
    const scheme = 'encrypted' in socket ? 'https' : 'http';
    const client = { address: toPlainAddress(socket.remoteAddress ?? ''), scheme } as const;
    const result = await password.check({ client, headers: new HeaderFields(rawHeaders) });
    if (!(result instanceof Refusal)) return undefined;
    return result.code === 'credentials_required' ? this.#deny('no_password') : toRefusalProblem(result);
  }

  #deny(denial: ApiDenial): ApiResponse {
    const [code, detail] = DENIALS[denial];
    if (code !== 'unauthorized') return toProblem(code, detail);
    const bearer = denial === 'wrong_token' ? `${BEARER_CHALLENGE}, error="invalid_token"` : BEARER_CHALLENGE;
    const basic = this.#password === undefined ? [] : [this.#password.challenge];
    // One field line each, as not all clients parse lists (RFC 9110 §11.6.1).
    return toProblem(code, detail, { headers: { 'WWW-Authenticate': [...(this.#port.hasToken ? [bearer] : []), ...basic] } });
  }
}

/** The API has no pages, so each `Origin` is another one. */
function isFromPage(request: IncomingMessage): boolean {
  return request.headers.origin !== undefined || isFromOtherSite(request);
}
