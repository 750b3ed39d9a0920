/** `POST /routes/{route}/forget`: clears one id, so that its next genuine delivery is let through; audited by the log. */
import type { IncomingMessage } from 'node:http';
import { forgetEvent } from '../../gateway/pipeline/event-keys.ts';
import { type SeenIds, StoreUnavailable } from '../../state/claims/seen-ids.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Metrics } from '../../telemetry/metrics/metrics.ts';
import { type Answer, toJson, toPlain } from '../answer.ts';
import type { AdminRequest, Endpoint } from '../router.ts';

/** A route, as far as its ids go. */
export interface ForgettingRoute {
  readonly name: string;
  /** It has dedup. */
  readonly remembersIds: boolean;
}

/** What the endpoint stands on. */
export interface ForgetParts {
  readonly store: SeenIds;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly routes: () => readonly ForgettingRoute[];
}

/** An id is a header field or less: longer ones never came in. */
const LARGEST_CONTENT = 65_536;
const RETRY_AFTER_S = 5;
const EXAMPLE = 'send {"id": "…"}, with the id as the log and the journal show it (webhookId)';
/** What a page of another origin cannot send without asking first, and it is not answered (CORS). */
const CONTENT_TYPE = /^application\/json *(?:;|$)/i;

/** Builds the endpoint. */
export function createForgetEndpoint(parts: ForgetParts): Endpoint {
  return {
    path: '/routes/*/forget',
    method: 'POST',
    isOpen: false,
    async answer({ request, parameter }: AdminRequest) {
      const problem = findRouteProblem(parameter, parts.routes());
      if (problem !== undefined) return problem;
      const id = await readId(request);
      return typeof id === 'string' ? await forget(parameter, id, request, parts) : id;
    },
  };
}

async function forget(
  route: string,
  id: string,
  { socket }: IncomingMessage,
  { store, logger, metrics }: ForgetParts,
): Promise<Answer> {
  const by = socket.remoteAddress ?? 'unknown';
  try {
    const was = await forgetEvent(store, route, id);
    metrics.idForgotten(was);
    logger.info('id_forgotten', { route, id, was, by });
    return toJson({ was });
  } catch (thrown) {
    if (!(thrown instanceof StoreUnavailable)) throw thrown;
    // Some of it may have been done, or all, with the answer lost on the way.
    logger.warn('id_forgotten', { route, id, was: 'unknown', by, problem: thrown.message });
    const line = `the store could not forget it: ${thrown.message}; try again`;
    return toPlain(503, line, { 'Retry-After': String(RETRY_AFTER_S) });
  }
}

function findRouteProblem(name: string, routes: readonly ForgettingRoute[]): Answer | undefined {
  const found = routes.find((route) => route.name === name);
  const others = routes.filter(({ remembersIds }) => remembersIds).map((route) => route.name);
  const there = others.length === 0 ? 'no route remembers ids' : `there are ${others.join(', ')}`;
  if (found === undefined) return toPlain(404, `no route has this name; ${there}`);
  return found.remembersIds
    ? undefined
    : toPlain(409, `route ${name} remembers no ids: it has no webhook, or dedup: off; ${there}`);
}

async function readId(request: IncomingMessage): Promise<string | Answer> {
  const { 'content-type': contentType = '', 'content-encoding': coding = 'identity' } = request.headers;
  if (!CONTENT_TYPE.test(contentType) || coding !== 'identity')
    return toPlain(415, 'the content must be application/json, not encoded');
  const content = await readContent(request);
  if (content === undefined) return toPlain(413, `the content has more than ${LARGEST_CONTENT} bytes; ${EXAMPLE}`);
  const id = parseId(content);
  return id === undefined ? toPlain(400, `the content is not an object with an id alone; ${EXAMPLE}`) : id;
}

/** Undefined where it is too large, whether that is declared or turns out. */
async function readContent(request: IncomingMessage): Promise<Buffer | undefined> {
  if (Number(request.headers['content-length'] ?? 0) > LARGEST_CONTENT) return undefined;
  const chunks: Buffer[] = [];
  let length = 0;
  // Leaving the loop early would close the connection before the answer.
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > LARGEST_CONTENT) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function parseId(content: Buffer): string | undefined {
  try {
    const value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(content)) as unknown;
    if (typeof value !== 'object' || value === null || Object.keys(value).join() !== 'id' || !('id' in value)) return undefined;
    return typeof value.id === 'string' && value.id !== '' ? value.id : undefined;
  } catch {
    return undefined;
  }
}
