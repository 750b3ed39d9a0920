/** HTTP/2 on the data port: limited sessions on connections that negotiated it, whose streams become requests. */
import {
  constants,
  type IncomingHttpHeaders,
  performServerHandshake,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Socket } from 'node:net';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { Counts, type ListElement, UnorderedList } from '../../core/collections.ts';
import { HeaderFields, type RawHeaders } from '../../core/head.ts';
import { onceEvent, onEvent, runNextTurn } from '../../core/safe-events.ts';
import { type BodySource, Http2BodySource } from './body-source.ts';
import type { TrackedResponse, Upload } from './connection-limiter.ts';
import { CountedStream, IdleTimer, limitInvalidHeads, RejectedStreams, toFields, toHeadBytes } from './http2-response.ts';
import type { OnLimit, PortLimits } from './limits.ts';
import { destroySoon } from './linger.ts';
import { EVICTED_SHARE, type Holder, type MemoryPressure, pickVictims } from './memory-guard.ts';
import type { IncomingHead } from './strict-server.ts';

/** A stream as a request. */
export interface Http2Request {
  readonly head: IncomingHead;
  /** The size of the fields after decompression in bytes, as RFC 9113 §6.5.2 counts it. */
  readonly headBytes: number;
  /** With pseudo-header fields. */
  readonly fieldLines: number;
  readonly source: BodySource;
  readonly stream: ServerHttp2Stream;
  /** Counts the stream for its client, if it is rejected. */
  readonly counted: CountedStream;
}

/** The limits of each session of a client. */
interface SessionLimits {
  /** Concurrent streams of a session. */
  readonly streams: number;
  /** Invalid frames of a session, and streams beyond `streams`, until it ends. */
  readonly invalid: number;
  /** Streams that a session may open and reset at once, and per second after that (CVE-2023-44487). */
  readonly resetBurst: number;
  readonly resetsPerSecond: number;
  /** In MiB: the protocol state of a session, and up to 64 KiB of the response of each stream. Beyond it, Node resets each new stream. */
  readonly memory: number;
}

/** The largest number that nghttp2 takes. */
const UNLIMITED = 2 ** 32 - 1;
/** As many streams as a browser needs. Those that a client opens before it has read this limit count as invalid. */
const OF_ONE_CLIENT: SessionLimits = { streams: 100, invalid: 1_024, resetBurst: 200, resetsPerSecond: 20, memory: 10 };
/**
 * A proxy passes on what its clients cancel or write wrongly, so one of them could end the requests of all others. As many streams as Envoy opens
 * before it has read the limit. The limit on a turn of the event loop applies to them, too.
 */
const OF_MANY_CLIENTS = { streams: 1_024, invalid: UNLIMITED, resetBurst: UNLIMITED, resetsPerSecond: UNLIMITED, memory: 100 };
/**
 * For new connections of a client that has used up its budget of rejected streams: it could open one after the other. Also for those that it
 * has beyond `FULL_CONNECTIONS`: the event loop handles what has arrived on all of them before it serves others.
 */
const REDUCED_CONCURRENT_STREAMS = 10;
const FULL_CONNECTIONS = 32;
/** The invalid frames that end such a session. */
const MAX_INVALID_IF_REDUCED = 100;
/** A session of a proxy has the streams of so many sessions of clients. */
const CLIENTS_PER_PROXY = 10;
/** Covers what was on its way to sidegate, and the rest of the bodies of a few streams. */
const MAX_BYTES_AFTER_GOAWAY = 256 * 1024;
const FLOOD_CHECK_MS = 100;
/** Of body, that a stream may buffer before it is read. A proxy's connection has room for all streams: HAProxy 2.6 sends no more once it was full. */
const STREAM_WINDOW = 64 * 1024;
/** `:method`, `:scheme`, `:authority`, `:path`. */
const PSEUDO_FIELDS = 4;
/** Finding the routes that an app may choose for a path takes as much time as so many fields for its length. */
const CHARS_PER_FIELD = 80;
/** The memory of a PING with its reply, which Node keeps until it is sent, and a margin. A GOAWAY takes no more. */
const FRAME_BYTES = 4 * 1024;
/**
 * Fields are read up to this multiple of the limit, so that a client slightly above it gets 431 instead of a closed connection.
 */
const READ_LIMIT_FACTOR = 2;
/** In bytes; nghttp2 reads as much before the client knows the limit, and beyond it resets the stream without a trace. */
const MIN_HEADER_LIST = 65_535;

