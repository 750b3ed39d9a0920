/** The rules of a webhook route, and the warnings about insecure settings. */

import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { LEASE_MARGIN_MS } from '../../core/event.ts';
import { type MediaForm, NO_MEDIA_TYPE, toEssence, toMediaForm } from '../../core/head.ts';
import { error, type Path, type Problem, warning } from '../../core/problem.ts';
import { METHODS_WITHOUT_CONTENT } from '../../core/request.ts';
import { HANDSHAKES } from '../../verify/handshakes/catalogue.ts';
import {
  coversId,
  coversQuery,
  coversValue,
  mayBeEmpty,
  needsContent,
  needsForm,
  needsUrlEncoded,
  readsBody,
  toSenderMethods,
} from '../../verify/schemes/coverage.ts';
import { isBearer, type SchemeDescription } from '../../verify/schemes/description.ts';
import { toHeaderNames } from '../../verify/schemes/head.ts';
import {
  type Config,
  type DedupConfig,
  fetchesCertificates,
  type KeyConfig,
  type OrderConfig,
  type RouteConfig,
  type WebhookConfig,
} from '../schema/config.ts';
import { toAppendTimeout } from '../schema/queue-choice.ts';
import { isUntimed, repeatsBytes, repeatsBytesUnderIds, toMinRetention } from '../schema/retention.ts';
import { checkHandshake } from './validate-handshake.ts';
import { checkScheme } from './validate-scheme.ts';

/** Most senders retry no longer than this. */
export const SENDER_RETRY_HORIZON_MS: Milliseconds = 259_200_000;

const DAY_MS: Milliseconds = 86_400_000;

/** Clocks differ by seconds, and queues of senders delay deliveries by minutes. */
const MAX_USUAL_TOLERANCE_MS: Milliseconds = 3_600_000;

/** Everything wrong or risky in a route's webhook section. */
export function* checkWebhook(webhook: WebhookConfig, route: RouteConfig, path: Path, now: EpochMilliseconds): Iterable<Problem> {
  yield* checkScheme(webhook, route, path);
  yield* checkKeys(webhook, [...path, 'keys'], now);
  yield* checkHandshake({ ...webhook, methods: route.match.methods }, [...path, 'handshake']);
  yield* checkContent(webhook, route, path, [...path.slice(0, -1), 'match']);
  if (webhook.dedup === 'off') {
    yield warning(
      [...path, 'dedup'],
      'duplicates, and replays within the tolerance, reach the app',
      repeatsBytes(webhook)
        ? 'dedup: { retention: 10m }, if the app can miss events with the same bytes'
        : 'remove dedup to restore the default',
    );
  } else {
    yield* checkDedup(webhook.dedup, webhook, [...path, 'dedup']);
  }
  if (webhook.order !== undefined) yield* checkOrder(webhook.order, webhook, [...path, 'order']);
  yield* checkTolerance(webhook, [...path, 'tolerance']);
  const { description } = webhook;
  const unsigned = 'the signature does not cover it, so anyone with a captured delivery can change it';
  if (webhook.allowQuery && !coversQuery(description))
    yield warning([...path, 'allowQuery'], `any query string is accepted: ${unsigned}`);
  if (webhook.allowContentEncoding)
    yield warning([...path, 'allowContentEncoding'], `any Content-Encoding is accepted: ${unsigned}`);
  if (webhook.allowDotInId)
    yield warning(
      [...path, 'allowDotInId'],
      'with dots in the ID, an attacker can move bytes between ID, timestamp and body without changing the signature',
    );
  if (webhook.capture === 'failures') yield checkCapture(webhook, [...path, 'capture']);
}

function checkTolerance({ tolerance, description }: WebhookConfig, path: Path): Problem[] {
  if (tolerance === undefined) return [];
  const { past, future } = description.tolerance;
  const isUsual =
    tolerance.past <= Math.max(past, MAX_USUAL_TOLERANCE_MS) && tolerance.future <= Math.max(future, MAX_USUAL_TOLERANCE_MS);
  if (isUsual) return [];
  const message =
    'a captured delivery is accepted for so long whenever its ID is not remembered, as after a restart without Redis';
  return [warning(path, message, 'set at most 1h, unless the sender retries with the timestamp of the first attempt')];
}

