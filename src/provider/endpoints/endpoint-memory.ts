/** Bounds the heap that stored endpoints use, in all and by tenant. */
import { getHeapStatistics } from 'node:v8';
import { Counts } from '../../core/collections.ts';
import type { EndpointRecord } from './endpoint-record.ts';

/** A stored endpoint, or the state of one. */
interface Kept {
  readonly json: string;
  readonly record?: EndpointRecord | undefined;
}

/** The part of the heap that stored endpoints may use, and what each uses: 2.7 KB were measured, and 2 bytes per character, and 480 per pattern. */
export const ENDPOINTS_HEAP_SHARE = 0.4;
const [ENDPOINT_BYTES, BYTES_PER_CHARACTER, PATTERN_BYTES] = [2_048, 3, 512];
/** Of that part, for the endpoints of one tenant. */
const TENANT_SHARE = 0.5;
/** More is not read, unless a large heap has more room: what was accepted, also if it was encrypted since. A replica with more memory may have stored more. */
const [READ_HEAP_SHARE, LARGE_HEAP_SHARE, USED_BYTES] = [0.45, 0.85, 24 * 2 ** 20];

export class EndpointMemory {
  readonly heapBytes: number;
  #bytes = 0;
  readonly #ofTenants = new Counts();

  constructor(heapBytes = getHeapStatistics().heap_size_limit) {
    this.heapBytes = heapBytes;
  }

  replace(before: Kept | undefined, after: Kept | undefined): void {
    this.#bytes += toGrowth(before, after);
    for (const [kept, sign] of [
      [before, -1],
      [after, 1],
    ] as const)
      if (kept?.record?.settings.tenant !== undefined) this.#ofTenants.add(kept.record.settings.tenant, sign * toBytes(kept));
  }

  /** Which part has no room for a new or changed endpoint. */
  findFull(before: Kept | undefined, after: Kept): 'heap' | 'tenant' | undefined {
    const growth = toGrowth(before, after);
    const most = ENDPOINTS_HEAP_SHARE * this.heapBytes;
    if (growth <= 0) return undefined;
    if (this.#bytes + growth > most) return 'heap';
    const tenant = after.record?.settings.tenant;
    return tenant !== undefined && this.#ofTenants.of(tenant) + growth > TENANT_SHARE * most ? 'tenant' : undefined;
  }

  /** Whether the start may read another one. */
  canRead(before: Kept | undefined, after: Kept): boolean {
    const most = Math.max(READ_HEAP_SHARE * this.heapBytes, LARGE_HEAP_SHARE * this.heapBytes - USED_BYTES);
    return this.#bytes + toGrowth(before, after) <= most;
  }
}

/** `characters`: of its JSON. */
export function toHeapBytes(characters: number, patterns: number): number {
  return ENDPOINT_BYTES + BYTES_PER_CHARACTER * characters + PATTERN_BYTES * patterns;
}

function toBytes(kept: Kept | undefined): number {
  return kept === undefined ? 0 : toHeapBytes(kept.json.length, kept.record?.settings.events.length ?? 0);
}

function toGrowth(before: Kept | undefined, after: Kept | undefined): number {
  return toBytes(after) - toBytes(before);
}