/** A session with its connection. */
interface OpenSession {
  readonly session: ServerHttp2Session;
  readonly socket: Socket;
  readonly client: string | undefined;
  /** Its client has had too many streams rejected: it gets no more of them. */
  isEnding: boolean;
}

/** The HTTP/2 sessions of the port. */
export class Http2Sessions {
  readonly #limits: PortLimits;
  readonly #clock: Clock;
  readonly #onLimit: OnLimit;
  readonly #streams: Http2Streams;
  readonly #onRequest: (request: Http2Request) => void;
  readonly #freeMemory: () => void;
  readonly #maxProxySessions: number;
  readonly #rejected: RejectedStreams;
  readonly #sessions = new Map<Socket, ServerHttp2Session>();
  /** Sessions of each client. */
  readonly #counts = new Counts();

  constructor(parts: {
    readonly limits: PortLimits;
    readonly clock: Clock;
    readonly onLimit: OnLimit;
    readonly streams: Http2Streams;
    readonly onRequest: (request: Http2Request) => void;
    /** Closes connections, if memory is tight. */
    readonly freeMemory: () => void;
    /** Of proxies; further ones have the streams of a client. */
    readonly maxProxySessions: number;
  }) {
    this.#limits = parts.limits;
    this.#clock = parts.clock;
    this.#onLimit = parts.onLimit;
    this.#streams = parts.streams;
    this.#onRequest = parts.onRequest;
    this.#freeMemory = parts.freeMemory;
    this.#maxProxySessions = parts.maxProxySessions;
    this.#rejected = new RejectedStreams(parts.clock);
  }

