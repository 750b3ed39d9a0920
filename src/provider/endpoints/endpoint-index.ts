/** Finds the endpoints of an event: indexed by tenant and type, so that an event does not look at every endpoint. */
import { type JsonPath, parseJsonPath, readJsonPath } from '../../core/json-path.ts';
import { type Endpoint, isForTenant, type RoutedEvent, type Target, toOrderKey } from './endpoint.ts';

interface Entry {
  readonly tenant: string | undefined;
  readonly allTenants: boolean;
  readonly patterns: readonly EventPattern[];
  readonly orderBy: JsonPath | undefined;
  /** The target of events without an order. */
  readonly target: Target;
}

const NONE: ReadonlySet<Entry> = new Set();

export class EndpointIndex {
  readonly #entries = new Map<string, Entry>();
  readonly #allTenants = new TypeIndex();
  /** Undefined: endpoints for events without a tenant. */
  readonly #byTenant = new Map<string | undefined, TypeIndex>();

  /** Adds an endpoint, or replaces the one with the same ID. */
  set(endpoint: Endpoint): void {
    this.delete(endpoint.id);
    const entry = toEntry(endpoint);
    this.#entries.set(endpoint.id, entry);
    const { tenant, allTenants } = entry;
    const index = allTenants ? this.#allTenants : (this.#byTenant.get(tenant) ?? new TypeIndex());
    if (!allTenants) this.#byTenant.set(tenant, index);
    index.add(entry);
  }

  delete(id: string): void {
    const entry = this.#entries.get(id);
    if (entry === undefined) return;
    this.#entries.delete(id);
    if (entry.allTenants) this.#allTenants.remove(entry);
    else if (this.#byTenant.get(entry.tenant)?.remove(entry) === 0) this.#byTenant.delete(entry.tenant);
  }

  /** The target of an event if this endpoint selects it. */
  match(id: string, event: RoutedEvent): Target | undefined {
    const entry = this.#entries.get(id);
    if (entry === undefined || !isForTenant(entry, event.tenant)) return undefined;
    const type = event.type.split('.');
    const isSelected = entry.patterns.length === 0 || entry.patterns.some((pattern) => matchesPattern(pattern, type));
    return isSelected ? toTarget(entry, event) : undefined;
  }

  /** The targets of an event, each endpoint once. */
  route(event: RoutedEvent): Target[] {
    const targets: Target[] = [];
    this.#allTenants.route(event, targets);
    this.#byTenant.get(event.tenant)?.route(event, targets);
    return targets;
  }
}

class TypeIndex {
  readonly #all = new Set<Entry>();
  readonly #byType = new Map<string, Set<Entry>>();
  readonly #wildcards = new Set<Entry>();

  add(entry: Entry): void {
    if (entry.patterns.length === 0) this.#all.add(entry);
    for (const pattern of entry.patterns)
      if (pattern.isWildcard) this.#wildcards.add(entry);
      else {
        const type = pattern.segments.join('.');
        this.#byType.set(type, (this.#byType.get(type) ?? new Set()).add(entry));
      }
  }

  /** Returns how many remain. */
  remove(entry: Entry): number {
    this.#all.delete(entry);
    this.#wildcards.delete(entry);
    for (const { segments } of entry.patterns) {
      const type = segments.join('.');
      const entries = this.#byType.get(type);
      entries?.delete(entry);
      if (entries?.size === 0) this.#byType.delete(type);
    }
    return this.#all.size + this.#wildcards.size + this.#byType.size;
  }

  /** Adds the targets of an event to `targets`. */
  route(event: RoutedEvent, targets: Target[]): void {
    for (const entry of this.#all) targets.push(toTarget(entry, event));
    for (const entry of this.#find(event.type)) targets.push(toTarget(entry, event));
  }

  #find(type: string): ReadonlySet<Entry> {
    const named = this.#byType.get(type) ?? NONE;
    if (this.#wildcards.size === 0) return named;
    const found = new Set(named);
    const segments = type.split('.');
    for (const entry of this.#wildcards)
      if (entry.patterns.some((pattern) => pattern.isWildcard && matchesPattern(pattern, segments))) found.add(entry);
    return found;
  }
}

/** The order key of an event for an endpoint, whether or not it selects the event. */
export function findOrderKey(endpoint: Endpoint, event: RoutedEvent): string | undefined {
  return toTarget(toEntry(endpoint), event).orderKey;
}

function toTarget({ orderBy, target }: Entry, event: RoutedEvent): Target {
  if (orderBy === undefined) return target;
  const value = readJsonPath(orderBy, event);
  // Events where it is missing, null, an object or an array have no order.
  if (typeof value !== 'string' && typeof value !== 'number' && typeof value !== 'boolean') return target;
  return { ...target, orderKey: toOrderKey(target.endpoint, value) };
}

function toEntry({ id, events, tenant, allTenants, orderBy, disabled }: Endpoint): Entry {
  const path = orderBy === undefined ? undefined : parseJsonPath(orderBy);
  return {
    tenant,
    allTenants,
    patterns: events.map(parseEventPattern),
    orderBy: path === undefined || 'problem' in path ? undefined : path,
    target: disabled === undefined ? { endpoint: id } : { endpoint: id, isSkipped: true },
  };
}

/** A pattern of event types: segments between dots, where `*` stands for one or more whole segments. */
interface EventPattern {
  readonly segments: readonly string[];
  readonly isWildcard: boolean;
}

const ANY = '*';

/** `text` must have the form that the config schema requires. */
export function parseEventPattern(text: string): EventPattern {
  const segments = text.split('.');
  return { segments, isWildcard: segments.includes(ANY) };
}

/** Matches greedily and returns to the latest `*` only, so the time is bounded by the product of the lengths. */
export function matchesPattern({ segments }: EventPattern, type: readonly string[]): boolean {
  let at = 0;
  let star = -1;
  /** The next segment that the latest `*` would take in addition. */
  let next = 0;
  for (let index = 0; index < type.length; ) {
    if (segments[at] === ANY) {
      star = at++;
      next = ++index;
    } else if (at < segments.length && segments[at] === type[index]) {
      at++;
      index++;
    } else {
      if (star === -1) return false;
      at = star + 1;
      index = ++next;
    }
  }
  return at === segments.length;
}
