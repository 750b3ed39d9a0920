/** Routes authorized requests of the admin port to their endpoint. */
import type { IncomingMessage } from 'node:http';
import type { RequestBody } from '../core/request.ts';
import { type AdminAccess, authorizeLoopback, authorizeSite, type Denial } from './access.ts';
import type { AdminDenialLabel } from './admin-metrics.ts';
import { type AdminResponse, toPlain } from './response.ts';

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
