/** Bounds the bytes of the deliveries that lanes hold, over all lanes: a lane reserves memory before it takes deliveries. Tenants have parts. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { Counts } from '../../core/collections.ts';
import { type Waiting, WaitLine } from '../../core/throttle.ts';

/** The parts of something that tenants share. If there are several, a tenant gets more only while it then holds at most what is free. */
export class TenantParts extends Counts {
  /** The first that asked. */
  #first: string | undefined;
  #hasOthers = false;

  /** How many of `size` each the tenant may have in addition to what it holds, of `free`. */
  most(tenant: string, size: number, free: number): number {
    this.#first ??= tenant;
    this.#hasOthers ||= this.#first !== tenant;
    return Math.floor(this.#hasOthers ? (free - this.of(tenant) + size) / (2 * size) : free / size);
  }
}

export class MemoryBudget {
  readonly #line: WaitLine<{ readonly most: number; readonly tenant: string | undefined }, number>;
  readonly #parts = new TenantParts();
  readonly #bytes: number;
  #unit: number;
  #free: number;
  /** Reservations of each tenant, in deliveries. */
  readonly #reserved = new TenantParts();

  /** `largest`: of one delivery. Its size is known only after it was taken; until then it counts as this. */
  constructor(bytes: number, largest: number, clock: Clock) {
    this.#bytes = bytes;
    this.#unit = largest;
    this.#free = Math.max(bytes, largest);
    this.#line = new WaitLine(clock);
  }

  /** Bytes that can be reserved; negative if deliveries were larger than expected. */
  get free(): number {
    return this.#free;
  }

  get waiting(): number {
    return this.#line.length;
  }

  /** Changes the size of the largest delivery, also of what is reserved. */
  setLargest(largest: number): void {
    const more = largest - this.#unit;
    this.#free += Math.max(this.#bytes, largest) - Math.max(this.#bytes, this.#unit);
    this.#unit = largest;
    for (const [tenant, reserved] of this.#reserved) this.#hold(reserved * more, tenant);
    this.#admit();
  }

  /** Reserves memory for up to `most` deliveries. Returns for how many; 0: the caller has to wait. Those that wait, and could have it, come first. */
  reserve(most: number, tenant = ''): number {
    const reserved = Math.max(0, Math.min(most, this.#parts.most(tenant, this.#unit, this.#free)));
    this.#hold(reserved * this.#unit, tenant);
    this.#reserved.add(tenant, reserved);
    return reserved;
  }

  wait(most: number, tenant: string | undefined, atMost?: Milliseconds): Waiting<number> {
    return this.#line.join({ most, tenant }, tenant, atMost);
  }

  /** Replaces a reservation by the size of what was taken. */
  settle(reserved: number, bytes: number, tenant = ''): void {
    this.#reserved.add(tenant, -reserved);
    this.release(reserved * this.#unit - bytes, tenant);
  }

  release(bytes: number, tenant = ''): void {
    this.#hold(-bytes, tenant);
    this.#admit();
  }

  #hold(bytes: number, tenant: string): void {
    this.#free -= bytes;
    this.#parts.add(tenant, bytes);
  }

  #admit(): void {
    while (this.#line.length > 0 && this.#free >= this.#unit) if (!this.#admitOne()) return;
  }

  /** The next one whose tenant may have more. */
  #admitOne(): boolean {
    for (const { request, end } of this.#line.firsts()) {
      const reserved = this.reserve(request.most, request.tenant);
      if (reserved === 0) continue;
      end(reserved);
      return true;
    }
    return false;
  }
}
