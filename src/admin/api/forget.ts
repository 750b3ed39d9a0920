/** `POST /routes/{route}/forget`: deletes one event ID, so that the next valid delivery with it is forwarded. The log records each call. */
import type { IncomingMessage } from 'node:http';
import { REFUSALS, Refusal } from '../../core/refusal.ts';
import type { RequestBody } from '../../core/request.ts';
import { forgetEvent } from '../../gateway/pipeline/gates/dedup.ts';
import { type SeenIds, StoreUnavailable } from '../../state/seen-ids.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { AdminMetrics } from '../admin-metrics.ts';
import type { AdminLogEvent } from '../log-events.ts';
import { type AdminEndpoint, type AdminRequest, type AdminResponse, toJson, toPlain } from '../router.ts';

/** Whether a route remembers event IDs. */
export interface ForgettingRoute {
  readonly name: string;
  /** It has dedup. */
  readonly remembersIds: boolean;
}

/** An ID fits in a header field, so the gate never accepted a longer one. */
const MAX_BODY_BYTES = 65_536;
const RETRY_AFTER_S = 5;
const EXAMPLE = 'send {"id": "…"}, with the ID that the log and the journal show as webhookId';
/** A web page of another origin cannot send this type without a CORS preflight, which gets no approval here. */
const CONTENT_TYPE = /^application\/json *(?:;|$)/i;

/** Builds the endpoint. */
export function createForgetEndpoint({
  store,
  logger,
  metrics,
  routes,
}: {
  readonly store: SeenIds;
  readonly logger: Logger<AdminLogEvent>;
  readonly metrics: AdminMetrics;
  readonly routes: () => readonly ForgettingRoute[];
}): AdminEndpoint {
  return {
    path: '/routes/*/forget',
    method: 'POST',
    isOpen: false,
    async respond({ request, body, parameter }: AdminRequest) {
      const problem = findRouteProblem(parameter, routes());
      if (problem !== undefined) return problem;
      const id = await readId(request, body);
      return typeof id === 'string' ? await forget(parameter, id, request) : id;
    },
  };

  async function forget(route: string, id: string, { socket }: IncomingMessage): Promise<AdminResponse> {
    const by = socket.remoteAddress ?? 'unknown';
    try {
      const was = await forgetEvent(store, route, id);
      metrics.idForgotten(was);
      logger.info('id_forgotten', { route, id, was, by });
      return toJson({ was });
    } catch (thrown) {
      if (!(thrown instanceof StoreUnavailable)) throw thrown;
      // The store may have done part or all of it before its response was lost.
      logger.warn('id_forgotten', { route, id, was: 'unknown', by, problem: thrown.message });
      const line = `the store could not delete the ID: ${thrown.message}; try again`;
      return toPlain(503, line, { 'Retry-After': String(RETRY_AFTER_S) });
    }
  }
}

function findRouteProblem(name: string, routes: readonly ForgettingRoute[]): AdminResponse | undefined {
  const found = routes.find((route) => route.name === name);
  const others = routes.filter(({ remembersIds }) => remembersIds).map((route) => route.name);
  const known = others.length === 0 ? 'no route remembers IDs' : `routes that remember IDs: ${others.join(', ')}`;
  if (found === undefined) return toPlain(404, `no route has this name; ${known}`);
  return found.remembersIds
    ? undefined
    : toPlain(409, `route ${name} does not remember IDs: it has no webhook section, or dedup: off; ${known}`);
}

async function readId(request: IncomingMessage, body: RequestBody): Promise<string | AdminResponse> {
  const { 'content-type': contentType = '', 'content-encoding': coding = 'identity' } = request.headers;
  if (!CONTENT_TYPE.test(contentType) || coding !== 'identity')
    return toPlain(415, 'the body must be application/json without a Content-Encoding');
  const content = await body.read(MAX_BODY_BYTES);
  if (content instanceof Refusal) {
    const { status, title } = REFUSALS[content.code];
    return toPlain(status, status === 413 ? `the body has more than ${MAX_BODY_BYTES} bytes; ${EXAMPLE}` : title);
  }
  const id = parseId(content);
  return id === undefined ? toPlain(400, `the body must be an object with the member id only; ${EXAMPLE}`) : id;
}

function parseId(body: Buffer): string | undefined {
  try {
    const value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body)) as unknown;
    if (typeof value !== 'object' || value === null || Object.keys(value).join() !== 'id' || !('id' in value)) return undefined;
    return typeof value.id === 'string' && value.id !== '' ? value.id : undefined;
  } catch {
    return undefined;
  }
}
