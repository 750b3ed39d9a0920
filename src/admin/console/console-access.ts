/** Authorizes requests for the console's API, and explains rejections as problem details. */
import type { IncomingMessage } from 'node:http';
import { isFromOtherSite } from '../../gateway/server/port-access.ts';
import type { ApiResponse } from '../../http-api/operation.ts';
import { toProblem } from '../../http-api/problem.ts';
import type { ProblemCode } from '../../http-api/problem-catalogue.ts';
import type { AdminAccess } from '../access.ts';
import type { AdminDenialLabel } from '../admin-metrics.ts';

/** The dependencies of the rule. */
export interface ConsoleAccessParts {
  readonly access: Pick<AdminAccess, 'authorize'>;
  readonly onDenied: (reason: AdminDenialLabel) => void;
}

const DENIALS: Readonly<Record<AdminDenialLabel, readonly [ProblemCode, string]>> = {
  not_loopback: ['forbidden', 'only requests from this machine are accepted: use kubectl port-forward, or set admin.token'],
  foreign_host: [
    'forbidden',
    'the Host must be localhost or an IP address, as a web page could otherwise send this request (DNS rebinding); or set admin.token',
  ],
  cross_origin: ['forbidden', 'a page of another origin caused this request'],
  no_token: ['unauthorized', 'send the token of admin.token as Authorization: Bearer TOKEN'],
  wrong_token: ['unauthorized', 'this is not the token of admin.token'],
};

/** The rule of the API. */
export class ConsoleAccess {
  readonly #parts: ConsoleAccessParts;

  constructor(parts: ConsoleAccessParts) {
    this.#parts = parts;
  }

  /** Returns undefined if the request is authorized, else the response that rejects it. */
  authorize(request: IncomingMessage): ApiResponse | undefined {
    if (isFromOtherSite(request)) return this.#deny('cross_origin', {});
    const denial = this.#parts.access.authorize(request);
    return denial && this.#deny(denial.reason, denial.response.headers ?? {});
  }

  #deny(reason: AdminDenialLabel, headers: Readonly<Record<string, string>>): ApiResponse {
    this.#parts.onDenied(reason);
    return toProblem(...DENIALS[reason], { headers });
  }
}