function checkCapture({ description }: WebhookConfig, path: Path): Problem {
  const { name, signature, isSignedInContent } = description;
  if (signature === undefined || isSignedInContent === true)
    return error(path, `${name} has no signature in the headers, so a captured delivery explains nothing`, 'remove capture');
  if (isBearer(description))
    return error(path, `deliveries of ${name} contain the secret itself, so they are never captured`, 'remove capture');
  return warning(
    path,
    'rejected deliveries are kept in memory for a day with their bodies, which may contain personal data',
    'capture: off, once the cause is found',
  );
}

function* checkDedup(dedup: DedupConfig, webhook: WebhookConfig, path: Path): Iterable<Problem> {
  const days = Math.round(dedup.retention / DAY_MS);
  if (dedup.isRetentionDefault && repeatsBytes(webhook)) {
    yield error(
      path,
      `${webhook.scheme} can send the same bytes for different events, and only the first of them reaches the app while it is remembered: the others get 200`,
      'dedup: off, if the app can handle repeats and replays; or dedup: { retention: 10m }, no longer than the sender retries, if the app can miss such events',
    );
  } else if (dedup.isRetentionDefault && isUntimed(webhook)) {
    const dropsEqual = dedup.unsignedId === 'check' && repeatsBytesUnderIds(webhook);
    yield warning(
      [...path, 'retention'],
      `${webhook.scheme} signs no timestamp: a captured delivery can be replayed once its ID is forgotten, after ${days} days (in memory also after a restart)${dropsEqual ? '; until then, another event with the same bytes gets 503' : ''}`,
      `set retention as long as replays must be detected, such as 90d, with the store in Redis; an explicit value silences this warning${dropsEqual ? '. If the app needs events that look alike: unsignedId: trust, which also forwards replays under another ID' : ''}`,
    );
  }
  if (dedup.retention < dedup.lease) {
    const least = `set it to at least dedup.lease, ${dedup.lease / 1_000}s, or shorten that`;
    yield error([...path, 'retention'], 'a handled event is forgotten sooner than one that is being handled', least);
  }
  if (dedup.unsignedId === 'trust') yield* checkTrust(webhook, [...path, 'unsignedId']);
  if (dedup.inProgress === 'wait' && dedup.maxWait >= dedup.lease)
    yield warning([...path, 'maxWait'], 'deliveries wait longer than the lease lasts', 'set it below lease');
  if (dedup.onStoreError === 'forward')
    yield warning(
      [...path, 'onStoreError'],
      'while the store is down, duplicates and replays reach the app',
      'refuse rejects deliveries with 503, and the sender retries',
    );
}

function checkTrust({ description, scheme, tolerance }: WebhookConfig, path: Path): Problem[] {
  // If parts of the body are not signed, trust is an error.
  if (coversId(description) || description.unsignedBody !== undefined) return [];
  const message = `${scheme} does not sign the ID: with one captured delivery and invented IDs, anyone can make the app handle the event again and again, ${tolerance === undefined ? 'forever' : 'until its timestamp is too old'}`;
  return [warning(path, message, 'unsignedId: check, unless the app recognizes repeats by the body')];
}

/** Without a parameter, or with. Other media types may be used for JSON. */
const NOT_JSON = /^(?:application\/x-www-form-urlencoded|multipart\/|[^;]+[/+]xml)/;

function* checkOrder(order: OrderConfig, webhook: WebhookConfig, path: Path): Iterable<Problem> {
  const { description, scheme, dedup, contentTypes } = webhook;
  if (description.contentField === undefined && contentTypes.every((each) => NOT_JSON.test(each)))
    yield error(path, `deliveries of ${scheme} are not JSON, so none has a resource and a version`, 'remove order');
  if (webhook.allowContentEncoding)
    yield warning(path, 'with allowContentEncoding, the app may get events with an encoding, and those pass without ordering');
  for (const setting of ['key', 'version'] as const) {
    if (order.onStale === 'forward' || coversValue(description, order[setting].text)) continue;
    yield error(
      [...path, setting],
      `${scheme} does not sign ${order[setting].text}: with a captured delivery anyone could write a high version, and newer events would get 200 without reaching the app`,
      'use a signed value, or onStale: forward',
    );
  }
  const { retention, lease, maxWait, onStoreError } = order;
  if (maxWait >= lease) yield warning([...path, 'maxWait'], 'events wait longer than the lease lasts', 'set it below lease');
  if (retention <= lease) {
    yield error(
      [...path, 'retention'],
      'the newest version can be forgotten while an older event still waits for its turn',
      'set it above lease; senders may retry for three days',
    );
  } else if (retention < SENDER_RETRY_HORIZON_MS) {
    yield warning(
      [...path, 'retention'],
      'senders may retry for three days; an older event that arrives after the retention reaches the app',
      'retention: 3d',
    );
  }
  if (dedup !== 'off' && dedup.onStoreError !== onStoreError)
    yield error(
      [...path, 'onStoreError'],
      `dedup.onStoreError is ${dedup.onStoreError}: while the store is down, an event needs both, so it is rejected`,
      'set both to the same value',
    );
  if (onStoreError === 'forward')
    yield warning(
      [...path, 'onStoreError'],
      'while the store is down, older events reach the app after newer ones',
      'refuse rejects events with 503, and the sender retries',
    );
}

