/** A request as the gates take it, with a valid head and a body that is not read yet: its client, its body, and the response to it. */
import type { Socket } from 'node:net';
import type { Clock, EpochMilliseconds, Milliseconds } from './clock.ts';
import type { HeaderFields, RawHeaders, RequestTarget } from './head.ts';
import type { BlockedWriter, PauseOwner, ReadPause } from './reading.ts';
import type { Reason, Refusal } from './refusal.ts';

/** A request with a parsed head. */
export interface ParsedHead extends RequestInfo {
  readonly target: RequestTarget;
  readonly headers: HeaderFields;
  readonly body: RequestBody;
  readonly upgrade?: UpgradeRequest;
  /** The destination that a client of the forward proxy requests. */
  readonly destination?: { readonly host: string; readonly port: number };
}

/** The data of any request, even of one whose head is rejected. */
export interface RequestInfo {
  /** Unique to this request; it links the response, the log line and the header that the app gets. */
  readonly requestId: string;
  readonly method: string;
  readonly client: Client;
  readonly receivedAt: EpochMilliseconds;
  /** Monotonic. */
  readonly startedAt: Milliseconds;
}

/** The client of a request, with trusted proxies taken into account. */
export interface Client {
  /** The address that limits and logs use. */
  readonly address: string;
  /** The remote address of the connection. */
  readonly peer: string;
  /** The peer is a proxy of `listen.trustedProxies`: its X-Forwarded-* fields are trusted. */
  readonly viaTrustedProxy: boolean;
  /** The peer is a proxy of `listen.trustedIdentityProxies`: it may assert the identity of the client. */
  readonly viaIdentityProxy: boolean;
  /** The protocol that the client used: of the connection, or as reported by a trusted proxy. */
  readonly scheme: 'http' | 'https';
  /** The certificate of the connection itself. */
  readonly certificate?: PresentedCertificate;
  /** Why the connection's certificate became invalid; `certificate` is then absent. */
  readonly certificateEnd?: CertificateEnd;
}

/** A client certificate from the TLS handshake, issued by a CA that the port trusts. */
interface PresentedCertificate {
  /** The subject alternative names as `DNS:…`, `URI:…`, `email:…` and `IP Address:…`, and the common name as `CN:…`. */
  readonly names: readonly string[];
  /** DER. */
  readonly raw: Buffer;
}

/** Why a certificate no longer authenticates its connection: it expired, or the client CAs or revocation lists changed. */
export type CertificateEnd = Extract<Reason, 'certificate_expired' | 'client_trust_changed'>;

/** A request to change the connection's protocol (RFC 9110 §7.8), which the app may accept. */
export interface UpgradeRequest {
  /** As the client sent it, for example `websocket`. */
  readonly protocol: string;
  /** Accepts the upgrade with this status line and these fields. Returns the stream of what the client sends from then on. */
  grant(statusLine: string, fields: RawHeaders): BodyStream;
  /** Sends bytes in the new protocol. Returns false to ask the caller to wait until `writer` has drained; `onWritten` as in ClientResponse. */
  write(chunk: Buffer, onWritten?: (error?: Error | null) => void): boolean;
  readonly writer: BlockedWriter;
  /** Ends this direction; the client may still send. */
  end(): void;
  /** Closes the connection once the client has taken what was sent, or after `atMost`. */
  close(clock: Clock, atMost: Milliseconds): void;
  destroy(): void;
}

/** In characters; the longest registered method, UPDATEREDIRECTREF, has 17 (IANA HTTP Method Registry). */
export const MAX_METHOD_LENGTH = 32;

/** Requests by these methods usually have no content (RFC 9110 §9.3.1, §9.3.5), so they need no Content-Type; they must be empty then. */
export const METHODS_WITHOUT_CONTENT: ReadonlySet<string> = new Set(['GET', 'HEAD', 'DELETE']);

