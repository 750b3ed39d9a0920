/** The state of a connection that is being opened, and why it could not be opened. */
import type { Socket } from 'node:net';
import type { Milliseconds } from '../../core/clock.ts';

/** A connection that is being opened. */
export interface Opening {
  /** The step that it waits for, which is also the outcome if that step fails. */
  phase: 'dns' | 'connect' | 'tls';
  /** Destroyed to cancel. */
  socket: Socket | undefined;
  isCanceled: boolean;
  /** For all addresses together; the caller watches it. */
  readonly timeout: Milliseconds;
  /** Shared by all connections: bytes are taken before the next read. */
  readonly readBuffer: Buffer;
  /** Takes what the peer sends. */
  readonly onBytes: (bytes: Buffer) => void;
}

/** The step that failed; `blocked`: the address or the proxy does not allow it. */
export type OpenOutcome = Opening['phase'] | 'blocked' | 'aborted';

/** Why no connection was opened. The message names no path and no credentials. */
export class OpenFailure extends Error {
  readonly outcome: OpenOutcome;

  constructor(outcome: OpenOutcome, message: string) {
    super(message);
    this.name = 'OpenFailure';
    this.outcome = outcome;
  }
}

/** The code of an error: its message may quote what the peer sent. */
export function toCode(thrown: unknown): string {
  const { code } = Object(thrown) as { code?: unknown };
  return typeof code === 'string' ? code : 'unknown error';
}
