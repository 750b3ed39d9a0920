/** The promises, checked against what senders, apps and faults recorded. */
import type { Handling, Ledger, SentEvent } from './ledger.ts';
import { APP_TIMEOUT_MS, PROVIDER_MACHINE, REDIS_MACHINE, type WorldShape } from './machine-config.ts';
import type { DeliveryView } from './poster.ts';

/** The gate may write its confirmation this much later than the app's response. */
const SETTLE_MS = 10_000;
/** The longest outages of Redis, several in a row. */
const MAX_STORE_OUTAGE_MS = 1_800_000;
/** Precision of leases: messages take time. */
const LEASE_SLACK_MS = 1_500;

/** Lists every violation. */
export function findViolations(ledger: Ledger, shape: WorldShape, deliveries: readonly DeliveryView[] | undefined): string[] {
  return [
    ...ledger.alarms,
    ...findUnacknowledged(ledger),
    ...findLost(ledger),
    ...findDoubles(ledger, shape),
    ...(shape.hasProvider ? findUndelivered(ledger, deliveries) : []),
    ...findDisorder(ledger),
    ...findStale(ledger, shape),
    ...(shape.hasRedis ? findUnconfirmed(ledger) : []),
  ];
}

/** A sender that never gets its 2xx, although all faults have ended. */
function findUnacknowledged({ sent, posted }: Ledger): string[] {
  return [
    ...[...sent.values()].filter(({ ackedAt }) => ackedAt === undefined).map(({ id }) => `${id} is never acknowledged`),
    ...[...posted.values()].filter(({ acceptedAt }) => acceptedAt === undefined).map(({ id }) => `${id} is never accepted`),
  ];
}

/** No acknowledged event is lost. */
function findLost(ledger: Ledger): string[] {
  const lost: string[] = [];
  for (const event of ledger.sent.values()) {
    if (event.ackedAt === undefined) continue;
    const handled = handledTimes(ledger, event.id);
    // Stored durably, and handled later.
    if (event.route === 'inbox' ? handled.length > 0 : handled.some((at) => at <= (event.ackedAt as number))) continue;
    if (event.route === 'ordered' && isOvertaken(ledger, event)) continue;
    lost.push(`${event.id} is acknowledged but was not handled`);
  }
  return lost;
}

function handledTimes({ handlings }: Ledger, id: string): number[] {
  return (handlings.get(id) ?? []).flatMap(({ handledAt }) => (handledAt === undefined ? [] : [handledAt]));
}

/** IDs of events of the route `ordered` are `ord-<resource>-<version>`. */
function parseVersion(id: string): { readonly resource: string; readonly version: number } | undefined {
  const [kind, resource = '', version] = id.split('-');
  return kind === 'ord' ? { resource, version: Number(version) } : undefined;
}

/** A newer version of its resource was handled before it was acknowledged. */
function isOvertaken(ledger: Ledger, { id, ackedAt = 0 }: SentEvent): boolean {
  const own = parseVersion(id);
  return [...ledger.handlings.keys()].some((other) => {
    const newer = parseVersion(other);
    if (own === undefined || newer?.resource !== own.resource || newer.version <= own.version) return false;
    return handledTimes(ledger, other).some((at) => at <= ackedAt);
  });
}

/** No event is handled twice, but where an injected fault explains it. */
function findDoubles(ledger: Ledger, shape: WorldShape): string[] {
  const found: string[] = [];
  for (const [event, handlings] of ledger.handlings)
    for (const [at, second] of handlings.entries()) {
      if (at === 0) continue;
      const first = handlings[at - 1] as Handling;
      const problem = findProblem(ledger, shape, first, second);
      if (problem === undefined) ledger.count('explained doubles');
      else found.push(`${event} is handled again (${first.token}, then ${second.token}): ${problem}`);
    }
  return found;
}

/** Why two runs of the handler in a row are a violation; undefined if they are not. */
function findProblem(ledger: Ledger, shape: WorldShape, first: Handling, second: Handling): string | undefined {
  // The claim is released, and a retry is expected.
  if (isRefusal(first)) return undefined;
  const machines = [first.machine, second.machine, ...(shape.hasRedis ? [REDIS_MACHINE] : [])];
  const faults = ledger.findFaults(first.startedAt - SETTLE_MS, second.startedAt, machines);
  if (!isUnknown(first) && faults.length === 0) return 'no fault explains it';
  return shape.hasRedis ? findEarly(ledger, shape, first, second) : undefined;
}

/** While the outcome is unknown, the lease keeps other deliveries away. Only a store that lost it lets one through earlier. */
function findEarly(ledger: Ledger, shape: WorldShape, first: Handling, second: Handling): string | undefined {
  const changes = ledger.claims.get(second.event) ?? [];
  const grants = [first, second].flatMap((handling) => {
    const granted = changes.findLast(({ name, token, isDone }) => name === 'claim' && isDone && token.startsWith(handling.token));
    return granted === undefined ? [] : [{ ...granted, handling }];
  });
  // Not in the order in which they reached the app: the first to claim may have been delayed until its lease was over.
  const [claimed, again] = grants.toSorted((a, b) => a.at - b.at);
  if (claimed === undefined || again === undefined) return undefined;
  const between = changes.filter(({ at }) => at >= claimed.at && at <= again.at);
  const isLost = between.some(({ name }) => name === 'lost');
  const hasStepped = ledger.findFaults(claimed.at, again.at, [REDIS_MACHINE]).some(({ kind }) => kind === 'clock step');
  if (isLost || hasStepped || isRefusal(claimed.handling)) return undefined;
  const isReleased = between.some(({ name, token, isDone }) => name === 'release' && isDone && token === claimed.token);
  if (isReleased) return 'its claim was released although the app may have handled it';
  const isEarly = again.at - claimed.at < shape.leaseSeconds * 1_000 - LEASE_SLACK_MS;
  return isEarly ? `the lease of ${shape.leaseSeconds} s was over after ${Math.round(again.at - claimed.at)} ms` : undefined;
}

