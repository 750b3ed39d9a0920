/** Deliveries over TLS at a rate, and events for the sending side. */
import { Agent as HttpAgent } from 'node:http';
import { Agent, request } from 'node:https';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';

const CONNECTIONS = 16;
const BODY = JSON.stringify({ type: 'soak.made', data: { text: 'x'.repeat(800) } });
const EVENTS_PER_SECOND = 10;

/** Sends until it is stopped. */
export class Load {
  /** How many responses had each status; `error` without one. */
  readonly statuses = new Map<string, number>();
  readonly #port: number;
  readonly #apiPort: number;
  readonly #findSecret: () => string;
  #agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS, rejectUnauthorized: false });
  readonly #apiAgent = new HttpAgent({ keepAlive: true, maxSockets: 2 });
  #isStopped = false;
  #running: Promise<unknown> = Promise.resolve();

  constructor(port: number, apiPort: number, findSecret: () => string) {
    this.#port = port;
    this.#apiPort = apiPort;
    this.#findSecret = findSecret;
  }

  /** How many deliveries per second the gate and this process can do at most, measured for `duration` ms. */
  async measureRate(duration: number): Promise<number> {
    const end = performance.now() + duration;
    let count = 0;
    const deliverAll = async (): Promise<void> => {
      for (; performance.now() < end; count++) await this.#deliver();
    };
    await Promise.all(Array.from({ length: CONNECTIONS }, deliverAll));
    return (count * 1_000) / duration;
  }

  /** Delivers at that rate, from now on. */
  start(rate: number): void {
    const work = [this.#keepRate(rate, () => this.#deliver()), this.#keepRate(EVENTS_PER_SECOND, () => this.#post())];
    this.#running = Promise.all(work);
  }

  /** Resolves when all responses have come. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#running;
    this.#agent.destroy();
    this.#apiAgent.destroy();
  }

  /** Opens new connections from now on, so that clients see a new certificate. */
  reconnect(): void {
    const old = this.#agent;
    this.#agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS, rejectUnauthorized: false });
    // Requests in flight still use it; later, all its sockets are idle.
    setTimeout(() => old.destroy(), 5_000).unref();
  }

  async #keepRate(rate: number, act: () => Promise<void>): Promise<void> {
    const open = new Set<Promise<void>>();
    const startedAt = performance.now();
    for (let count = 0; !this.#isStopped; count++) {
      const ahead = (count * 1_000) / rate - (performance.now() - startedAt);
      if (ahead > 5) await new Promise((resolve) => setTimeout(resolve, ahead));
      while (open.size >= CONNECTIONS) await Promise.race(open);
      const acting: Promise<void> = act().then(() => void open.delete(acting));
      open.add(acting);
    }
    await Promise.all(open);
  }

  async #post(): Promise<void> {
    const headers = { 'Content-Type': 'application/json' };
    const body = JSON.stringify({ type: 'soak.made', data: {} });
    const { status, code } = await send(this.#apiPort, { path: '/v1/events', headers, body, agent: this.#apiAgent });
    this.#count(`event ${status} ${code ?? ''}`.trim());
  }

  async #deliver(): Promise<void> {
    const { headers, body } = makeDelivery({ secret: this.#findSecret(), body: BODY });
    const status = await new Promise<string>((resolve) => {
      const outgoing = request(
        { port: this.#port, host: '127.0.0.1', method: 'POST', path: '/hooks/soak', headers, agent: this.#agent },
        (incoming) => {
          const refusal = incoming.headers['proxy-status'] ?? '';
          incoming.resume().on('end', () => resolve(`${incoming.statusCode} ${refusal}`.trim()));
        },
      );
      outgoing.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error'));
      outgoing.end(body);
    });
    this.#count(status);
  }

  #count(status: string): void {
    this.statuses.set(status, (this.statuses.get(status) ?? 0) + 1);
  }
}
