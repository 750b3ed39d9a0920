/**
 * Pauses in reading a stream. Each pause has a deadline, so that a peer that reads nothing cannot keep a connection and its buffers.
 * Only this file pauses streams and waits for `drain`; scripts/lint-layers.ts checks it.
 */
import { type CancelTimer, type Clock, MAX_TIMER_MS, type Milliseconds } from './clock.ts';
import { offEvent, onEvent } from './safe-events.ts';

/** A stream that can be paused. */
interface Pausable {
  pause(): unknown;
  resume(): unknown;
}

/** A stream, socket or response that takes no more for now. */
export interface BlockedWriter {
  on(event: 'drain' | 'close', listener: () => void): unknown;
  off(event: 'drain' | 'close', listener: () => void): unknown;
  destroy(): unknown;
}

/** A pause, from when it begins until it is ended or overdue. */
export class ReadPause {
  readonly #held = new Set<Pausable>();
  readonly #actions: (() => void)[] = [];
  readonly #cancel: CancelTimer;
  #isOver = false;

  /** `onOverdue` ends what made the pause necessary; the pause itself ends with it. */
  constructor(clock: Clock, atMost: Milliseconds, onOverdue: () => void) {
    this.#cancel = clock.after(Math.min(atMost, MAX_TIMER_MS), () => {
      onOverdue();
      this.end();
    });
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Stops reading `source` until the pause is over. */
  hold(source: Pausable): void {
    if (this.#isOver) return;
    this.#held.add(source);
    source.pause();
  }

  /** Reads `source` again before the pause is over. */
  release(source: Pausable): void {
    if (this.#held.delete(source)) source.resume();
  }

  /** Runs `action` once the pause is over, before its streams are read again. */
  onOver(action: () => void): void {
    if (this.#isOver) action();
    else this.#actions.push(action);
  }

  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancel();
    for (const action of this.#actions) action();
    for (const source of this.#held) source.resume();
  }
}

/** Begins a pause that ends when `writer` has drained or is closed. If it is overdue, `writer` is destroyed, unless `onOverdue` says what else to do. */
export function pauseUntilDrained(
  writer: BlockedWriter,
  clock: Clock,
  atMost: Milliseconds,
  onOverdue: () => void = () => writer.destroy(),
): ReadPause {
  const pause = new ReadPause(clock, atMost, onOverdue);
  const onDrain = onEvent(writer, 'drain', () => pause.end());
  const onClose = onEvent(writer, 'close', () => pause.end());
  pause.onOver(() => {
    offEvent(writer, 'drain', onDrain);
    offEvent(writer, 'close', onClose);
  });
  return pause;
}

/** Stops reading a socket for another reader, which begins within `takeOver` and has its own deadlines. */
export function handOver(socket: Pausable, takeOver: () => void): void {
  socket.pause();
  takeOver();
}
