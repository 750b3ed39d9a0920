/** Recognizes the API server by a client certificate of a known CA, and by the name in it. */
import type { TLSSocket } from 'node:tls';
import type { Clock, EpochMilliseconds } from '../../core/clock.ts';

/** The result of checking a connection's certificate. */
interface Caller {
  readonly isAllowed: boolean;
  readonly validUntil: EpochMilliseconds;
}

const UNVERIFIED: Caller = { isAllowed: false, validUntil: 0 };

/** The allowed names of callers. */
export class CallerNames {
  readonly #allowed: ReadonlySet<string>;
  readonly #clock: Clock;
  /** Cached for open connections, because reading a certificate takes longer than a review. */
  readonly #callers = new WeakMap<TLSSocket, Caller>();

  /** `allowed`: common names (CN). If empty, no caller is verified. */
  constructor(allowed: readonly string[], clock: Clock) {
    this.#allowed = new Set(allowed);
    this.#clock = clock;
  }

  /** Whether the caller has a certificate of the CA with an allowed name that has not expired since the connection was opened. */
  isVerified(socket: TLSSocket): boolean {
    const { isAllowed, validUntil } = this.#callers.get(socket) ?? this.#read(socket);
    return isAllowed && this.#clock.now() < validUntil;
  }

  #read(socket: TLSSocket): Caller {
    const caller = socket.authorized ? this.#check(socket) : UNVERIFIED;
    this.#callers.set(socket, caller);
    return caller;
  }

  #check(socket: TLSSocket): Caller {
    const { subject, valid_to: validTo } = socket.getPeerCertificate();
    const name: unknown = subject?.CN;
    // CN is an array if there are several: an API server's certificate has exactly one.
    return { isAllowed: typeof name === 'string' && this.#allowed.has(name), validUntil: Date.parse(validTo ?? '') };
  }
}
