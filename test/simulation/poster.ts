/** The app of the sending side: posts events to the API of its sidecar until they are accepted, one after the other for each customer. */
import { Client } from './client.ts';
import { formatRequest, type HttpMessage, statusOf } from './http-text.ts';
import type { PostedEvent } from './ledger.ts';
import { API_PORT, PROVIDER_MACHINE } from './machine-config.ts';
import type { Owner } from './scheduler.ts';
import type { World } from './world.ts';

/** The state of a delivery in the API. */
export interface DeliveryView {
  readonly event: string;
  readonly endpoint: string;
  readonly state: string;
  readonly attempts: number;
}

const MAX_RETRY_MS = 30_000;

export class Poster {
  readonly #world: World;
  readonly #owner: Owner;
  readonly #client: Client;
  readonly #lines = new Map<string, Promise<void>>();
  #accepted = 0;
  /** Events that were not accepted yet. */
  pending = 0;

  constructor(world: World) {
    this.#world = world;
    this.#owner = world.createOwner('poster', PROVIDER_MACHINE);
    this.#client = new Client(world, this.#owner);
  }

  schedule(at: number, id: string, tenant: string, customer: string): void {
    const { scheduler, ledger } = this.#world;
    this.pending++;
    const event: PostedEvent = { id, tenant, customer, number: 0, acceptedAt: undefined };
    ledger.posted.set(id, event);
    scheduler.after(at - scheduler.now, this.#owner, () => {
      // The next event of a customer is posted once the one before it was accepted: that is their order.
      const before = this.#lines.get(customer) ?? Promise.resolve();
      this.#lines.set(
        customer,
        before.then(() => this.#post(event, tenant)),
      );
    });
  }

  /** Runs work as this process. */
  run(work: () => Promise<void>): void {
    this.#world.scheduler.after(0, this.#owner, work);
  }

  /** All deliveries that the provider still has; undefined if it does not respond. */
  async list(): Promise<readonly DeliveryView[] | undefined> {
    const found: DeliveryView[] = [];
    for (let iterator = ''; ; ) {
      const response = await this.#request(`/v1/deliveries?limit=100${iterator}`, Buffer.alloc(0));
      if (response === undefined || statusOf(response) !== 200) return undefined;
      const page = JSON.parse(response.body.toString()) as { data: DeliveryView[]; iterator: string | null; done: boolean };
      found.push(...page.data);
      if (page.done || page.iterator === null) return found;
      iterator = `&iterator=${encodeURIComponent(page.iterator)}`;
    }
  }

  close(): void {
    this.#client.close();
  }

  async #post(event: PostedEvent, tenant: string): Promise<void> {
    const { scheduler } = this.#world;
    const { id, customer } = event;
    const body = Buffer.from(JSON.stringify({ type: 'invoice.paid', id, tenant, data: { customer } }));
    for (let delay = 200; ; delay = Math.min(2 * delay, MAX_RETRY_MS)) {
      const response = await this.#request('/v1/events', body);
      const status = response === undefined ? 0 : statusOf(response);
      this.#world.note(`post ${id} ${status}`);
      if (status === 202) break;
      if (status >= 400 && status < 500) this.#world.ledger.alarms.push(`the API rejected ${id} with ${status}`);
      await new Promise<void>((resolve) => {
        scheduler.after(scheduler.random.between(delay / 2, delay), this.#owner, resolve);
      });
    }
    event.acceptedAt = scheduler.now;
    event.number = ++this.#accepted;
    this.pending--;
  }

  #request(path: string, body: Buffer): Promise<HttpMessage | undefined> {
    const headers = { 'Content-Type': 'application/json' };
    const bytes = formatRequest(path, `127.0.0.1:${API_PORT}`, headers, body);
    return this.#client.send({ host: '127.0.0.1', port: API_PORT, bytes, timeout: 10_000 });
  }
}
