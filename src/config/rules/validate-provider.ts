/** The rules of the sending side. URLs and secrets of endpoints are checked where they are read (provider/settings/). */

import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { normalizeIp } from '../../core/ip-address.ts';
import { isLoopbackOnly, isOverlapping } from '../../core/listen-address.ts';
import { error, type Path, type Problem, warning } from '../../core/problem.ts';
import type { Config, ProviderConfig, RouteConfig } from '../schema/config.ts';
import { chooseQueue } from '../schema/queue-choice.ts';
import { checkUsers } from './validate-basic.ts';

/** Everything wrong or risky in the provider's section. */
export function checkProvider(config: Config, now: EpochMilliseconds): Problem[] {
  const { provider } = config;
  if (provider === undefined) return [];
  return [
    ...checkAddress(provider, config),
    ...(provider.basic === undefined ? [] : checkUsers(provider.basic, ['provider', 'basic'], now)),
    ...checkQueue(provider),
    ...checkNames(provider),
    ...checkEgress(provider),
    ...checkLimits(provider),
    ...checkSchedules(provider),
  ];
}

/** Notes of `sidegate check` about secrets that are stored in plain text. */
export function describeStoredSecrets({ provider }: Config): string[] {
  if (provider === undefined || provider.encryption !== undefined || !provider.roles.includes('accept')) return [];
  return [
    'secrets and header values of endpoints that the API creates are stored in plain text; to encrypt them, set provider.encryption.keys',
  ];
}

function* checkAddress(
  { address, tls, token, basic, roles }: ProviderConfig,
  { listen, admin, proxy, authz }: Config,
): Iterable<Problem> {
  if (!roles.includes('accept')) return;
  const path = ['provider', 'address'];
  const others = [listen.address, admin.address, proxy?.address, authz?.address];
  if (others.some((other) => other !== undefined && isOverlapping(address, other)))
    yield error(path, 'another listener of sidegate uses this address', 'choose a separate port for the provider');
  if (isLoopbackOnly(address)) return;
  if (token === undefined && basic === undefined)
    yield error(
      path,
      'anyone who reaches this address could send events in your name',
      'set provider.token or provider.basic, or listen on 127.0.0.1',
    );
  if (tls === undefined)
    yield error(path, 'tokens and passwords would cross the network in clear text', 'set provider.tls, or listen on 127.0.0.1');
}

function* checkQueue({ queue, roles }: ProviderConfig): Iterable<Problem> {
  const path = ['provider', 'queue'];
  if (queue.sqlite !== undefined && queue.postgres !== undefined)
    yield error(path, 'the queue is configured twice', 'set either sqlite or postgres');
  if (roles.length === 1 && chooseQueue(queue).kind === 'sqlite')
    yield error(
      ['provider', 'roles'],
      'processes with different roles share a queue, and this one is in a file',
      'set provider.queue.postgres, or let one process do both: `sidegate run`, without provider.roles',
    );
}

function* checkNames({ endpoints }: ProviderConfig): Iterable<Problem> {
  const names = endpoints.map(({ name }) => name);
  for (const [index, name] of names.entries())
    if (names.indexOf(name) < index)
      yield error(['provider', 'endpoints', index, 'name'], `another endpoint is named "${name}"`, 'choose a unique name');
}

function* checkEgress({ egress }: ProviderConfig): Iterable<Problem> {
  if (egress.allowHttp)
    yield warning(
      ['provider', 'egress', 'allowHttp'],
      'events may cross the network in clear text',
      'remove allowHttp once all endpoints use https',
    );
  const message = 'anyone who registers an endpoint can reach every address in the internal network';
  const hint = 'list only the ranges that your endpoints need';
  yield* checkTrustedRanges(egress.allowPrivate, ['provider', 'egress', 'allowPrivate'], message, hint);
}

function* checkLimits({ maxConcurrency, maxConnections, queue, endpoints, timeout }: ProviderConfig): Iterable<Problem> {
  const path = ['provider'];
  if (maxConnections < maxConcurrency)
    yield error([...path, 'maxConnections'], 'it is below maxConcurrency', `set it to at least ${maxConcurrency}`);
  if (queue.deadRetention < queue.retention)
    yield error(
      [...path, 'queue', 'deadRetention'],
      'it is below retention',
      'dead deliveries are kept to be retried; set it to at least retention',
    );
  if (timeout < MIN_TIMEOUT_MS) yield tooShort([...path, 'timeout']);
  for (const [index, endpoint] of endpoints.entries())
    if (endpoint.timeout !== undefined && endpoint.timeout < MIN_TIMEOUT_MS)
      yield tooShort([...path, 'endpoints', index, 'timeout']);
}

