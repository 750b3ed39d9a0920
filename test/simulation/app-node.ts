/** A simulated app behind a gate: handles events, and fails in the ways in which apps fail. */
import { formatResponse, type HttpMessage, MessageReader } from './http-text.ts';
import type { Handling } from './ledger.ts';
import { APP_PORT, APP_TIMEOUT_MS, TOLERANCE_MS } from './machine-config.ts';
import type { Owner } from './scheduler.ts';
import type { SimulatedSocket } from './socket.ts';
import type { Node, World } from './world.ts';

type Behaviour = 'handles' | 'rejects' | 'hangs' | 'resets' | 'responds in part' | 'is slow';

/** The gate may have waited for another delivery of the event, and for a free connection. */
const LATEST_MS = TOLERANCE_MS + 30_000;

export class AppNode implements Node {
  readonly machine: string;
  owner: Owner;
  /** The probability of each failure of a request. */
  failureRate = 0;
  readonly #world: World;
  #starts = 0;

  constructor(world: World, machine: string) {
    this.#world = world;
    this.machine = machine;
    this.owner = world.createOwner('app', machine);
    this.owner.isDead = true;
  }

  get isRunning(): boolean {
    return !this.owner.isDead;
  }

  start(): void {
    this.owner = this.#world.createOwner(`app ${this.machine} ${++this.#starts}`, this.machine);
    this.#world.network.listen(this.owner, APP_PORT, (socket) => this.#serve(socket));
  }

  kill(): void {
    this.#world.endProcess(this.owner);
  }

  #serve(socket: SimulatedSocket): void {
    const reader = new MessageReader();
    socket.on('error', () => socket.destroy());
    socket.on('data', (bytes: Buffer) => {
      for (const request of reader.push(bytes)) this.#handle(request, socket);
    });
    // Node's servers close idle connections; the gate must cope with that.
    socket.setTimeout(60_000, () => socket.end());
    socket.on('end', () => socket.end());
  }

  #handle(request: HttpMessage, socket: SimulatedSocket): void {
    const { scheduler, ledger } = this.#world;
    const handling: Handling = {
      event: request.headers.get('webhook-id') ?? '',
      token: request.headers.get('sidegate-request-id') ?? '',
      machine: this.machine,
      startedAt: scheduler.now,
      handledAt: undefined,
      status: undefined,
    };
    this.#checkAllowed(request, handling);
    ledger.addHandling(handling);
    const behaviour = this.#choose();
    this.#world.note(`app ${this.machine} ${behaviour} ${handling.event}`);
    if (behaviour !== 'handles') ledger.count(`app ${behaviour}`);
    this.#behave(behaviour, handling, socket);
  }

  #choose(): Behaviour {
    const { random } = this.#world.scheduler;
    if (!random.isLikely(this.failureRate)) return 'handles';
    return random.pick(['rejects', 'hangs', 'resets', 'responds in part', 'is slow']);
  }

  #behave(behaviour: Behaviour, handling: Handling, socket: SimulatedSocket): void {
    const { scheduler } = this.#world;
    const { random } = scheduler;
    const after = (delay: number, run: () => void): void => void scheduler.after(delay, this.owner, run);
    const work = random.skewed(1, 1_500);
    const finish = (): void => {
      handling.handledAt = scheduler.now;
    };
    const isHandled = random.isLikely(0.5);
    switch (behaviour) {
      case 'handles':
        return after(work, () => {
          finish();
          this.#respond(socket, handling, 200);
        });
      case 'rejects':
        return after(work, () => this.#respond(socket, handling, random.pick([500, 503, 429, 404])));
      case 'hangs':
        if (isHandled) after(random.between(1, 20_000), finish);
        return;
      case 'resets':
        return after(work, () => {
          if (isHandled) finish();
          socket.destroy();
        });
      case 'responds in part':
        return after(work, () => {
          finish();
          const text = formatResponse(200, 'x'.repeat(2_000));
          if (socket.writable) socket.write(text.subarray(0, 1 + random.below(text.length - 1)));
          after(random.between(1, 200), () => socket.destroy());
        });
      case 'is slow':
        return after(random.between(APP_TIMEOUT_MS * 0.8, APP_TIMEOUT_MS * 3), () => {
          finish();
          this.#respond(socket, handling, 200);
        });
    }
  }

  #respond(socket: SimulatedSocket, handling: Handling, status: number): void {
    handling.status = status;
    if (socket.writable) socket.write(formatResponse(status, status === 200 ? '{"ok":true}' : ''));
  }

  /** Nothing forged and nothing expired gets here. */
  #checkAllowed({ headers, body }: HttpMessage, { event, machine }: Handling): void {
    const { scheduler, ledger } = this.#world;
    if (ledger.forbidden.has(event) || body.includes('forged')) ledger.alarms.push(`the app got a forged event: ${event}`);
    const signedAt = Number(headers.get('webhook-timestamp') ?? 0) * 1_000;
    const age = Math.abs(this.#world.wallClock(machine) - signedAt);
    // A paused gate and a stepped clock make a delivery older after its check.
    const isExcused = ledger.findFaults(scheduler.now - LATEST_MS, scheduler.now, [machine]).length > 0;
    if (age > LATEST_MS && !isExcused && machine !== PROVIDER)
      ledger.alarms.push(`the app got ${event} ${age} ms after it was signed`);
  }
}

/** Its inbox delivers later. */
const PROVIDER = '10.3.0.1';
