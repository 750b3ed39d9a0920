/** TLS sessions for resumption, which saves the handshake's certificates and signatures. */
import type { Clock, Milliseconds } from '../../core/clock.ts';

interface KeptSession {
  readonly session: Buffer;
  readonly at: Milliseconds;
}

/** A session has a few kilobytes. */
const MAX_SESSIONS = 1_000;
/** A resumed session is not checked again, so that a certificate that expired would stay valid. */
const MAX_AGE_MS: Milliseconds = 3_600_000;

/** The newest session of each target; the least recently renewed ones are dropped. */
export class TlsSessions {
  readonly #clock: Clock;
  readonly #sessions = new Map<object, KeptSession>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  find(target: object): Buffer | undefined {
    const kept = this.#sessions.get(target);
    if (kept === undefined) return undefined;
    if (this.#clock.monotonic() - kept.at < MAX_AGE_MS) return kept.session;
    this.#sessions.delete(target);
    return undefined;
  }

  /** A session that resumes an older one keeps that one's age: only a full handshake checks the certificate. */
  keep(target: object, session: Buffer): void {
    const at = this.#sessions.get(target)?.at ?? this.#clock.monotonic();
    this.#sessions.delete(target);
    this.#sessions.set(target, { session, at });
    if (this.#sessions.size <= MAX_SESSIONS) return;
    const [oldest] = this.#sessions.keys();
    if (oldest !== undefined) this.#sessions.delete(oldest);
  }

  forget(target: object): void {
    this.#sessions.delete(target);
  }
}
