/** Writes refusals to the sender, as problem details (RFC 9457) that reveal nothing to an attacker. */
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../core/clock.ts';
import { REFUSALS, type Refusal, type RefusalCode, type RefusalEntry } from '../../core/refusal.ts';
import type { ClientResponse } from '../../core/request.ts';
import { runNextTurn, runTimer } from '../../core/safe-events.ts';
import { closeAfterResponse } from '../../http/server/linger.ts';
import { ClientErrors } from '../../http/server/strict-server.ts';

/** The context of a refusal's response. */
interface RefusalContext {
  readonly requestId: string;
  /** The route's WWW-Authenticate values (RFC 9110 §11.6.1 requires one on every 401), one field line each: not all clients parse lists. */
  readonly challenges: readonly string[];
  /** No content for HEAD (RFC 9110 §9.3.2). */
  readonly isHead: boolean;
  /** Content was left unread on the connection. */
  readonly mustClose: boolean;
  readonly format?: RefusalFormat | undefined;
  /** Writes the response at the end of the turn, together with others. Only for a caller that waits for the end of the response. */
  readonly turnEnd?: TurnEnd | undefined;
}

/** How a port writes a refusal, if not as the catalogue says. */
export interface RefusalFormat {
  readonly status: number;
  /** Replaces the catalogue's entry, which the receiver would not understand; a header then carries the code. */
  readonly entry?: RefusalEntry;
  /** Replaces the problem details, for senders that need a certain text. */
  readonly text?: string;
  /** The response is to another request than the one that was checked, whose method (HEAD) does not apply. */
  readonly alwaysHasBody?: true;
}

/** How the sender of a route interprets responses. */
export interface SenderExpectations {
  /** The statuses that it expects instead of the catalogue's. */
  readonly statuses?: ReadonlyMap<RefusalCode, number>;
  /** The text by which it learns that an event needs no retry; if it is empty, no response may have content. */
  readonly acknowledgement?: string | undefined;
}

/** Takes the status of the refusal's own reply, else the one that the sender expects, else the catalogue's. */
export function toFormat({ code, reply }: Refusal, { statuses, acknowledgement }: SenderExpectations = {}): RefusalFormat {
  const { status } = REFUSALS[code];
  const text = status < MULTIPLE_CHOICES || acknowledgement === '' ? acknowledgement : undefined;
  return { status: reply?.status ?? statuses?.get(code) ?? status, ...(text !== undefined && { text }) };
}

/** RFC 9110 §11.6.1 and §11.7.1. */
const CHALLENGE_FIELDS = new Map([
  [401, 'WWW-Authenticate'],
  [407, 'Proxy-Authenticate'],
]);
const NO_CONTENT = 204;
const MULTIPLE_CHOICES = 300;
const REASON_PHRASES: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  403: 'Forbidden',
  408: 'Request Timeout',
  413: 'Content Too Large',
  431: 'Request Header Fields Too Large',
};

/** Responds through node:http. Does nothing if a head was already sent or the sender has disconnected. */
export function writeRefusal(response: ClientResponse, refusal: Refusal, context: RefusalContext): void {
  if (response.headersSent || response.destroyed) return;
  const { format } = context;
  const known = format?.entry ?? REFUSALS[refusal.code];
  const status = format?.status ?? known.status;
  const entry = status === known.status ? known : { ...known, status };
  const head = toHead(refusal, entry, context);
  // RFC 9110 §8.6 and §15.3.5: neither content nor its length.
  const body = status === NO_CONTENT ? undefined : toBody(refusal, entry, context);
  if (body !== undefined) head.push('Content-Length', String(Buffer.byteLength(body, 'latin1')));
  // RFC 9112 §9.3: the rest of an unread body would be parsed as the next request.
  if (entry.close === true || context.mustClose) response.shouldKeepAlive = false;
  response.writeHead(entry.status, undefined, head);
  const end = (): unknown => response.destroyed || response.end(context.isHead ? undefined : body, 'latin1');
  if (context.turnEnd === undefined) end();
  else context.turnEnd.add(end);
}

