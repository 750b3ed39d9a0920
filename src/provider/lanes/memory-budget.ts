/** Bounds the bytes of the deliveries that lanes hold, over all lanes: a lane reserves memory before it takes deliveries. Tenants have parts. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { TenantParts, type Waiting, WaitLine } from '../../core/throttle.ts';

const MIN_BYTES = 1024 * 1024;

interface MemoryRequest {
  readonly most: number;
  readonly size: number;
  readonly tenant: string | undefined;
}

export class MemoryBudget {
  readonly #line: WaitLine<MemoryRequest, number>;
  readonly #parts = new TenantParts();
  /** A quarter of the memory: a larger delivery counts as so much, so that one tenant's leave room for those of others. The queue reads it only while the process has room. */
  readonly #largest: number;
  #free: number;

  constructor(bytes: number, clock: Clock) {
    this.#free = Math.max(bytes, MIN_BYTES);
    this.#largest = Math.floor(this.#free / 4);
    this.#line = new WaitLine(clock);
  }

  /** Returns the bytes that a delivery of this size takes of the memory. */
  toShare(bytes: number): number {
    return Math.min(bytes, this.#largest);
  }

  /** Bytes that can be reserved; negative if deliveries were larger than expected. */
  get free(): number {
    return this.#free;
  }

  get waiting(): number {
    return this.#line.length;
  }

  /** Reserves memory for up to `most` deliveries of this size. Returns for how many; 0: the caller has to wait. Those that wait, and could have it, come first. */
  reserve({ most, size, tenant = '' }: MemoryRequest): number {
    const share = this.toShare(size);
    const reserved = Math.max(0, Math.min(share < size ? 1 : most, this.#parts.most(tenant, share, this.#free)));
    this.#hold(reserved * share, tenant);
    return reserved;
  }

  wait(request: MemoryRequest, atMost?: Milliseconds): Waiting<number> {
    return this.#line.join(request, request.tenant, atMost);
  }

  /** Replaces a reservation for deliveries of this size by what was taken. */
  settle(reserved: number, size: number, bytes: number, tenant = ''): void {
    this.release(reserved * this.toShare(size) - bytes, tenant);
  }

  release(bytes: number, tenant = ''): void {
    this.#hold(-bytes, tenant);
    while (this.#line.length > 0 && this.#free > 0 && this.#admitOne());
  }

  #hold(bytes: number, tenant: string): void {
    this.#free -= bytes;
    this.#parts.add(tenant, bytes);
  }

  /** The next one whose tenant may have more. */
  #admitOne(): boolean {
    for (const { request, end } of this.#line.firsts()) {
      const reserved = this.reserve(request);
      if (reserved === 0) continue;
      end(reserved);
      return true;
    }
    return false;
  }
}