function* checkKeys(webhook: WebhookConfig, path: Path, now: EpochMilliseconds): Iterable<Problem> {
  const { keys, jwks, description } = webhook;
  const hasSignature = description.signature !== undefined;
  if (hasSignature && keys.length + jwks.length === 0 && !fetchesCertificates(webhook))
    yield error(path, 'a webhook route needs a key', toKeyHint(description));
  if (!hasSignature && keys.length > 0)
    yield error(path, `${description.name} has no signature that a key could verify`, 'remove keys');
  yield* checkNames(webhook, path);
  yield* checkValidity(webhook, path, now);
}

function toKeyHint({ from }: WebhookConfig['description']): string {
  const example = 'keys: [{ name: current, secret: { env: NAME } }]';
  return from === undefined ? example : `${example}; for ${from.title} it is ${from.key}`;
}

function* checkNames({ keys, jwks }: WebhookConfig, path: Path): Iterable<Problem> {
  const seen = new Set(jwks.map(({ name }) => name));
  for (const [index, { name }] of keys.entries()) {
    const hint = 'use a unique name; logs and metrics identify keys by it';
    if (seen.has(name)) yield error([...path, index, 'name'], `two keys are named ${name}`, hint);
    seen.add(name);
  }
}

function* checkValidity({ keys, jwks }: WebhookConfig, path: Path, now: EpochMilliseconds): Iterable<Problem> {
  const isPending = ({ notBefore }: KeyConfig): boolean => notBefore !== undefined && now < notBefore;
  const isExpired = ({ notAfter }: KeyConfig): boolean => notAfter !== undefined && notAfter <= now;
  const isUseless = jwks.length === 0 && keys.length > 0 && keys.every(isExpired);
  for (const [index, key] of keys.entries()) {
    if (isExpired(key) && !isUseless) yield warning([...path, index, 'notAfter'], 'the key has expired', 'remove it');
    if (key.notBefore !== undefined && key.notAfter !== undefined && key.notAfter <= key.notBefore)
      yield error(
        [...path, index, 'notBefore'],
        'notAfter is not after notBefore, so the key is never accepted',
        'set notBefore to an earlier time than notAfter',
      );
  }
  if (isUseless)
    yield error(path, 'every key has expired, so every delivery would be rejected', 'add the key that the sender signs with now');
  if (jwks.length === 0 && keys.some(isPending) && keys.every((key) => isPending(key) || isExpired(key)))
    yield warning(
      path,
      'no key is valid yet, so every delivery gets 503',
      'add the key that the sender signs with now, or set an earlier notBefore',
    );
}

/** An ID must be remembered while its delivery can be replayed, and should be while the sender retries. */
export function* checkRetention(webhook: WebhookConfig, bodyTimeout: Milliseconds, path: Path): Iterable<Problem> {
  const { dedup, tolerance } = webhook;
  if (dedup === 'off') return;
  const at = [...path, 'dedup', 'retention'];
  const minimum = toMinRetention(tolerance, bodyTimeout);
  if (dedup.retention < minimum)
    yield error(
      at,
      'an ID is forgotten while its delivery can still be replayed',
      `set at least ${Math.ceil(minimum / 1_000)}s: tolerance.past + tolerance.future (a timestamp in the future stays valid for both) + limits.bodyTimeout`,
    );
  else if (dedup.retention < SENDER_RETRY_HORIZON_MS && !repeatsBytes(webhook))
    yield warning(at, 'senders may retry for three days; a retry after the retention is handled again', 'retention: 3d');
}

/** A wait while an event has a claim. */
type Wait = readonly [name: string, duration: Milliseconds];