/** The gate may have had no response in time. */
function isUnknown({ status, startedAt, handledAt = 0 }: Handling): boolean {
  return status === undefined || handledAt - startedAt > APP_TIMEOUT_MS * 0.7;
}

/** The app refused it, and said so. */
function isRefusal({ status }: Handling): boolean {
  return status !== undefined && (status < 200 || status >= 300);
}

/**
 * Whatever happens to the store, an event that the app handled is recorded once the store is back: the gate that forwarded it was neither
 * killed nor cut off from its app.
 */
function findUnconfirmed(ledger: Ledger): string[] {
  const found: string[] = [];
  for (const handling of [...ledger.handlings.values()].flat()) {
    const { event, token, machine, startedAt, handledAt } = handling;
    if (machine === PROVIDER_MACHINE || handledAt === undefined || isUnknown(handling) || isRefusal(handling)) continue;
    const changes = ledger.claims.get(event) ?? [];
    if (changes.some((change) => change.name === 'confirm' && change.token.startsWith(token))) continue;
    const near = ledger.findFaults(startedAt - SETTLE_MS, handledAt + SETTLE_MS, [machine]);
    const later = ledger.findFaults(startedAt, handledAt + MAX_STORE_OUTAGE_MS, [machine]);
    if (near.length > 0 || later.some(({ kind }) => kind === 'kill gate')) continue;
    found.push(`${event} was handled, and its claim was never confirmed`);
  }
  return found;
}

/** Every event that the provider accepted is delivered or dead, and what is delivered was handled. */
function findUndelivered(ledger: Ledger, deliveries: readonly DeliveryView[] | undefined): string[] {
  if (deliveries === undefined) return ['the provider does not list its deliveries'];
  const states = new Map(deliveries.map((delivery) => [delivery.event, delivery]));
  const found: string[] = [];
  for (const { id, tenant } of ledger.posted.values()) {
    const state = states.get(id)?.state;
    if (tenant === 'nowhere') {
      if (state !== 'dead') found.push(`${id} has no receiver and is ${state}, not dead`);
    } else if (state === undefined) found.push(`${id} was accepted and is not in the queue`);
    else if (state === 'dead') ledger.count('dead deliveries');
    else if (state !== 'delivered') found.push(`${id} is still ${state}`);
    else if (handledTimes(ledger, id).length === 0) found.push(`${id} is delivered but was not handled`);
  }
  return found;
}

/** Events of one customer are delivered in the order in which they were accepted. */
function findDisorder(ledger: Ledger): string[] {
  const found: string[] = [];
  const last = new Map<string, { readonly id: string; readonly at: number }>();
  const posted = [...ledger.posted.values()].filter(({ tenant }) => tenant === 'receiver-0');
  for (const { id, customer } of posted.toSorted((a, b) => a.number - b.number)) {
    const [at] = handledTimes(ledger, id).toSorted((a, b) => a - b);
    if (at === undefined) continue;
    const before = last.get(customer);
    if (before !== undefined && at < before.at) found.push(`${id} was handled before ${before.id}`);
    last.set(customer, { id, at });
  }
  return found;
}

/** An app gets the versions of a resource one after the other, and none after a newer one, but where a fault explains it. */
function findStale(ledger: Ledger, shape: WorldShape): string[] {
  const found: string[] = [];
  const byResource = Map.groupBy(
    [...ledger.handlings].flatMap(([event, handlings]) => {
      const parsed = parseVersion(event);
      return parsed === undefined ? [] : handlings.map((handling) => ({ ...parsed, handling }));
    }),
    ({ resource }) => resource,
  );
  for (const versions of byResource.values())
    for (const earlier of versions)
      for (const later of versions) {
        const [a, b] = [earlier.handling, later.handling];
        if (a === b || a.event === b.event || b.startedAt < a.startedAt || a.handledAt === undefined || isRefusal(a)) continue;
        const isConcurrent = b.startedAt < a.handledAt;
        const isStale = later.version < earlier.version && b.startedAt > a.handledAt + SETTLE_MS;
        if ((!isConcurrent && !isStale) || isExcused(ledger, shape, a, b)) continue;
        found.push(`${b.event} reaches the app ${isConcurrent ? 'while it handles' : 'after'} ${a.event}`);
      }
  return found;
}

function isExcused(ledger: Ledger, shape: WorldShape, a: Handling, b: Handling): boolean {
  const machines = [a.machine, b.machine, ...(shape.hasRedis ? [REDIS_MACHINE] : [])];
  // A failover can lose what was written some time before it.
  const faults = ledger.findFaults(a.startedAt - SETTLE_MS, b.startedAt, machines);
  return isUnknown(a) || faults.length > 0;
}
