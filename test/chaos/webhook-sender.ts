/**
 * A sender as real ones are: it signs each attempt anew under the same ID, retries with growing pauses until it gets a 2xx, gives up on slow
 * responses, and sometimes sends one event twice at once. It remembers what it saw of each event.
 */
import { Agent } from 'node:http';
import { type Answer, send } from '../support/client.ts';
import { type Delivery, makeDelivery } from '../support/deliveries.ts';
import type { Random } from '../support/seeded.ts';
import { lasts, MAX_BACKOFF_MS, MIN_BACKOFF_MS, MIN_SENDER_TIMEOUT_MS, PATH } from './settings.ts';

/** What the sender knows of one event. */
export interface SentEvent {
  readonly id: string;
  attempts: number;
  /** When it saw a 2xx; undefined until then. */
  acknowledgedAt: number | undefined;
}

/** The response to one attempt; status 0: no response. */
export interface Response {
  readonly status: number;
  readonly code: string | undefined;
}

/** One in so many events is sent twice at once. */
const TWICE_EVERY = 30;

/** Sends events to several gates, in turn. */
export class WebhookSender {
  readonly sent: SentEvent[] = [];
  /** How many responses had each status and code. */
  readonly responses = new Map<string, number>();
  /** Acknowledged deliveries, byte by byte, for replays. */
  readonly captured: Delivery[] = [];
  readonly #ports: readonly number[];
  readonly #random: Random;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 512 });
  #turn = 0;
  #isStopped = false;

  constructor(ports: readonly number[], random: Random) {
    this.#ports = ports;
    this.#random = random;
  }

  /** Delivers one event, however long it takes. */
  async deliver(number: number): Promise<void> {
    const id = `direct-${number}`;
    const body = JSON.stringify({ type: 'chaos.made', data: { number, text: 'x'.repeat(this.#random(600)) } });
    const event: SentEvent = { id, attempts: 0, acknowledgedAt: undefined };
    this.sent.push(event);
    const isTwice = this.#random(TWICE_EVERY) === 0;
    for (let pause = MIN_BACKOFF_MS; !this.#isStopped; pause = Math.min(pause * 2, MAX_BACKOFF_MS)) {
      const delivery = makeDelivery({ id, body });
      const attempts = isTwice
        ? [this.#attempt(event, delivery), this.#attempt(event, delivery)]
        : [this.#attempt(event, delivery)];
      await Promise.all(attempts);
      if (event.acknowledgedAt !== undefined) return;
      await lasts(pause * (0.8 + this.#random(400) / 1_000));
    }
  }

  async #attempt(event: SentEvent, delivery: Delivery): Promise<void> {
    event.attempts++;
    const { status } = await this.attempt(delivery);
    if (status < 200 || status > 299) return;
    event.acknowledgedAt ??= Date.now();
    this.captured.push(delivery);
    if (this.captured.length > 500) this.captured.splice(0, 250);
  }

  /** Sends a delivery once, to the next gate. */
  async attempt(delivery: Delivery): Promise<Response> {
    const port = this.#ports[this.#turn++ % this.#ports.length] as number;
    const timeout = MIN_SENDER_TIMEOUT_MS + this.#random(2_500);
    const response = await withTimeout(send(port, { ...delivery, path: PATH, agent: this.#agent }), timeout);
    const key = `${response.status} ${response.code ?? ''}`.trim();
    this.responses.set(key, (this.responses.get(key) ?? 0) + 1);
    return response;
  }

  /** Closes the idle connections. */
  stop(): void {
    this.#isStopped = true;
    this.#agent.destroy();
  }
}

/** The request stays open after the timeout, as that of a sender whose own timeout is shorter than its proxy's. */
async function withTimeout(response: Promise<Answer>, timeout: number): Promise<Response> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Response>((resolve) => {
    timer = setTimeout(resolve, timeout, { status: 0, code: 'timeout' });
  });
  const failed = (error: NodeJS.ErrnoException): Response => ({ status: 0, code: error.code });
  const first = await Promise.race([response.then(({ status, code }) => ({ status, code }), failed), late]);
  clearTimeout(timer);
  return first;
}
