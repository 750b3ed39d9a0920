/** Simulated senders of webhooks, which retry until they get a 2xx, and an attacker, who forges, changes and replays deliveries. */
import { signV1 } from '../support/deliveries.ts';
import { Client } from './client.ts';
import { formatRequest, statusOf } from './http-text.ts';
import type { SentEvent } from './ledger.ts';
import { DATA_PORT, SENDER_MACHINE, TOLERANCE_MS } from './machine-config.ts';
import type { Owner } from './scheduler.ts';
import type { World } from './world.ts';

const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 120_000;
const WRONG_SECRET = 'whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA';
const MAX_BODY = 80_000;

/** A request as it went over the network. */
interface CapturedRequest {
  readonly machine: string;
  readonly bytes: Buffer;
}

export class Senders {
  readonly #world: World;
  readonly #owner: Owner;
  readonly #attacker: Owner;
  readonly #client: Client;
  readonly #attackerClient: Client;
  readonly #targets: readonly string[];
  readonly #captured: CapturedRequest[] = [];
  /** Events that no 2xx acknowledged yet. */
  pending = 0;

  constructor(world: World, targets: readonly string[]) {
    this.#world = world;
    this.#targets = targets;
    this.#owner = world.createOwner('sender', SENDER_MACHINE);
    this.#attacker = world.createOwner('attacker', '10.5.0.1');
    this.#client = new Client(world, this.#owner);
    this.#attackerClient = new Client(world, this.#attacker);
  }

  /** Sends one event to a route, until it is acknowledged. */
  schedule(at: number, id: string, route: string, data: object, targets = this.#targets): void {
    const { scheduler, ledger } = this.#world;
    const event: SentEvent = { id, route, createdAt: at, ackedAt: undefined, ackedBy: undefined, attempts: 0 };
    ledger.sent.set(id, event);
    this.pending++;
    const padding = scheduler.random.isLikely(0.02) ? 'x'.repeat(scheduler.random.below(MAX_BODY)) : '';
    const body = Buffer.from(JSON.stringify({ type: 'invoice.paid', data: { ...data, padding } }));
    scheduler.after(at - scheduler.now, this.#owner, () => this.#deliver(event, body, targets));
    // Some senders send an event twice at once.
    if (scheduler.random.isLikely(0.05))
      scheduler.after(at - scheduler.now + scheduler.random.skewed(0, 3_000), this.#owner, () =>
        this.#attempt(event, body, targets),
      );
  }

  /** An attack at that time. */
  scheduleAttack(at: number, number: number): void {
    const { scheduler } = this.#world;
    scheduler.after(at - scheduler.now, this.#attacker, () => this.#attack(number));
  }

  close(): void {
    this.#client.close();
    this.#attackerClient.close();
  }

  async #deliver(event: SentEvent, body: Buffer, targets: readonly string[]): Promise<void> {
    const { scheduler } = this.#world;
    for (let delay = FIRST_RETRY_MS; ; delay = Math.min(2 * delay, MAX_RETRY_MS)) {
      if (await this.#attempt(event, body, targets)) break;
      await new Promise<void>((resolve) => {
        scheduler.after(scheduler.random.between(delay / 2, delay), this.#owner, resolve);
      });
    }
    this.pending--;
  }

  async #attempt(event: SentEvent, body: Buffer, targets: readonly string[]): Promise<boolean> {
    const { scheduler, ledger } = this.#world;
    const { random } = scheduler;
    const machine = random.pick(targets);
    event.attempts++;
    ledger.count('attempts');
    const bytes = this.#sign(event.id, event.route, body);
    if (random.isLikely(0.05) && this.#captured.length < 1_000) this.#captured.push({ machine, bytes });
    const response = await this.#client.send({
      host: machine,
      port: DATA_PORT,
      bytes,
      timeout: random.pick([3_000, 15_000, 30_000]),
    });
    const status = response === undefined ? 0 : statusOf(response);
    this.#world.note(`sender ${event.id} ${machine} ${status}`);
    if (status < 200 || status >= 300) return false;
    if (event.ackedAt === undefined) {
      event.ackedAt = scheduler.now;
      event.ackedBy = machine;
    }
    return true;
  }

  #sign(id: string, route: string, body: Buffer, secret?: string, age = 0): Buffer {
    const timestamp = Math.floor((this.#world.wallClock(SENDER_MACHINE) - age) / 1_000);
    const headers = {
      'Content-Type': 'application/json',
      'Webhook-Id': id,
      'Webhook-Timestamp': String(timestamp),
      'Webhook-Signature': signV1(id, timestamp, body, secret),
    };
    return formatRequest(`/hooks/${route}`, 'gate.example', headers, body);
  }

  #attack(number: number): void {
    const { scheduler, ledger } = this.#world;
    const { random } = scheduler;
    const id = `attack-${number}`;
    const target = random.pick(this.#targets);
    const body = Buffer.from(JSON.stringify({ type: 'invoice.paid', data: {} }));
    switch (random.below(5)) {
      case 0:
        ledger.forbidden.add(id);
        return this.#throw(target, this.#sign(id, 'hooks', body, WRONG_SECRET));
      case 1:
        // Older than every clock of the world can excuse.
        ledger.forbidden.add(id);
        return this.#throw(target, this.#sign(id, 'hooks', body, undefined, 3 * TOLERANCE_MS + MAX_CLOCK_STEP_MS));
      case 2: {
        const { bytes, machine } = this.#pickCaptured();
        return this.#throw(
          machine,
          Buffer.from(
            bytes
              .toString('latin1')
              .replace('invoice.paid', 'invoice.forged')
              .replace(/(Content-Length: )(\d+)/, (_, name, length) => `${name}${Number(length) + 2}`),
            'latin1',
          ),
        );
      }
      default: {
        // A copy of a genuine delivery, at another gate, soon or late.
        const { bytes } = this.#pickCaptured();
        scheduler.after(random.skewed(1, 4 * TOLERANCE_MS), this.#attacker, () => this.#throw(target, bytes));
      }
    }
  }

  #pickCaptured(): CapturedRequest {
    const { random } = this.#world.scheduler;
    return this.#captured.length === 0
      ? { machine: this.#targets[0] ?? '', bytes: Buffer.from('GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n') }
      : random.pick(this.#captured);
  }

  #throw(host: string, bytes: Buffer): void {
    this.#world.ledger.count('attacks');
    this.#attackerClient.send({ host, port: DATA_PORT, bytes, timeout: 10_000 }).catch(() => undefined);
  }
}

/** The most by which a clock is off. */
export const MAX_CLOCK_STEP_MS = 900_000;
