/** A request whose head is sound and whose content nobody has read: what gates are asked about. */

import type { BodyStream, RequestBody } from './body.ts';
import type { Client } from './client.ts';
import type { EpochMilliseconds, Milliseconds } from './clock.ts';
import type { HeaderFields, RawHeaders } from './headers.ts';
import type { RequestTarget } from './target.ts';

/** What is known of any request, even one whose head is refused. */
export interface Arrival {
  /** Unique to this request; it joins the sender's answer, the log line and the header the app gets. */
  readonly requestId: string;
  readonly method: string;
  readonly client: Client;
  readonly receivedAt: EpochMilliseconds;
  /** Monotonic. */
  readonly startedAt: Milliseconds;
}

/** A request to change the connection's protocol (RFC 9110 §7.8), which the app may grant. */
export interface UpgradeRequest {
  /** As the client wrote it, for example `websocket`. */
  readonly protocol: string;
  /** Says that it is granted, by this status line and these fields, and gives what the client sends from then on. */
  grant(statusLine: string, fields: RawHeaders): BodyStream;
  /** Sends in the new protocol; false asks to wait for `onDrain`. */
  write(chunk: Buffer): boolean;
  onDrain(action: () => void): void;
  end(): void;
  destroy(): void;
}

/** One request, its head parsed. */
export interface ParsedHead extends Arrival {
  readonly target: RequestTarget;
  readonly headers: HeaderFields;
  readonly body: RequestBody;
  readonly upgrade?: UpgradeRequest;
  /** Where a client of the forward proxy wants to go. */
  readonly destination?: { readonly host: string; readonly port: number };
}
