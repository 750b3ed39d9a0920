/** Checks and answers original requests: they have no content, and another proxy reads the response. */
import type { Admitted } from '../../core/admitted.ts';
import { REFUSALS, type Refusal, refuse } from '../../core/refusal.ts';
import type { ClientResponse, ParsedHead } from '../../core/request.ts';
import type { RequestTrace } from '../../telemetry/tracing/tracer.ts';
import type { RouteGates } from '../pipeline/gates/gate.ts';
import type { RefusalFormat } from '../pipeline/respond.ts';
import { addIdentity, addTrace, findMethodOverride, type IdentityContext } from '../upstream/headers.ts';
import { findForbiddenField } from './auth-request.ts';

const OK = 200;
const UNAUTHORIZED = 401;
const FORBIDDEN = 403;
const SERVER_ERROR = 500;
/** Besides sidegate's own, the field that apps behind such endpoints commonly read. Caddy writes a placeholder to the app for a missing one. */
const MORE_USER_FIELDS = ['Remote-User'];

const NO_CERTIFICATE = { detail: 'auth requests contain no certificate of the client', stage: 'login' } as const;

/** The part of a route that its auth requests depend on. */
interface CheckedRoute {
  readonly gates: Pick<RouteGates, 'certificate' | 'webhook'>;
  readonly forwardMethodOverride: boolean;
}

/** Why the gates of a route cannot decide about an original request. */
export function checkOriginal({ gates, forwardMethodOverride }: CheckedRoute, { headers }: ParsedHead): Refusal | undefined {
  // If only its other gates allowed it, it would reach the app with an unverified signature.
  if (gates.webhook !== undefined) return refuse('content_needed', 'content_needed', { stage: 'content' });
  // The caller's certificate is not that of its client. In observe mode, too: the rollout would look complete, and enforcing would reject everything.
  if (gates.certificate !== undefined) return refuse('certificate_required', 'no_certificate', NO_CERTIFICATE);
  // The calling proxy forwards it to the app, which then runs another method, or serves another path, than the route was found by, or reads what sidegate never said.
  const forbidden = (forwardMethodOverride ? undefined : findMethodOverride(headers)) ?? findForbiddenField(headers);
  return forbidden === undefined
    ? undefined
    : refuse('original_request_unclear', 'original_request', { detail: forbidden, stage: 'arrived' });
}

/** Allows it: without a body, as the proxy uses the headers only, and uncached, as the next request may have another password. */
export function writeAllowed(
  response: ClientResponse,
  admitted: Admitted,
  identity: IdentityContext,
  trace: RequestTrace | undefined,
): void {
  if (response.headersSent || response.destroyed) return;
  const head = ['Cache-Control', 'no-store', 'Content-Length', '0'];
  addIdentity(head, admitted, identity, MORE_USER_FIELDS);
  addTrace(head, trace);
  if (!admitted.head.body.isCheapToDrain) response.shouldKeepAlive = false;
  response.writeHead(OK, undefined, head);
  response.end();
}

/**
 * Proxies interpret 401 and 403 as a refusal, and nginx fails on any other status. So every client error becomes 403; a server error
 * stays one: a proxy must not report a failed check to its client as forbidden.
 */
export function toCallerFormat({ code }: Refusal): RefusalFormat {
  const { close: _, ...known } = REFUSALS[code];
  const isKept = known.status === UNAUTHORIZED || known.status >= SERVER_ERROR;
  const entry = isKept ? known : { ...known, status: FORBIDDEN };
  return { status: entry.status, entry, alwaysHasBody: true };
}
