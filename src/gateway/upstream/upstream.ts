/** The seam between the forwarder's policy and the bytes on the wire to the app. */

import type { BodyStream } from '../../core/body.ts';
import type { Milliseconds } from '../../core/clock.ts';
import type { RawHeaders } from '../../core/headers.ts';
import type { ReleaseBuffer } from './read-buffers.ts';

/** A request to the app, complete: the framing header is among `headers`, which are sent as they are, in order. */
export interface UpstreamRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: RawHeaders;
  /** A stream is sent as it comes: framed by Content-Length where its length is known, else in chunks, as `headers` say. */
  readonly body: Buffer | BodyStream;
  /** Asks for another protocol: a connection of its own, which is the listener's once the app grants it. */
  readonly isUpgrade?: boolean;
  /** May be sent twice without harm (RFC 9110 §9.2.2), or the route says so. */
  readonly repeatable: boolean;
}

/** How a request to the app failed; a closed set, used as a metric label. */
export const UPSTREAM_FAILURES = ['connect', 'timeout', 'reset', 'protocol'] as const;
export type UpstreamFailureKind = (typeof UPSTREAM_FAILURES)[number];

/** A failed exchange. */
export interface UpstreamFailure {
  readonly kind: UpstreamFailureKind;
  /** No byte of the request can have reached the app: trying again is safe, and a claim can be released. */
  readonly nothingSent: boolean;
  /** For the operator's log. */
  readonly detail: string;
}

/** Hears the app's answer: onInformation*, onHead, onData*, then exactly one of onEnd and onFailure (which may come at any point). */
export interface UpstreamListener {
  /** A 1xx other than 100 and 101. */
  onInformation(status: number, headers: RawHeaders): void;
  onHead(status: number, statusText: string, headers: RawHeaders): void;
  /** Another protocol is granted: onData and onEnd tell what comes in it, and what is returned is sent in it; undefined where it may not be. */
  onUpgrade?(headers: RawHeaders): BodyStream | undefined;
  /**
   * The chunk is the listener's to keep; where there is `releaseBuffer`, its memory is used again once that is called. False asks for
   * a pause until `resume` is called; what is read already still comes.
   */
  onData(chunk: Buffer, releaseBuffer?: ReleaseBuffer): boolean;
  onEnd(trailers: RawHeaders): void;
  onFailure(failure: UpstreamFailure): void;
}

/** An exchange that is under way. */
export interface UpstreamExchange {
  resume(): void;
  /** Gives up: the connection is destroyed, and the listener hears nothing more. */
  abort(): void;
}

/** Limits of the connection to one app. */
export interface UpstreamOptions {
  readonly host: string;
  readonly port: number;
  readonly connectTimeout: Milliseconds;
  /**
   * From the request's being written to the whole of the answer's head (1xx and dripping bytes win no time). It also bounds the
   * wait for a connection, and for the app to take more of a stream.
   */
  readonly responseTimeout: Milliseconds;
  /** Longest gap between two pieces of an answer's content. */
  readonly idleResponseTimeout: Milliseconds;
  /** How long an idle connection is kept; below the app's own keep-alive (Node's default is 5 s), or requests race its close. */
  readonly idleTimeout: Milliseconds;
  /** Most connections at once; further requests wait in order. */
  readonly maxConnections: number;
  /** Largest answer head in bytes. */
  readonly maxHeadBytes: number;
}

/** A pool of kept-alive connections to one app. */
export interface Upstream {
  send(request: UpstreamRequest, listener: UpstreamListener): UpstreamExchange;
  /** Closes idle connections now and busy ones when they are done. */
  close(): void;
  /** Closes all connections now; listeners hear nothing more. */
  destroy(): void;
}