function toBody(refusal: Refusal, entry: RefusalEntry, { format, requestId }: RefusalContext): string {
  return refusal.reply?.body ?? format?.text ?? toProblemDetails(refusal, entry, requestId);
}

/** Responds on a connection whose bytes are not a request, and closes it. */
export function writeSocketRefusal(
  socket: Duplex,
  refusal: Refusal,
  { requestId, format }: Pick<RefusalContext, 'requestId' | 'format'>,
  clock: Clock,
): void {
  const entry = format?.entry ?? REFUSALS[refusal.code];
  const body = toProblemDetails(refusal, entry, requestId);
  const head = toHead(refusal, entry, { challenges: [], format });
  head.push('Content-Length', String(Buffer.byteLength(body)), 'Connection', 'close');
  let text = `HTTP/1.1 ${entry.status} ${REASON_PHRASES[entry.status] ?? entry.title}\r\n`;
  for (let i = 0; i < head.length; i += 2) text += `${head[i]}: ${head[i + 1]}\r\n`;
  socket.write(`${text}\r\n${body}`);
  closeAfterResponse(socket as Socket, clock);
}

/** The errors on the connections of a port without routes: admin port, API of the sending side, injector. They count towards no limit. */
export function createPlainErrors(clock: Clock): ClientErrors {
  return new ClientErrors({
    clock,
    onLimit: () => undefined,
    toPeer: ({ remoteAddress = 'unknown' }) => remoteAddress,
    rejectSocket: ({ requestId }, socket, refusal) => writeSocketRefusal(socket, refusal, { requestId }, clock),
  });
}

function toProblemDetails({ code }: Refusal, { status, title }: RefusalEntry, requestId: string): string {
  return JSON.stringify({ type: `urn:sidegate:refusal:${code}`, title, status, code, requestId });
}

function toHead(refusal: Refusal, entry: RefusalEntry, context: Pick<RefusalContext, 'challenges' | 'format'>): string[] {
  const { reply } = refusal;
  const contentType = context.format?.text === undefined ? 'application/problem+json' : 'text/plain';
  const head = entry.status === NO_CONTENT ? [] : ['Content-Type', reply?.contentType ?? contentType];
  head.push('Cache-Control', 'no-store');
  for (const [name, value] of reply?.headers ?? []) head.push(name, value);
  if (entry.proxyError !== undefined) head.push('Proxy-Status', `sidegate; error=${entry.proxyError}`);
  const field = CHALLENGE_FIELDS.get(entry.status);
  if (field !== undefined) for (const challenge of context.challenges) head.push(field, challenge);
  if (refusal.allow !== undefined) head.push('Allow', refusal.allow.join(', '));
  if (refusal.accept !== undefined) head.push('Accept', refusal.accept.join(', '));
  const retryAfter = refusal.retryAfterSeconds ?? entry.retryAfterSeconds;
  if (retryAfter !== undefined) head.push('Retry-After', String(retryAfter));
  if (context.format?.entry !== undefined) head.push('Sidegate-Refusal', refusal.code);
  return head;
}

/**
 * Runs actions together at the end of a turn of the event loop. Responses that are written one after the other wake their receiver once; written when each is ready, each
 * can find the receiver asleep again. In a flood of forged deliveries, that took half of the CPU of each (bench/run.ts, scenario `forged`).
 * It bypasses no limit: a connection has one response at a time, and requests that wait behind it are counted (PortRequests).
 */
export class TurnEnd {
  #actions: (() => void)[] = [];

  /** Runs `action` at the end of this turn, in the order of the calls; an exception in it is reported. */
  add(action: () => void): void {
    if (this.#actions.length === 0) runNextTurn(() => this.#run());
    this.#actions.push(action);
  }

  #run(): void {
    const actions = this.#actions;
    this.#actions = [];
    for (const action of actions) runTimer(action);
  }
}