/** The body of a request. It is read or opened at most once, within limits. */
export interface RequestBody extends PauseOwner {
  /** The declared Content-Length in bytes; undefined if the body is chunked; 0 without a body. */
  readonly declaredLength: number | undefined;
  /**
   * Reads the whole body, up to `maxBytes`: a refusal if it is too large, too slow or cut off; a promise only if it has to arrive. Later
   * calls return the first result. `route`: if several share the memory for bodies.
   */
  read(maxBytes: number, route?: string): Buffer | Refusal | Promise<Buffer | Refusal>;
  /** Opens the body as a stream; returns an empty Buffer without a body. Do not call it after `read`. */
  open(): Buffer | BodyStream;
  /**
   * Resolves when an opened stream starts to arrive, or with a refusal if it never does. Returns undefined if no stream is open.
   */
  arriving?(): Promise<Refusal | undefined> | undefined;
  /** A stream is open, and the rest of it is yet to arrive. */
  readonly isArriving?: boolean;
  /** The result of `read`; undefined until it settles. */
  readonly content?: Buffer | Refusal | undefined;
  /** Bytes received so far. */
  readonly received: number;
  /** Nothing is left to read, or so little that it can be discarded and the connection kept. */
  readonly isCheapToDrain: boolean;
  /** Returns the buffer's bytes to the shared budget. Call it once, when the request is finished. */
  free(): void;
  /**
   * Also frees the memory immediately and clears `content`. Call it only if nothing was sent to the app, or if all of it was: the
   * upstream connection might still be writing it.
   */
  discard(): void;
}

/** A body that is streamed. */
export interface BodyStream {
  /** In bytes; undefined if it is not known in advance. */
  readonly length: number | undefined;
  /** The client that sends it. */
  readonly owner: PauseOwner;
  /** Starts the stream. Call it once. */
  start(consumer: BodyConsumer): void;
  /** Ends the stream as if it had failed for this reason. */
  fail(reason: Reason): void;
  /** Discards the rest of the body. */
  stop(): void;
}

/** Receives a streamed body: `write` any number of times, then exactly one of `end` and `fail`. */
export interface BodyConsumer {
  /** Takes ownership of the chunk. The stream is not read during the pause that it returns; chunks that were already read still arrive. */
  write(chunk: Buffer): ReadPause | undefined;
  end(): void;
  /** The body was cut off, or arrived too slowly. */
  fail(reason: Reason): void;
}

/** The members that both have in common, named as in node:http. */
export interface ClientResponse {
  readonly req: {
    /** 0 for HTTP/1.0, which has neither chunked coding nor interim responses. */
    readonly httpVersionMinor: number;
    /** Absent if other responses share the connection (HTTP/2). */
    readonly socket?: Socket;
  };
  readonly headersSent: boolean;
  readonly writableEnded: boolean;
  /** Bytes that are still buffered in this process. */
  readonly writableLength: number;
  /** The client disconnected, or the response was cut off. */
  readonly destroyed: boolean;
  /** The framing marks the end of the response, and can carry trailers. */
  readonly chunkedEncoding: boolean;
  /** Set it to false to close the connection after this response. */
  shouldKeepAlive: boolean;
  statusMessage: string;
  /** Sets a field for any head that is written; a field of the same name in the head overrides it. */
  setHeader(name: string, value: string): unknown;
  /** `fields`: raw pairs. Throws if the head cannot be sent. */
  writeHead(status: number, statusText: string | undefined, fields: string[]): unknown;
  flushHeaders(): void;
  writeEarlyHints(hints: { link: string[] }): void;
  /**
   * Returns false to ask the caller to wait for `drain`. `onWritten`, if it is called, reports that the chunk is written and its
   * memory can be reused, or the error that prevented the write.
   */
  write(chunk: Buffer, onWritten?: (error?: Error | null) => void): boolean;
  addTrailers(trailers: readonly [string, string][]): void;
  end(): unknown;
  end(last: string | undefined, encoding: 'latin1'): unknown;
  /** Called before a refusal that is the client's fault; HTTP/2 limits how many there are. */
  onRejected?(): void;
  /** Cuts the response off, so that the client cannot take a partial response for a complete one. */
  destroy(): unknown;
  /** For `onEvent`, which guards the listener. */
  on(event: ResponseEvent, listener: () => void): unknown;
  off(event: ResponseEvent, listener: () => void): unknown;
}

/** The events of a response. `finish`: the operating system has taken all of it. */
export type ResponseEvent = 'drain' | 'finish' | 'close';
