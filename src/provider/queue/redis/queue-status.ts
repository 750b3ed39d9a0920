/** Tracks whether Redis is reachable, and reports changes to the operator. */
import type { Clock } from '../../../core/clock.ts';
import { SidegateError } from '../../../core/errors.ts';
import { onEvent } from '../../../core/safe-events.ts';
import type { RedisClient } from '../../../state/redis/client.ts';
import type { RedisTopology } from '../../../state/redis/options.ts';
import { OutageRecord } from '../../../state/redis/outage.ts';

/** Callbacks for what the operator should know. Texts contain no credentials. */
export interface QueueStatusHooks {
  readonly onAvailable: () => void;
  readonly onUnavailable: (reason: string) => void;
  /** Serving a lane failed because of a bug or the store; it is repeated. */
  readonly onRunError: (endpoint: string, error: unknown) => void;
  /** BullMQ or the sweep failed while Redis was reachable; both go on. */
  readonly onStoreError: (error: unknown) => void;
}

/** A failure of a call or a connection. */
interface Failure {
  readonly message?: string;
  readonly code?: unknown;
}

export class QueueStatus {
  readonly #hooks: QueueStatusHooks;
  readonly #outage: OutageRecord;
  #isUp: boolean | undefined;
  #isClosed = false;

  constructor(topology: RedisTopology, clock: Clock, hooks: QueueStatusHooks) {
    this.#outage = new OutageRecord(topology, clock);
    this.#hooks = hooks;
  }

  watch(client: RedisClient): RedisClient {
    onEvent(client, 'ready', () => this.markUp());
    onEvent(client, 'error', (error: Error) => this.markDown(error));
    onEvent(client, 'close', () => this.markDown({ code: 'EPIPE' }));
    return client;
  }

  markUp(): void {
    if (this.#isUp === true || this.#isClosed) return;
    this.#isUp = true;
    this.#outage.end();
    this.#hooks.onAvailable();
  }

  /** Returns the message for the operator. */
  markDown(error: Failure): string {
    if (this.#isClosed) return 'the queue is closed';
    const { message } = this.#outage.fail(error);
    if (this.#isUp !== false) {
      this.#isUp = false;
      this.#hooks.onUnavailable(message);
    }
    return message;
  }

  /** Reports an error of BullMQ or of the sweep, unless it only says that Redis is not reachable. */
  report(error: unknown): void {
    const isKnown = error instanceof SidegateError && error.code === 'queue_unavailable';
    if (!this.#isClosed && !isKnown && !isConnectionError(error as Failure)) this.#hooks.onStoreError(error);
  }

  close(): void {
    this.#isClosed = true;
  }
}

function isConnectionError({ code, message = '' }: Failure): boolean {
  return (
    typeof code === 'string' ||
    /^(?:Connection is closed|Socket timeout|All sentinels|ClusterAllFailed|Failed to refresh)/.test(message)
  );
}
