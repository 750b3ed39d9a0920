/** Finds what answers a request of the admin port, once it is clear that the caller may ask. */
import type { IncomingMessage } from 'node:http';
import type { AdminDenialLabel } from '../telemetry/metrics/labels.ts';
import { type AdminAccess, type Denial, judgeLoopback } from './access.ts';
import { type Answer, toPlain } from './answer.ts';

/** A request on its way to a handler. */
export interface AdminRequest {
  readonly request: IncomingMessage;
  readonly query: URLSearchParams;
  /** What stands in the path where the endpoint has `*`. */
  readonly parameter: string;
}

/** One thing the admin port does. */
export interface Endpoint {
  /** One segment may be `*`. */
  readonly path: string;
  readonly method: 'GET' | 'POST';
  /**
   * For everybody who reaches the port: what machines ask on a beat, and holds nothing that is worth hiding. `loopback`: for callers in the
   * pod alone, who need no token.
   */
  readonly isOpen: boolean | 'loopback';
  answer(request: AdminRequest): Answer | Promise<Answer>;
}

/** What the router stands on. */
export interface RouterParts {
  readonly endpoints: readonly Endpoint[];
  readonly access: AdminAccess;
  readonly onDenied: (reason: AdminDenialLabel) => void;
}

/** The table of endpoints. */
export class AdminRouter {
  readonly #parts: RouterParts;

  constructor(parts: RouterParts) {
    this.#parts = parts;
  }

  /** Answers one request. */
  async answer(request: IncomingMessage): Promise<Answer> {
    const { endpoints, access, onDenied } = this.#parts;
    const [path = '', ...rest] = (request.url ?? '').split('?');
    const found = endpoints.filter((endpoint) => toParameter(endpoint.path, path) !== undefined);
    if (found.length === 0) return toPlain(404, `try ${endpoints.map((endpoint) => endpoint.path).join(', ')}`);
    const denial = judge(found, request, access);
    if (denial !== undefined) {
      onDenied(denial.reason);
      return denial.answer;
    }
    const method = request.method === 'HEAD' ? 'GET' : request.method;
    const endpoint = found.find((each) => each.method === method);
    if (endpoint === undefined) {
      const allow = found.map((each) => (each.method === 'GET' ? 'GET, HEAD' : each.method)).join(', ');
      return toPlain(405, `only ${allow}`, { Allow: allow });
    }
    const parameter = toParameter(endpoint.path, path) ?? '';
    return endpoint.answer({ request, query: new URLSearchParams(rest.join('?')), parameter });
  }
}

function judge(found: readonly Endpoint[], request: IncomingMessage, access: AdminAccess): Denial | undefined {
  if (found.every(({ isOpen }) => isOpen === true)) return undefined;
  return found.every(({ isOpen }) => isOpen === 'loopback') ? judgeLoopback(request) : access.judge(request);
}

/** What stands for `*`, empty where the pattern has none; undefined where the path does not fit. */
function toParameter(pattern: string, path: string): string | undefined {
  const [wanted, given] = [pattern.split('/'), path.split('/')];
  if (wanted.length !== given.length) return undefined;
  let parameter = '';
  for (const [i, segment] of wanted.entries()) {
    if (segment === '*') parameter = given[i] as string;
    else if (segment !== given[i]) return undefined;
  }
  return parameter;
}
