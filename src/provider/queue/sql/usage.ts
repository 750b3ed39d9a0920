/** The bounds of the queue, and the shares of endpoints and tenants. Only what waits counts: delivered events are removed when space is needed. */
import { SidegateError } from '../../../core/errors.ts';
import { INBOX_PREFIX, isInboxEndpoint } from '../../events/event.ts';
import { type QueueBounds, QueueFullError } from '../delivery-queue.ts';
import type { LaneRow, Sql } from './database.ts';
import { readStored } from './lanes.ts';

export interface WaitingEvent {
  readonly tenant?: string | undefined;
  readonly bytes: number;
  readonly endpoints: readonly string[];
  /** It waits for another endpoint already. */
  readonly isCounted: boolean;
}

interface Figures {
  readonly waiting: number;
  readonly bytes: number;
}

/** The figures of waiting events, with those that the transaction adds. */
export class Usage {
  readonly #bounds: QueueBounds;
  #all: Figures;
  readonly #lanes: Map<string, Figures>;
  readonly #tenants: Map<string, Figures>;

  private constructor(bounds: QueueBounds, all: Figures, lanes: Map<string, Figures>, tenants: Map<string, Figures>) {
    this.#bounds = bounds;
    this.#all = all;
    this.#lanes = lanes;
    this.#tenants = tenants;
  }

  /** `lanes` are locked; `tenants`: those whose events are added. */
  static async read(sql: Sql, bounds: QueueBounds, lanes: ReadonlyMap<string, LaneRow>, tenants: Iterable<string | undefined>) {
    const { events, bytes } = await readStored(sql);
    return new Usage(bounds, { waiting: events, bytes }, new Map(lanes), await readTenants(sql, tenants));
  }

  /** Adds events, or none: returns why not. */
  add(events: readonly WaitingEvent[]): SidegateError | undefined {
    const { all, lanes, tenants } = this.#count(events);
    if (all !== this.#all && this.#exceeds(all, 1))
      return toFull('queue', all, 'the queue is full: it has as many undelivered events as provider.queue allows');
    for (const [endpoint, figures] of lanes)
      if (this.#exceeds(figures, this.#bounds.endpointShare))
        return toFull(`endpoint ${endpoint}`, figures, describeEndpoint(endpoint, figures));
    for (const [tenant, figures] of tenants)
      if (this.#exceeds(figures, this.#bounds.tenantShare))
        return toFull(
          `tenant ${tenant}`,
          figures,
          `the undelivered events of the tenant ${tenant} use up its share of the queue (provider.queue.tenantShare)`,
        );
    this.#all = all;
    for (const [name, figures] of lanes) this.#lanes.set(name, figures);
    for (const [name, figures] of tenants) this.#tenants.set(name, figures);
    return undefined;
  }

  /** The figures with these events, of what they change. */
  #count(events: readonly WaitingEvent[]) {
    let all = this.#all;
    const [lanes, tenants] = [new Map<string, Figures>(), new Map<string, Figures>()];
    for (const { tenant, bytes, endpoints, isCounted } of events) {
      for (const endpoint of endpoints) lanes.set(endpoint, addTo(lanes.get(endpoint) ?? this.#lanes.get(endpoint), bytes));
      if (isCounted || endpoints.length === 0) continue;
      all = addTo(all, bytes);
      if (tenant !== undefined) tenants.set(tenant, addTo(tenants.get(tenant) ?? this.#tenants.get(tenant), bytes));
    }
    return { all, lanes, tenants };
  }

  #exceeds({ waiting, bytes }: Figures, share: number): boolean {
    const { maxEvents, maxBytes } = this.#bounds;
    return waiting > Math.max(1, Math.floor(share * maxEvents)) || bytes > share * maxBytes;
  }
}

async function readTenants(sql: Sql, tenants: Iterable<string | undefined>): Promise<Map<string, Figures>> {
  const names = new Set<string>();
  for (const tenant of tenants) if (tenant !== undefined) names.add(tenant);
  if (names.size === 0) return new Map();
  const rows = await sql.each<{ name: string } & Figures>(
    'SELECT t.name, t.events AS waiting, t.bytes FROM tenant t, rows r WHERE t.name = r.name',
    'name text',
    [...names].map((name) => ({ name })),
  );
  return new Map(rows.map((row) => [row.name, row]));
}

function describeEndpoint(endpoint: string, { waiting }: Figures): string {
  const name = isInboxEndpoint(endpoint)
    ? `the app of the route ${endpoint.slice(INBOX_PREFIX.length)}`
    : `the endpoint ${endpoint}`;
  return `${name} has ${waiting - 1} undelivered events, its share of the queue (provider.queue.endpointShare): disable it, cancel or purge its deliveries, or wait until it accepts them`;
}

/** `figures`: with the events that have no room. If nothing else waits, an event never has. */
function toFull(full: string, { waiting, bytes }: Figures, message: string): SidegateError {
  if (waiting > 1) return new QueueFullError(message, full);
  return new SidegateError('user', 'too_large', `the event takes ${bytes} bytes of the queue, more than the ${full} may have`);
}

function addTo(figures: Figures | undefined, bytes: number): Figures {
  return { waiting: (figures?.waiting ?? 0) + 1, bytes: (figures?.bytes ?? 0) + bytes };
}
