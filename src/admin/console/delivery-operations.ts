/** The operations of recent deliveries: list, stream and detail. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import * as z from 'zod';
import type { Clock } from '../../core/clock.ts';
import type { PauseOwner } from '../../core/reading.ts';
import { waitForTurn } from '../../core/safe-events.ts';
import { defineOperation, type Operation, toJson } from '../../http-api/operation.ts';
import { toInvalid, toProblem } from '../../http-api/problem.ts';
import type { JournalEntry } from '../../telemetry/journal/journal.ts';
import type { DeliveryStream } from './delivery-stream.ts';
import { redactDetail, redactView, toDetailView, type ViewContext } from './delivery-view.ts';
import { isCursor, isStreamed, selectPage, toOwnRow, toSharedRow } from './recent-deliveries.ts';
import {
  type BodyDenial,
  type DeliveryDetail,
  type DeliveryQuery,
  deliveryDetail,
  deliveryPage,
  deliveryQuery,
  streamQuery,
} from './schemas.ts';
import type { SharedEntry } from './shared-entries.ts';

/** The dependencies of the operations. */
export interface DeliveryParts {
  readonly clock: Pick<Clock, 'now'>;
  /** All entries, newest first. */
  readonly entries: () => readonly JournalEntry[];
  /** Requests of other replicas; never rejects. */
  readonly readShared: () => Promise<readonly SharedEntry[]>;
  /** For one response. */
  readonly context: () => ViewContext;
  readonly isCaptured: (requestId: string) => boolean;
  /** Why an authorized request gets no bodies; undefined if it does. */
  readonly findBodyDenial: (request: IncomingMessage) => BodyDenial | undefined;
  /** Whether a request that was authorized still is. */
  readonly isAuthorized: (request: IncomingMessage) => boolean;
  readonly stream: DeliveryStream;
}

const PATH = '/api/v1/deliveries';

/** Builds the operations. */
export function createDeliveryOperations(parts: DeliveryParts): Operation[] {
  return [createList(parts), createStream(parts), createGet(parts)];
}

/** A page of the list. The query's cursor must be valid. */
export async function readPage(parts: DeliveryParts, query: DeliveryQuery): Promise<z.output<typeof deliveryPage>> {
  const { clock, entries, readShared } = parts;
  const shared = await readShared();
  // A page takes as long as a hundred deliveries, which are handled between this one and the next.
  await new Promise<void>((resolve) => waitForTurn('console', resolve));
  const context = parts.context();
  const all = [...entries().map((entry) => toOwnRow(entry, context)), ...shared.map(toSharedRow)];
  const { rows, cursor } = selectPage(all, query, clock.now());
  return { data: rows.map(({ view }) => redactView(view, context.redact)), cursor };
}

/** One request, of this replica or of another one; undefined if it is not kept. `incoming`: names the port and the reader. */
export async function readDetail(
  { entries, readShared, context, isCaptured, findBodyDenial }: DeliveryParts,
  id: string,
  incoming: IncomingMessage,
): Promise<DeliveryDetail | undefined> {
  const found = entries().find(({ line }) => line.requestId === id);
  if (found === undefined) {
    const shared = (await readShared()).find(({ detail }) => detail.id === id);
    return shared && redactDetail(shared.detail, context().redact);
  }
  const { localAddress = '127.0.0.1', localPort } = incoming.socket;
  const origin = `http://${localAddress.includes(':') ? `[${localAddress}]` : localAddress}:${localPort}`;
  return toDetailView(found, context(), { isCaptured: isCaptured(id), origin, bodyDenial: findBodyDenial(incoming) });
}

function createList(parts: DeliveryParts): Operation {
  return defineOperation({
    id: 'listRecentDeliveries',
    method: 'GET',
    path: PATH,
    summary: 'List recent requests',
    description:
      'The newest first, accepted or rejected, as long as the journal keeps them. With Redis, those of other replicas follow within seconds, from the first call on.',
    query: deliveryQuery,
    responses: { 200: { description: 'A page.', schema: deliveryPage } },
    problems: [],
    async handle({ query }) {
      if (query.cursor !== undefined && !isCursor(query.cursor))
        return toInvalid([{ field: 'cursor', message: 'not the cursor of a page' }]);
      return toJson(200, await readPage(parts, query));
    },
  });
}

function createStream({ isAuthorized, stream }: DeliveryParts): Operation {
  return defineOperation({
    id: 'streamRecentDeliveries',
    method: 'GET',
    path: `${PATH}/stream`,
    summary: 'Stream requests as they finish',
    description:
      'Server-sent events. The data of an event without a name is a row of the list. `gap` reports how many were skipped; `reset` asks the client to load the list again. With Redis, requests of other replicas follow within seconds; `replicas` reports whether the store responds. A client that reconnects sends Last-Event-ID.',
    query: streamQuery,
    responses: { 200: { description: 'Events.', schema: z.string(), contentType: 'text/event-stream' } },
    problems: ['busy'],
    handle({ query, incoming }) {
      if (stream.isFull) return toProblem('busy', 'too many streams are open');
      const lastId = incoming.headersDistinct['last-event-id']?.[0];
      return {
        status: 200,
        contentType: 'text/event-stream',
        stream: (response: ServerResponse, owner: PauseOwner) =>
          stream.open(response, lastId, {
            owner,
            isSelected: (row) => isStreamed(row, query),
            isAuthorized: () => isAuthorized(incoming),
          }),
      };
    },
  });
}

function createGet(parts: DeliveryParts): Operation {
  return defineOperation({
    id: 'getRecentDelivery',
    method: 'GET',
    path: `${PATH}/{request}`,
    summary: 'Show a recent request',
    responses: { 200: { description: 'The request in full.', schema: deliveryDetail } },
    problems: ['not_found'],
    async handle({ params: { request = '' }, incoming }) {
      const found = await readDetail(parts, request, incoming);
      return found === undefined ? toProblem('not_found', 'the journal has no such request, or no longer') : toJson(200, found);
    },
  });
}
