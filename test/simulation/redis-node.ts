/** The process of the shared store: it can crash, fail over to a replica that lacks the last writes, and come back empty. */
import type { Ledger } from './ledger.ts';
import { REDIS_MACHINE } from './machine-config.ts';
import { RedisModel } from './redis-model.ts';
import { serveRedis } from './redis-server.ts';
import type { Owner } from './scheduler.ts';
import type { Node, World } from './world.ts';

export class RedisNode implements Node {
  readonly machine = REDIS_MACHINE;
  readonly model: RedisModel;
  owner: Owner;
  readonly #world: World;
  #starts = 0;

  constructor(world: World) {
    this.#world = world;
    const { ledger, scheduler } = world;
    this.model = new RedisModel(
      () => world.wallClock(REDIS_MACHINE),
      ({ name, key, args, reply }) => {
        const event = toEventId(key);
        const token = name === 'claim' || name === 'confirm' || name === 'release' ? (args[0] ?? '') : '';
        if (event !== undefined) ledger.addClaimChange(event, { at: scheduler.now, name, token, isDone: reply === 1 });
      },
    );
    this.owner = world.createOwner('redis', REDIS_MACHINE);
    this.owner.isDead = true;
  }

  get isRunning(): boolean {
    return !this.owner.isDead;
  }

  start(): void {
    this.owner = this.#world.createOwner(`redis ${++this.#starts}`, this.machine);
    serveRedis(this.#world.network, this.owner, this.model);
  }

  kill(): void {
    this.#world.endProcess(this.owner);
  }

  /** Another process takes over, without the last writes. */
  failOver(lostWrites: number): void {
    const { ledger } = this.#world;
    this.kill();
    const lost = this.model.loseLast(lostWrites);
    this.#world.note(`failover loses ${lost.length} writes`);
    this.#recordLoss(ledger, lost);
    this.start();
  }

  /** A restart without persistence. */
  restartEmpty(): void {
    const { ledger } = this.#world;
    this.kill();
    const lost = this.model.loseAll();
    this.#world.note(`restart of Redis loses ${lost.length} keys`);
    this.#recordLoss(ledger, lost);
    this.start();
  }

  #recordLoss(ledger: Ledger, keys: readonly string[]): void {
    const at = this.#world.scheduler.now;
    for (const event of new Set(keys.map(toEventId)))
      if (event !== undefined) ledger.addClaimChange(event, { at, name: 'lost', token: '', isDone: true });
  }
}

/** The event whose claim a key is: `<prefix>…:<id>`, with the IDs of this simulation. */
function toEventId(key: string): string | undefined {
  return /(?:evt|ord|post|inbox|attack)-[\w-]+$/.exec(key)?.[0];
}
