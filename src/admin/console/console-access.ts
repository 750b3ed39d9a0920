/** Authorizes requests for the console's API, and explains rejections as problem details. Without `admin.basic` it is read-only. */
import type { IncomingMessage } from 'node:http';
import { HeaderFields } from '../../core/headers.ts';
import { toPlainAddress } from '../../core/ip-address.ts';
import { Refusal } from '../../core/refusal.ts';
import type { PasswordGate } from '../../gateway/pipeline/gates/gate.ts';
import { isFromLoopback, isFromOtherSite, namesThisMachine } from '../../http/server/port-access.ts';
import type { ApiResponse } from '../../http-api/operation.ts';
import { toProblem, toRefusalProblem } from '../../http-api/problem.ts';
import type { ProblemCode } from '../../http-api/problem-catalogue.ts';
import { type AdminAccess, DENIAL_TEXTS } from '../access.ts';
import type { AdminDenialLabel } from '../admin-metrics.ts';
import type { BodyDenial } from './delivery-schemas.ts';

/** The dependencies of the rule. */
export interface ConsoleAccessParts {
  readonly access: Pick<AdminAccess, 'authorize'>;
  /** The users of `admin.basic`; `challenge`: for WWW-Authenticate. */
  readonly password: (PasswordGate & { readonly challenge: string }) | undefined;
  readonly onDenied: (reason: AdminDenialLabel) => void;
}

const BASIC = /^basic(?:[\t ]|$)/i;
const DENIALS: Readonly<Record<AdminDenialLabel, readonly [ProblemCode, string]>> = {
  not_loopback: ['forbidden', DENIAL_TEXTS.not_loopback],
  foreign_host: ['forbidden', DENIAL_TEXTS.foreign_host],
  cross_origin: ['forbidden', DENIAL_TEXTS.cross_origin],
  read_only: ['forbidden', 'the console is read-only: set admin.basic to let users log in and act'],
  tls_required: [
    'forbidden',
    'the admin port has no TLS, so a password is accepted only from this machine: use kubectl port-forward',
  ],
  no_token: ['unauthorized', DENIAL_TEXTS.no_token],
  wrong_token: ['unauthorized', DENIAL_TEXTS.wrong_token],
  no_password: ['unauthorized', 'send a user of admin.basic and the right password as Authorization: Basic'],
};

/** The rule of the API. */
export class ConsoleAccess {
  readonly #parts: ConsoleAccessParts;

  constructor(parts: ConsoleAccessParts) {
    this.#parts = parts;
  }

  /** `isAction`: it may change something. Returns undefined if the request is authorized, else the response that rejects it. */
  async authorize(request: IncomingMessage, isAction: boolean): Promise<ApiResponse | undefined> {
    // First: a browser adds the password that its user entered to the requests of any page, and a page must not cause bans.
    if (isFromOtherSite(request)) return this.#deny('cross_origin');
    const { access, password } = this.#parts;
    if (password === undefined && isAction) return this.#deny('read_only');
    if (password !== undefined && (isAction || BASIC.test(request.headers.authorization ?? '')))
      return this.#authorizeByPassword(request, password);
    const denial = access.authorize(request);
    return denial && this.#deny(denial.reason, denial.response.headers?.['WWW-Authenticate']);
  }

  /**
   * Why a request that `authorize` allowed gets no stored bodies; undefined if it does. The port has no TLS, so they never leave the machine; if
   * there are users, only they read them.
   */
  findBodyDenial(request: IncomingMessage): BodyDenial | undefined {
    if (!isFromLoopback(request)) return 'not_loopback';
    const isLoggedIn = BASIC.test(request.headers.authorization ?? '');
    return this.#parts.password === undefined || isLoggedIn ? undefined : 'login_required';
  }

  /**
   * Rejects any password, so that a browser forgets the one that it has: it drops credentials that a server rejects. None is checked, as a logout
   * must not count as a failed login.
   */
  logOut(request: IncomingMessage): ApiResponse {
    if (isFromOtherSite(request)) return this.#deny('cross_origin');
    const { password } = this.#parts;
    if (password === undefined) return toProblem('not_found', 'nobody can log in here: the config has no admin.basic');
    const headers = { 'WWW-Authenticate': [password.challenge] };
    return toProblem('unauthorized', 'the password is forgotten', { headers });
  }

  async #authorizeByPassword(request: IncomingMessage, password: PasswordGate): Promise<ApiResponse | undefined> {
    if (!isFromLoopback(request)) return this.#deny('tls_required');
    if (!namesThisMachine(request)) return this.#deny('foreign_host');
    const client = { address: toPlainAddress(request.socket.remoteAddress ?? ''), scheme: 'http' } as const;
    const result = await password.check({ client, headers: new HeaderFields(request.rawHeaders) });
    if (!(result instanceof Refusal)) return undefined;
    return result.code === 'credentials_required' ? this.#deny('no_password') : toRefusalProblem(result);
  }

  /** `bearer`: the challenge of the token. */
  #deny(reason: AdminDenialLabel, bearer?: string): ApiResponse {
    this.#parts.onDenied(reason);
    const [code, detail] = DENIALS[reason];
    if (code !== 'unauthorized') return toProblem(code, detail);
    // One field line each, as not all clients parse lists (RFC 9110 §11.6.1).
    const challenges = [bearer, this.#parts.password?.challenge].filter((each) => each !== undefined);
    return toProblem(code, detail, { headers: { 'WWW-Authenticate': challenges } });
  }
}