/** Delays vary by this much: see `JITTER` in provider/attempt/attempt.ts. */
const MAX_JITTER = 1.2;
const DAY_MS: Milliseconds = 86_400_000;

function* checkSchedules({ schedule, endpoints, queue: { deadRetention } }: ProviderConfig): Iterable<Problem> {
  yield* checkSchedule(['provider', 'schedule'], schedule, deadRetention);
  for (const [index, endpoint] of endpoints.entries())
    yield* checkSchedule(['provider', 'endpoints', index, 'schedule'], endpoint.schedule ?? [], deadRetention);
}

function* checkSchedule(path: Path, schedule: readonly Milliseconds[], deadRetention: Milliseconds): Iterable<Problem> {
  const duration = MAX_JITTER * schedule.reduce((sum, delay) => sum + delay, 0);
  if (duration < deadRetention) return;
  const [attempts, kept] = [duration, deadRetention].map((each) => Number((each / DAY_MS).toFixed(1)));
  yield warning(
    path,
    `the attempts can take ${attempts} days, and dead deliveries are removed ${kept} days after their event was accepted`,
    'set provider.queue.deadRetention to more than the schedule takes, so that they can be retried',
  );
}

const MIN_TIMEOUT_MS = 100;

function tooShort(path: readonly PropertyKey[]): Problem {
  return error(path, 'an attempt needs at least 100 ms', 'Standard Webhooks recommends 15s to 30s');
}

/** The rules of routes whose deliveries are stored in the queue. */
export function* checkInbox(route: RouteConfig, path: Path, { provider, identity }: Config): Iterable<Problem> {
  if (route.webhook?.ack !== 'onAccept') return;
  const at = [...path, 'webhook', 'ack'];
  if (provider === undefined)
    yield error(at, 'there is no queue to store deliveries in', 'add a section provider, for example provider: {}');
  else if (!provider.roles.includes('deliver'))
    yield error(
      at,
      'only this process knows the app, so no other replica can deliver',
      'add the role deliver to provider.roles, or remove ack',
    );
  if (route.mode === 'observe')
    yield error(at, 'in mode observe, deliveries that were not verified would be stored', 'remove ack, or set mode: enforce');
  if (identity !== undefined)
    yield error(at, 'the identity token of a request would expire before a later attempt', 'remove identity, or remove ack');
  if (route.webhook.order !== undefined)
    yield error(at, 'the queue sends deliveries in any order', 'remove order, or remove ack');
}

// The rules of lists of trusted addresses.

/** Half of IPv4, and half of the addresses of IPv6 that are in use (2000::/3). */
const MAX_SHARE = { ipv4: 1 / 2, ipv6: 1 / 16 } as const;
const MAPPED_BITS = 96;
const HINT = 'list only the ranges of your proxies';

/** Warns about ranges that together contain half of all addresses or more: nobody has so many proxies, and all addresses can be split in two. */
export function checkTrustedRanges(ranges: readonly string[], path: Path, message: string, hint = HINT): Problem[] {
  const shares = { ipv4: 0, ipv6: 0 };
  for (const range of new Set(ranges)) {
    const { family, share } = measure(range);
    shares[family] += share;
  }
  const wide = (['ipv4', 'ipv6'] as const).filter((family) => shares[family] >= MAX_SHARE[family]);
  return wide.flatMap((family) => {
    const index = ranges.reduce(
      (widest, range, at) => (shareOf(range, family) > shareOf(ranges[widest], family) ? at : widest),
      0,
    );
    return [warning([...path, index], message, hint)];
  });
}

function shareOf(range: string | undefined, wanted: keyof typeof MAX_SHARE): number {
  const { family, share } = measure(range ?? '');
  return family === wanted ? share : 0;
}

/** The share of all addresses of its family. A mapped IPv6 range is one of IPv4. */
function measure(range: string): { readonly family: keyof typeof MAX_SHARE; readonly share: number } {
  const [address = '', given] = range.split('/');
  const isIpv4 = normalizeIp(address)?.includes(':') === false;
  const isMapped = isIpv4 && address.includes(':');
  const bits = given === undefined ? Number.POSITIVE_INFINITY : Number(given);
  if (isMapped && bits < MAPPED_BITS) return { family: 'ipv6', share: 2 ** -bits };
  return { family: isIpv4 ? 'ipv4' : 'ipv6', share: 2 ** -(isMapped ? bits - MAPPED_BITS : bits) };
}