/** A claim must last while the app works. If it also lasts for every wait before that, the gate need not reject deliveries that waited. */
export function* checkLeases(webhook: WebhookConfig, route: RouteConfig, config: Config, path: Path): Iterable<Problem> {
  const { dedup, order } = webhook;
  const { before, work } = toWaits(webhook, route, config);
  if (dedup !== 'off') {
    // The claim of the ID is also held while the event waits for its turn.
    const needed: Wait[] = order === undefined ? work : [...work, ['order.maxWait', order.maxWait]];
    yield* checkLease(
      dedup.lease,
      needed,
      before,
      [...path, 'dedup', 'lease'],
      webhook.ack === 'onAccept'
        ? 'before the delivery is stored, so a retry'
        : 'while the app still handles the delivery, so a retry',
    );
  }
  if (order !== undefined) {
    const victim = 'while the app still handles the event, so another event of the resource';
    yield* checkLease(order.lease, work, before, [...path, 'order', 'lease'], victim);
  }
}

/** The waits before a byte is sent to the app, and those from then on. */
function toWaits({ ack }: WebhookConfig, route: RouteConfig, config: Config): Record<'before' | 'work', Wait[]> {
  const { timeout, connectTimeout, resend } = route;
  const queue: Wait = ['limits.queueTimeout', config.limits.queueTimeout];
  // A stored delivery is sent to the app without a claim; the claim must last until it is stored.
  if (ack === 'onAccept') return { before: [queue], work: toAppendWaits(config) };
  const first: Wait[] = resend === 'always' ? [['timeout (of a first attempt)', timeout]] : [];
  return {
    before: [queue, ['timeout (for a free connection)', timeout], ...first],
    work: [
      ['timeout', timeout],
      ['connectTimeout', connectTimeout],
    ],
  };
}

function toAppendWaits(config: Config): Wait[] {
  const timeout = toAppendTimeout(config);
  return timeout === 0 ? [] : [['provider.queue.postgres.statementTimeout', timeout]];
}

/** Many senders try only a few times in an hour. */
const LONG_LEASE_MS: Milliseconds = 600_000;

function checkLease(lease: Milliseconds, work: readonly Wait[], before: readonly Wait[], path: Path, victim: string): Problem[] {
  const toSum = (waits: readonly Wait[]): Milliseconds => waits.reduce((sum, [, duration]) => sum + duration, LEASE_MARGIN_MS);
  const toHint = (waits: readonly Wait[]): string =>
    `set more than ${toSum(waits)}ms: ${waits.map(([name]) => name).join(' + ')} + ${LEASE_MARGIN_MS}ms`;
  if (lease <= toSum(work)) return [error(path, `the lease can end ${victim} would run concurrently`, toHint(work))];
  const all = [...work, ...before];
  const most = Math.max(LONG_LEASE_MS, 2 * toSum(all));
  if (lease > most) {
    const message = 'after a timeout or a crash, retries of the event get 503 until the lease ends';
    return [warning(path, message, `set at most ${most / 1_000}s`)];
  }
  if (lease > toSum(all)) return [];
  return [warning(path, 'a delivery that waited for a slot or a connection can get 503, as the lease is too short', toHint(all))];
}

// The rules of methods and media types: every request that a route lists must be one that its scheme can accept.

/** Entries of `match.methods` and `contentTypes` by which every delivery would be rejected. */
function checkContent(webhook: WebhookConfig, { match }: RouteConfig, path: Path, matchPath: Path): Problem[] {
  return [
    ...checkMethods(webhook, match.methods ?? [], [...matchPath, 'methods']),
    ...checkMediaTypes(webhook, [...path, 'contentTypes']),
    ...checkAbsence(webhook, match.withoutHeaders ?? [], [...matchPath, 'withoutHeaders']),
    ...checkOwnHandshake(webhook, match, matchPath),
  ];
}

/** A route must also match the handshake, which is a GET or a POST without the headers of a delivery if it is not signed. */
function* checkOwnHandshake(
  { handshake }: WebhookConfig,
  { methods, headers = [] }: RouteConfig['match'],
  path: Path,
): Iterable<Problem> {
  if (handshake === undefined || HANDSHAKES[handshake.type].isSigned === true) return;
  const title = `the handshake of ${handshake.type}`;
  if (HANDSHAKES[handshake.type].method === undefined && methods?.includes('POST') === false)
    yield error([...path, 'methods'], `${title} is a POST, which the route rejects with 405`, 'add POST; or handshake: off');
  if (headers.length > 0)
    yield warning(
      [...path, 'headers'],
      `${title} is not signed, and gets no response from this route if it comes without ${headers.join(', ')}`,
      'use a separate path for this sender, without headers; or handshake: off if another route responds',
    );
}

