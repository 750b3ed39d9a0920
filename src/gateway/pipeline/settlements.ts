/** Settles every claim of an ID or a resource: retries failed confirms and releases until the store accepts them or they are moot. */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { whenSettled } from '../../core/safe-events.ts';
import type { LeaveRequest, NewestVersions } from '../../state/newest-versions.ts';
import type { SeenIds } from '../../state/seen-ids.ts';

interface AnySettlement {
  readonly kind: 'confirm' | 'release';
  readonly key: string;
  /** Monotonic time after which settling changes nothing: the lease's end for a release, the retention's for a confirm. */
  readonly mootAt: Milliseconds;
}

/** The end of one claim of an ID. */
export interface IdSettlement extends AnySettlement {
  readonly of: 'id';
  readonly token: string;
  readonly fingerprint: string;
  /** How long a confirmed ID is remembered. */
  readonly retention: Milliseconds;
}

/** The end of one event's claim of its resource. */
export interface ResourceSettlement extends AnySettlement {
  readonly of: 'resource';
  readonly versions: NewestVersions;
  readonly leave: LeaveRequest;
}

/** A settlement to be written to the store. */
export type ClaimSettlement = IdSettlement | ResourceSettlement;

/** The outcome of a settlement, for the metrics. */
export type SettlementOutcome = 'confirmed' | 'released' | 'fenced' | 'settle_retried' | 'settle_lost';

const MIN_RETRY_MS = 100;
const MAX_RETRY_MS = 5_000;
/** Waiting settlements are a few hundred bytes each. */
const MAX_WAITING = 10_000;
const BATCH_SIZE = 100;

/** Settles claims off the sender's critical path. */
export class Settlements {
  readonly #store: SeenIds;
  readonly #clock: Clock;
  readonly #events;
  readonly #waiting: ClaimSettlement[] = [];
  #inProgress = 0;
  #retryDelay = MIN_RETRY_MS;
  #timer: CancelTimer | undefined;
  #onIdle: (() => void)[] = [];

  constructor(
    store: SeenIds,
    clock: Clock,
    events: {
      onOutcome(outcome: SettlementOutcome, settlement: ClaimSettlement): void;
      onLost(settlement: ClaimSettlement, message: string): void;
    },
  ) {
    this.#store = store;
    this.#clock = clock;
    this.#events = events;
  }

  /** The number of settlements that are in progress or wait for the store. */
  get pending(): number {
    return this.#inProgress + this.#waiting.length;
  }

  /** Settles now, or as soon as the store can; never throws. */
  settle(settlement: ClaimSettlement): void {
    this.#inProgress++;
    whenSettled(
      this.#write(settlement),
      (held) => this.#onWritten(settlement, held),
      // The store reports the reason through its own events; here only the retry matters.
      () => this.#onFailed(settlement),
    );
  }

  /** Resolves when nothing is pending, or after `timeout`; what remains then is reported as lost. */
  async drain(timeout: Milliseconds): Promise<void> {
    if (this.pending > 0) {
      await new Promise<void>((resolve) => {
        const cancel = this.#clock.after(timeout, resolve);
        this.#onIdle.push(() => {
          cancel();
          resolve();
        });
        this.#retryNow();
      });
    }
    this.#timer?.();
    for (const left of this.#waiting.splice(0)) this.#lose(left, 'sidegate stopped before the store came back');
  }

  #onWritten(settlement: ClaimSettlement, held: boolean): void {
    this.#inProgress--;
    this.#retryDelay = MIN_RETRY_MS;
    const outcome = settlement.kind === 'confirm' ? 'confirmed' : 'released';
    this.#events.onOutcome(held ? outcome : 'fenced', settlement);
    this.#reportIdle();
  }

  #onFailed(settlement: ClaimSettlement): void {
    this.#inProgress--;
    this.#enqueue(settlement);
    this.#reportIdle();
  }

  #write(settlement: ClaimSettlement): Promise<boolean> {
    if (settlement.of === 'resource') return settlement.versions.leave(settlement.leave);
    const { kind, key, token, fingerprint, retention } = settlement;
    return kind === 'confirm' ? this.#store.confirm(key, token, fingerprint, retention) : this.#store.release(key, token);
  }

  #enqueue(settlement: ClaimSettlement): void {
    if (this.#waiting.length >= MAX_WAITING) {
      this.#lose(settlement, 'too many settlements wait for the store');
      return;
    }
    this.#events.onOutcome('settle_retried', settlement);
    this.#waiting.push(settlement);
    this.#timer ??= this.#clock.after(this.#retryDelay, () => this.#retryNow());
  }

  #retryNow(): void {
    this.#timer?.();
    this.#timer = undefined;
    this.#retryDelay = Math.min(this.#retryDelay * 2, MAX_RETRY_MS);
    const now = this.#clock.monotonic();
    for (const settlement of this.#waiting.splice(0, BATCH_SIZE)) {
      if (now < settlement.mootAt) this.settle(settlement);
      else if (settlement.kind === 'confirm') this.#lose(settlement, 'the store was unavailable for the whole retention');
      // Dropping a moot release loses nothing: the lease has expired, so the sender's retry is forwarded anyway.
    }
    if (this.#waiting.length > 0) this.#timer = this.#clock.after(this.#retryDelay, () => this.#retryNow());
    this.#reportIdle();
  }

  #lose(settlement: ClaimSettlement, message: string): void {
    this.#events.onOutcome('settle_lost', settlement);
    this.#events.onLost(settlement, message);
  }

  #reportIdle(): void {
    if (this.pending > 0) return;
    for (const resolve of this.#onIdle.splice(0)) resolve();
  }
}
