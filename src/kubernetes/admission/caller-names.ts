/** Tells the API server from other callers: by a client certificate of a known CA, and by the name in it. */
import type { TLSSocket } from 'node:tls';
import type { Clock, EpochMilliseconds } from '../../core/clock.ts';

/** What is known of a connection's certificate. */
interface Caller {
  readonly isAllowed: boolean;
  readonly validUntil: EpochMilliseconds;
}

const STRANGER: Caller = { isAllowed: false, validUntil: 0 };

/** The names that may call. */
export class CallerNames {
  readonly #allowed: ReadonlySet<string>;
  readonly #clock: Clock;
  /** Of connections that are open: reading a certificate costs more than a review. */
  readonly #callers = new WeakMap<TLSSocket, Caller>();

  /** `allowed`: common names (CN). Empty: nobody is verified. */
  constructor(allowed: readonly string[], clock: Clock) {
    this.#allowed = new Set(allowed);
    this.#clock = clock;
  }

  /** Whether the caller showed a certificate that leads to the CA, has one of the names and has not ended, however old the connection is. */
  isVerified(socket: TLSSocket): boolean {
    const { isAllowed, validUntil } = this.#callers.get(socket) ?? this.#read(socket);
    return isAllowed && this.#clock.now() < validUntil;
  }

  #read(socket: TLSSocket): Caller {
    const caller = socket.authorized ? this.#judge(socket) : STRANGER;
    this.#callers.set(socket, caller);
    return caller;
  }

  #judge(socket: TLSSocket): Caller {
    const { subject, valid_to: validTo } = socket.getPeerCertificate();
    const name: unknown = subject?.CN;
    // Several names are a list here: a certificate with two is no API server's.
    return { isAllowed: typeof name === 'string' && this.#allowed.has(name), validUntil: Date.parse(validTo ?? '') };
  }
}