  /** Opens a session on a connection that negotiated HTTP/2 (ALPN). `client`: undefined if the peer represents many clients. */
  open(socket: Socket, client: string | undefined): void {
    const { maxHeaderBytes, maxHeaderFields, keepAliveTimeout } = this.#limits;
    this.#counts.add(client ?? '', 1);
    const { invalid, resetBurst, resetsPerSecond, memory } = client === undefined ? OF_MANY_CLIENTS : OF_ONE_CLIENT;
    let streams = this.#toStreams(client);
    const session = performServerHandshake(socket, {
      settings: {
        maxConcurrentStreams: streams,
        maxHeaderListSize: Math.max(MIN_HEADER_LIST, maxHeaderBytes * READ_LIMIT_FACTOR),
        initialWindowSize: STREAM_WINDOW,
        enableConnectProtocol: false,
      },
      maxHeaderListPairs: maxHeaderFields * READ_LIMIT_FACTOR + PSEUDO_FIELDS,
      maxSessionMemory: memory,
      maxSessionInvalidFrames: streams === REDUCED_CONCURRENT_STREAMS ? Math.min(invalid, MAX_INVALID_IF_REDUCED) : invalid,
      maxSessionRejectedStreams: invalid,
      streamResetBurst: resetBurst,
      streamResetRate: resetsPerSecond,
    });
    this.#sessions.set(socket, session);
    const opened: OpenSession = { session, socket, client, isEnding: false };
    const idle = new IdleTimer(this.#clock, keepAliveTimeout, () => {
      session.close();
      // The client may ignore GOAWAY and the end of our side.
      destroySoon(socket, this.#clock);
    });
    const onRequest = client === undefined ? limitInvalidHeads(session, this.#clock) : undefined;
    if (client === undefined) session.setLocalWindowSize(OF_MANY_CLIENTS.streams * STREAM_WINDOW);
    onEvent(session, 'stream', (stream, headers, flags, raw) => {
      idle.enter();
      onRequest?.();
      onceEvent(stream, 'close', () => idle.leave());
      const before = streams;
      if (streams === REDUCED_CONCURRENT_STREAMS && !session.closed && !session.destroyed) streams = this.#toStreams(client);
      if (streams !== before) session.settings({ maxConcurrentStreams: streams });
      this.#onStream(opened, stream, headers, { flags, raw });
    });
    // For other frames Node calls no JavaScript, unless the session has a listener.
    onEvent(session, 'ping', () => this.#begin(opened, FRAME_BYTES));
    onEvent(session, 'goaway', () => this.#onGoaway(opened));
    // GOAWAY has already informed a client that violates the protocol.
    onEvent(session, 'error', () => session.destroy());
    onEvent(session, 'close', () => {
      idle.stop();
      this.#sessions.delete(socket);
      this.#counts.add(client ?? '', -1);
    });
  }

  /** Accepts no more streams (GOAWAY), and lets those in flight finish. */
  close(): void {
    for (const session of this.#sessions.values()) session.close();
  }

  /** Like `close`, for the session of one connection; returns false if it has none. */
  closeOn(socket: Socket): boolean {
    const session = this.#sessions.get(socket);
    session?.close();
    return session !== undefined;
  }

  /** Destroys all sessions. */
  destroy(): void {
    for (const session of this.#sessions.values()) session.destroy();
  }

  #onStream(
    opened: OpenSession,
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    { flags, raw }: { flags: number; raw: RawHeaders },
  ): void {
    // The error ends only this stream; code that reads or writes it gets `close`.
    onEvent(stream, 'error', () => undefined);
    const { session, socket, client } = opened;
    const headBytes = toHeadBytes(raw);
    const fieldLines = raw.length / 2;
    if (!this.#begin(opened, toStreamBytes(headBytes, fieldLines))) return;
    if (opened.isEnding || session.closed || session.destroyed) return stream.close(constants.NGHTTP2_REFUSED_STREAM);
    const fields = new HeaderFields(toFields(raw, headers[':authority']));
    const head = {
      method: headers[':method'] ?? '',
      url: headers[':path'] ?? '',
      headers: fields,
      hasValidVersion: true,
      isOld: false,
      socket,
    };
    const onExceeded = (): void => this.#endSmallFrames(session, stream, client);
    const source = new Http2BodySource(stream, fields, flags, {
      clock: this.#clock,
      owner: client === undefined ? stream : session,
      toGroup: () => client ?? stream,
      onExceeded,
    });
    const cost = fieldLines + head.url.length / CHARS_PER_FIELD;
    // The streams in flight may be valid requests, which end normally.
    const counted = new CountedStream(cost, (streams, lines) => {
      const isEnding = opened.isEnding || session.closed || session.destroyed;
      if (client !== undefined && !this.#rejected.take(client, streams, lines) && !isEnding) this.#endFlood(opened);
    });
    onEvent(stream, 'trailers', (_trailers, _flags, lines) => counted.addFields(lines.length / 2));
    this.#onRequest({ head, headBytes, fieldLines, source, stream, counted });
  }

  /** Ends the session if too much arrived in this turn of the event loop. If it were closed, Node would build each further stream, and then refuse it. */
  #begin({ session, client }: OpenSession, bytes: number): boolean {
    if (this.#streams.begin({ session, client, bytes })) return true;
    session.destroy();
    this.#freeMemory();
    return false;
  }

  /** Node now closes the session. It would build and reject each stream that arrives before its own GOAWAY is sent; with this setting, nghttp2 rejects them. */
  #onGoaway(opened: OpenSession): void {
    const { session } = opened;
    if (this.#begin(opened, FRAME_BYTES) && !session.closed) session.settings({ maxConcurrentStreams: 0 });
  }

  /** A proxy may have passed on what one of its clients sent. */
  #endSmallFrames(session: ServerHttp2Session, stream: ServerHttp2Stream, client: string | undefined): void {
    this.#onLimit('small_chunks');
    if (client === undefined) stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    else session.destroy(undefined, constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }

  /** A client that goes on is cut off: what it sends is read and ignored until the streams in flight have ended. */
  #endFlood(opened: OpenSession): void {
    const { session, socket } = opened;
    this.#onLimit('rejected_streams');
    opened.isEnding = true;
    // A session that is closed while Node reads it no longer shows its streams, which Node builds until GOAWAY is sent.
    runNextTurn(() => session.close());
    const before = socket.bytesRead;
    const stop = this.#clock.every(FLOOD_CHECK_MS, () => {
      if (socket.bytesRead - before > MAX_BYTES_AFTER_GOAWAY) session.destroy();
    });
    onceEvent(session, 'close', stop);
  }

  /** The streams of one more session. Invalid heads and their replies take memory that Node does not show, so few sessions of a small container have many. */
  #toStreams(client: string | undefined): number {
    const count = this.#counts.of(client ?? '');
    const all = client === undefined ? count - 1 : this.#sessions.size;
    if (all >= CLIENTS_PER_PROXY * this.#maxProxySessions) return REDUCED_CONCURRENT_STREAMS;
    if (client === undefined) return (count > this.#maxProxySessions ? OF_ONE_CLIENT : OF_MANY_CLIENTS).streams;
    return this.#rejected.isSpent(client) || count > FULL_CONNECTIONS ? REDUCED_CONCURRENT_STREAMS : OF_ONE_CLIENT.streams;
  }
}

/** The memory of a stream with its request and response, without the fields. */
const STREAM_BYTES = 8 * 1024;
/** The memory of a field in addition to its name and value. */
const FIELD_BYTES = 256;

function toStreamBytes(headBytes: number, fieldLines: number): number {
  return STREAM_BYTES + headBytes + fieldLines * FIELD_BYTES;
}

/** The share of the streams that are kept while memory is tight. */
const KEPT_WHILE_TIGHT = 1 / 8;
/** The share of the streams, in all and of a turn, that one client may have. */
const CLIENT_SHARE = 1 / 2;
/** Younger streams are ended only for their own client, or if it has many: the body of a delivery may follow its head at once. */
const MIN_AGE_MS: Milliseconds = 1_000;
/** At least so much may arrive in a turn, however many workers there are: half of it is a hundred requests with cookies at once. */
const MIN_TURN_BYTES = 6 * 1_024 * 1_024;
/** In bytes, of all proxies together: as many requests as two of their sessions may have at once. */
const PROXY_TURN_BYTES = 32 * 1_024 * 1_024;

/**
 * Limits the unfinished streams of all HTTP/2 connections of a port. Each stream takes kilobytes of the heap. A connection can have 100 of them, and a client that takes no response keeps each until
 * `sendTimeout`, also those that were rejected, which no limit on requests counts. In HTTP/1.1, the limit on connections is enough.
 */
export class Http2Streams {
  readonly #max: number;
  readonly #memory: StreamMemory;
  readonly #onLimit: OnLimit;
  readonly #streams = new UnorderedList<UnfinishedStream>();
  /** How many each client network has. */
  readonly #networks = new Counts();
  /** In this turn, a search for a client with so many streams found nothing. */
  #vainFrom = Number.POSITIVE_INFINITY;
  readonly #turn = new ArrivalsOfTurn();
  #count = 0;
  #bytes = 0;

  constructor(max: number, memory: StreamMemory, onLimit: OnLimit) {
    this.#max = max;
    this.#memory = memory;
    this.#onLimit = onLimit;
  }

  /**
   * Counts what arrived. Returns false if its session must end: too much arrived in this turn of the event loop, in all or of its client. The first
   * stream of each session is still handled, as in HTTP/1.1.
   */
  begin(arrived: Arrival): boolean {
    this.#memory.onBytes(arrived.bytes);
    const max = arrived.client === undefined ? PROXY_TURN_BYTES : Math.max(this.#max * STREAM_BYTES, MIN_TURN_BYTES);
    if (this.#turn.add(arrived, max * this.#share)) return true;
    this.#onLimit('client_requests');
    return false;
  }

  /**
   * Adds a stream. If there are too many, in all or of its client, or their heads are too large, ends the oldest of the client that keeps most waiting,
   * but none of a client that has fewer. Returns false if there are too many, and none of them waits.
   */
  add(parts: StreamParts, now: Milliseconds): boolean {
    const added = new UnfinishedStream(now, parts);
    const max = this.#max * this.#share;
    const isFull = this.#count >= max || this.isSpent(parts);
    if ((isFull || this.#bytes >= max * STREAM_BYTES) && !this.#evict(added) && isFull) return false;
    this.#streams.add(added);
    this.#networks.add(added.network, 1);
    this.#count++;
    this.#bytes += added.bytes;
    onceEvent(parts.stream, 'close', () => this.#remove(added));
    return true;
  }

  /** Whether the client has its share of the streams. */
  isSpent({ body, isShared }: Pick<StreamParts, 'body' | 'isShared'>): boolean {
    return !isShared && this.#networks.of(body.network) >= this.#max * this.#share * CLIENT_SHARE;
  }

  get #share(): number {
    return this.#memory.isTight ? KEPT_WHILE_TIGHT : 1;
  }

  /** A search takes as long as several requests. Once one finds nothing, this turn has no further ones for clients with as many streams. */
  #evict({ network, startedAt }: UnfinishedStream): boolean {
    this.#onLimit('client_requests');
    const least = this.#networks.of(network);
    if (least >= this.#vainFrom) return false;
    const pick = (isCandidate: (each: UnfinishedStream, count: number) => boolean): UnfinishedStream[] => {
      const candidates = [...this.#streams].filter((each) => isCandidate(each, this.#networks.of(each.network)));
      return pickVictims(candidates, this.#max * STREAM_BYTES * EVICTED_SHARE, startedAt);
    };
    const old = pick((each, count) => each.startedAt <= startedAt - MIN_AGE_MS && count >= least);
    const victims = old.length > 0 ? old : pick((each, count) => each.network === network || count > 2 * (least + 1));
    if (victims.length === 0) this.#noteVain(least);
    for (const victim of victims) {
      this.#remove(victim);
      victim.parts.response.destroy();
      this.#memory.onGarbage(victim.bytes);
    }
    return victims.length > 0;
  }

  #noteVain(least: number): void {
    if (this.#vainFrom === Number.POSITIVE_INFINITY)
      runNextTurn(() => {
        this.#vainFrom = Number.POSITIVE_INFINITY;
      });
    this.#vainFrom = least;
  }

  #remove(stream: UnfinishedStream): void {
    if (stream.listIndex === undefined) return;
    this.#streams.remove(stream);
    this.#networks.add(stream.network, -1);
    this.#count--;
    this.#bytes -= stream.bytes;
  }
}

/** A stream, PING or GOAWAY that arrived. */
interface Arrival {
  readonly session: object;
  readonly client: string | undefined;
  readonly bytes: number;
}

/**
 * Streams, PING and GOAWAY frames of one turn of the event loop. Node frees a stream only after the turn in which it arrived, even if the client has reset
 * it: 500 connections could open and reset 100,000 streams in one turn.
 */
class ArrivalsOfTurn {
  readonly #sessions = new Set<object>();
  readonly #first = new Arrivals();
  readonly #further = new Arrivals();
  readonly #ofProxies = new Arrivals();

  /**
   * Returns false if there are more than `max` bytes in this turn, or half as many of its client. The first ones of all sessions may take as much
   * again, so that a flood ends no session with a single request. Proxies count apart.
   */
  add({ session, client, bytes }: Arrival, max: number): boolean {
    if (this.#sessions.size === 0) runNextTurn(() => this.#clear());
    const ofClients = this.#sessions.has(session) ? this.#further : this.#first;
    this.#sessions.add(session);
    return (client === undefined ? this.#ofProxies : ofClients).take(client, bytes, max);
  }

  #clear(): void {
    this.#sessions.clear();
    this.#first.clear();
    this.#further.clear();
    this.#ofProxies.clear();
  }
}

class Arrivals {
  /** In bytes. */
  readonly #clients = new Counts();
  #bytes = 0;

  /** A rejected arrival ends its session. It does not count, as one client could otherwise take the share of others. */
  take(client: string | undefined, bytes: number, max: number): boolean {
    if (this.#bytes + bytes > max) return false;
    if (client !== undefined) {
      if (this.#clients.of(client) + bytes > max * CLIENT_SHARE) return false;
      this.#clients.add(client, bytes);
    }
    this.#bytes += bytes;
    return true;
  }

  clear(): void {
    this.#bytes = 0;
    this.#clients.clear();
  }
}

type StreamMemory = Pick<MemoryPressure, 'isTight' | 'onBytes' | 'onGarbage'>;

/** A stream with its request and response. */
interface StreamParts {
  readonly stream: ServerHttp2Stream;
  readonly source: Upload;
  readonly body: Pick<Holder, 'network'>;
  /** Its network represents many clients. */
  readonly isShared: boolean;
  readonly response: TrackedResponse;
  /** The size of the fields as RFC 9113 §6.5.2 counts it. */
  readonly headBytes: number;
  readonly fieldLines: number;
}

class UnfinishedStream implements Holder, ListElement {
  readonly startedAt: Milliseconds;
  readonly parts: StreamParts;
  readonly network: string;
  readonly bytes: number;
  listIndex: number | undefined;

  constructor(startedAt: Milliseconds, parts: StreamParts) {
    this.startedAt = startedAt;
    this.parts = parts;
    this.network = parts.body.network;
    this.bytes = toStreamBytes(parts.headBytes, parts.fieldLines);
  }

  /** Nothing unless the stream waits for its client: to take the end of the response, or to send the rest of the body. Other streams are not ended. */
  get held(): number {
    const { source, response } = this.parts;
    return response.writableEnded || (source.declaredLength !== 0 && !source.isComplete) ? this.bytes : 0;
  }
}