function checkMethods(
  { description, handshake, scheme, contentTypes }: WebhookConfig,
  listed: readonly string[],
  path: Path,
): Problem[] {
  if (listed.length === 0) return [];
  const own = toSenderMethods(description);
  if (own !== undefined && !listed.some((method) => own.includes(method))) {
    const message = `${description.from?.title ?? scheme} sends deliveries by ${own.join(', ')}, which the route rejects with 405`;
    return [error(path, message, `methods: [${own[0]}]; or remove methods`)];
  }
  // A handshake by GET or HEAD needs no entry, and may have one.
  if (handshake !== undefined) return [];
  if (!needsContent(description)) {
    const useless = listed.filter((method) => METHODS_WITHOUT_CONTENT.has(method) && !mayBeEmpty(description, method));
    if (useless.length === 0 || contentTypes.includes(NO_MEDIA_TYPE)) return [];
    const message = `requests by ${useless.join(', ')} usually have no Content-Type, and then get 415`;
    const fix = own === undefined ? '' : `methods: [${own.join(', ')}], by which ${scheme} sends; or `;
    return [warning(path, message, `${fix}add none to contentTypes`)];
  }
  return listed.flatMap((method, index) => {
    const message = `${scheme} reads the body, which a ${method} request does not have, so all of them are rejected`;
    return METHODS_WITHOUT_CONTENT.has(method) ? [error([...path, index], message, 'methods: [POST]')] : [];
  });
}

function checkMediaTypes({ contentTypes, description, scheme }: WebhookConfig, path: Path): Problem[] {
  const own = description.contentTypes;
  const found = contentTypes.flatMap((contentType, index) => {
    const problem = findProblem(contentType, description);
    if (problem === undefined) return [];
    const fix = `remove it; the media types of ${scheme} are ${own.join(', ')}`;
    return [error([...path, index], `no delivery can be ${contentType}: ${problem}`, fix)];
  });
  const { from } = description;
  const essences = new Set(own.map(toEssence));
  if (found.length > 0 || from === undefined || contentTypes.some((each) => essences.has(toEssence(each)))) return found;
  // A warning, because a sender may have settings that its documents do not name.
  const message = `${from.title} sends ${own.join(' or ')}, so its deliveries get 415`;
  return [warning(path, message, `contentTypes: [${own.join(', ')}]; or remove contentTypes`)];
}

const FORMS: ReadonlySet<MediaForm> = new Set(['form', 'multipart']);

function findProblem(contentType: string, description: SchemeDescription): string | undefined {
  if (contentType === NO_MEDIA_TYPE) return needsContent(description) ? 'the scheme reads the body' : undefined;
  const form = toMediaForm(contentType);
  if (needsUrlEncoded(description) && form === 'multipart') return 'the scheme signs the fields of a URL-encoded form';
  if (needsForm(description)) return FORMS.has(form) ? undefined : 'the scheme reads the fields of a form';
  return readsJson(description) && (FORMS.has(form) || form === 'xml') ? 'the scheme reads the body as JSON' : undefined;
}

function readsJson(description: SchemeDescription): boolean {
  const { contentShape, signature, timestamp } = description;
  const isTimeInBody = timestamp !== undefined && 'json' in timestamp.from;
  return contentShape !== undefined || isTimeInBody || signature?.content !== undefined || readsBody(description);
}

/** A route cannot require that a header is absent that each of its deliveries has. */
function checkAbsence({ description, contentTypes, scheme }: WebhookConfig, names: readonly string[], path: Path): Problem[] {
  const { signature } = description;
  const needed = signature?.moreHeaders === undefined ? toHeaderNames(description) : [];
  const own = new Set(needed.filter((name) => name === signature?.header.toLowerCase() && description.acceptsTwins !== true));
  return names.flatMap((name, index) => {
    const isType = name === 'content-type' && !contentTypes.includes(NO_MEDIA_TYPE);
    if (!own.has(name) && !isType) return [];
    return [error([...path, index], `each delivery of ${scheme} has ${name}, so the route receives none`, 'remove it')];
  });
}
