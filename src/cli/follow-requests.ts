/** Shows requests as they finish, from the stream of the console API. */

import type { DeliveryView } from '../admin/console/delivery-schemas.ts';
import { keepAlive, type Milliseconds, pause, systemClock } from '../core/clock.ts';
import { toPrintable } from '../core/terminal.ts';
import { type ApiClient, ApiFailure, type StreamEvent } from './api-client.ts';
import { EXIT, type Io } from './io.ts';

/** The requests to follow, and how to show one. */
interface FollowedRequests {
  readonly client: ApiClient;
  /** Of the stream. */
  readonly path: string;
  /** Loads recent requests, newest first. */
  readonly load: () => Promise<readonly DeliveryView[]>;
  readonly show: (row: DeliveryView) => void;
}

/** Requests that the list and the stream both contain are shown once. */
const MAX_KNOWN = 2_000;
const RETRY_MS: Milliseconds = 1_000;

/** Ends only when the reader of its output has gone, or if the API rejects it. Reconnects after an interruption. */
export async function followRequests(followed: FollowedRequests, io: Io): Promise<number> {
  const release = keepAlive();
  try {
    return await new Follower(followed, io).run();
  } finally {
    release();
  }
}

class Follower {
  readonly #followed: FollowedRequests;
  readonly #io: Io;
  readonly #known = new Set<string>();
  #lastId: string | undefined;
  /** A connection that never was open is not repeated: the address is probably wrong. */
  #hasBeenOpen = false;
  #isLost = false;

  constructor(followed: FollowedRequests, io: Io) {
    this.#followed = followed;
    this.#io = io;
  }

  async run(): Promise<number> {
    for (;;) {
      const failure = await this.#followOnce();
      if (this.#io.outputClosed?.aborted === true) return EXIT.ok;
      if (!this.#hasBeenOpen || (failure.status >= 400 && failure.status < 500)) throw failure;
      if (!this.#isLost) this.#note(`${failure.message}; trying again`);
      this.#isLost = true;
      await pause(systemClock, RETRY_MS);
    }
  }

  /** Resolves with the reason for the end of the stream. */
  async #followOnce(): Promise<ApiFailure> {
    const { client, path, load } = this.#followed;
    const { outputClosed } = this.#io;
    const ending = new AbortController();
    const signal = outputClosed === undefined ? ending.signal : AbortSignal.any([ending.signal, outputClosed]);
    try {
      // First the stream, so that nothing is missed between it and the list.
      const events = await client.openEvents(path, this.#lastId, signal);
      for (const row of (await load()).toReversed()) this.#show(row);
      this.#hasBeenOpen = true;
      this.#isLost = false;
      for await (const event of events) this.#receive(event);
      return new ApiFailure('sidegate closed the stream');
    } catch (thrown) {
      if (thrown instanceof ApiFailure) return thrown;
      throw thrown;
    } finally {
      // Else a stream whose list could not be read would stay open.
      ending.abort();
    }
  }

  #receive({ name, id, data }: StreamEvent): void {
    this.#lastId = id === '' ? this.#lastId : id;
    if (name === 'gap') this.#note(`more requests arrive than can be shown: ${toSkipped(data)} are missing here`);
    if (name !== 'message') return;
    const row = parseRow(data);
    if (row === undefined) throw this.#followed.client.toStranger();
    this.#show(row);
  }

  #show(row: DeliveryView): void {
    if (this.#known.has(row.id)) return;
    this.#known.add(row.id);
    if (this.#known.size > MAX_KNOWN) for (const oldest of this.#known) if (this.#known.delete(oldest)) break;
    this.#followed.show(row);
  }

  #note(text: string): void {
    this.#io.stderr(`sidegate requests: ${toPrintable(text)}\n`);
  }
}

function parseRow(data: string): DeliveryView | undefined {
  try {
    return JSON.parse(data) as DeliveryView;
  } catch {
    return undefined;
  }
}

function toSkipped(data: string): string {
  return /"skipped":(\d{1,15})/.exec(data)?.[1] ?? 'some';
}
