/** The rules of a webhook route, and the warnings about choices that weaken it. */
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import type { DedupConfig, KeyConfig, OrderConfig, RouteConfig, WebhookConfig } from '../schema/config.ts';
import { isUntimed } from '../schema/retention.ts';
import { error, type Path, type Rating, warning } from './rating.ts';
import { checkHandshake } from './validate-handshake.ts';
import { checkScheme } from './validate-scheme.ts';

/** How long senders go on with retries; a few do so longer. */
export const SENDER_RETRY_HORIZON_MS: Milliseconds = 259_200_000;

const DAY_MS: Milliseconds = 86_400_000;
const CLOCK_ROUNDING_MS: Milliseconds = 2_000;

/** Everything wrong or risky in a route's webhook section. */
export function checkWebhook(webhook: WebhookConfig, route: RouteConfig, path: Path, now: EpochMilliseconds): Rating[] {
  const found = [
    ...checkScheme(webhook, route, path),
    ...checkKeys(webhook, [...path, 'keys'], now),
    ...checkHandshake(webhook, [...path, 'handshake']),
  ];
  if (webhook.dedup === 'off') {
    found.push(
      warning(
        [...path, 'dedup'],
        'repeats and replays within the tolerance reach the app',
        'leave dedup out for its safe defaults',
      ),
    );
  } else {
    found.push(...checkDedup(webhook.dedup, webhook, route, [...path, 'dedup']));
  }
  if (webhook.order !== undefined) found.push(...checkOrder(webhook.order, route, [...path, 'order']));
  const { description } = webhook;
  const unsigned = 'the signature does not cover it, so whoever holds one genuine delivery can vary it';
  if (webhook.allowQuery && !description.signed.includes('url'))
    found.push(warning([...path, 'allowQuery'], `a query string is let through: ${unsigned}`));
  if (webhook.allowContentEncoding)
    found.push(warning([...path, 'allowContentEncoding'], `a Content-Encoding is let through: ${unsigned}`));
  if (webhook.allowDotInId)
    found.push(
      warning(
        [...path, 'allowDotInId'],
        'with dots in the id, bytes can move between id, timestamp and body under one signature',
      ),
    );
  return found;
}

/** A timestamp is judged by the arrival of the head, in whole seconds, and the id is claimed only when the content is there. */
export function checkRetention({ dedup, tolerance }: WebhookConfig, bodyTimeout: Milliseconds, path: Path): Rating[] {
  if (dedup === 'off') return [];
  const at = [...path, 'dedup', 'retention'];
  const least = tolerance === undefined ? 0 : tolerance.past + tolerance.future + bodyTimeout + CLOCK_ROUNDING_MS;
  if (dedup.retention >= least) {
    const isShort = dedup.retention < SENDER_RETRY_HORIZON_MS;
    const message = 'senders may retry for three days; a retry after the retention is handled again';
    return isShort ? [warning(at, message, 'retention: 3d')] : [];
  }
  return [
    error(
      at,
      'an id is forgotten while its delivery can still be replayed',
      `at least ${Math.ceil(least / 1_000)}s: the tolerance of both sides, as a timestamp that far ahead stays good for as long again, and limits.bodyTimeout`,
    ),
  ];
}

function checkDedup(dedup: DedupConfig, webhook: WebhookConfig, route: RouteConfig, path: Path): Rating[] {
  const found: Rating[] = [];
  if (dedup.isRetentionDefault && isUntimed(webhook)) {
    const days = Math.round(dedup.retention / DAY_MS);
    found.push(
      warning(
        [...path, 'retention'],
        `${webhook.scheme} signs no timestamp: a captured delivery can be replayed once its id is forgotten, after ${days} days (in memory also after a restart)`,
        'set retention as long as replays must be recognised, such as 90d, with the store in Redis; setting it hides this warning',
      ),
    );
  }
  // The claim holds while the event waits for its place, too.
  const waitsForPlace = webhook.order?.waitAtMost ?? 0;
  if (dedup.lease <= route.timeout + route.connectTimeout + waitsForPlace) {
    found.push(
      error(
        [...path, 'lease'],
        'the lease ends while the app may still be at work, so a retry would overlap it',
        webhook.order === undefined ? 'above timeout + connectTimeout' : 'above timeout + connectTimeout + order.waitAtMost',
      ),
    );
  }
  if (dedup.inProgress === 'wait' && dedup.waitAtMost >= dedup.lease)
    found.push(warning([...path, 'waitAtMost'], 'waiting outlasts the lease'));
  if (dedup.onStoreError === 'forward')
    found.push(
      warning(
        [...path, 'onStoreError'],
        'while the store is down, repeats and replays reach the app',
        'refuse answers 503, and the sender comes again',
      ),
    );
  return found;
}

function checkOrder(order: OrderConfig, route: RouteConfig, path: Path): Rating[] {
  const found: Rating[] = [];
  const { retention, lease, waitAtMost, onStoreError } = order;
  if (lease <= route.timeout + route.connectTimeout) {
    found.push(
      error(
        [...path, 'lease'],
        'the lease ends while the app may still be at work, so another event of the resource would overlap it',
        'above timeout + connectTimeout',
      ),
    );
  }
  if (waitAtMost >= lease) found.push(warning([...path, 'waitAtMost'], 'waiting outlasts the lease'));
  if (retention <= lease) {
    found.push(
      error(
        [...path, 'retention'],
        'the newest version is forgotten while an older event may still wait for its place',
        'above lease; senders may retry for three days',
      ),
    );
  } else if (retention < SENDER_RETRY_HORIZON_MS) {
    found.push(
      warning(
        [...path, 'retention'],
        'senders may retry for three days; an older event that comes after the retention reaches the app',
        'retention: 3d',
      ),
    );
  }
  if (onStoreError === 'forward')
    found.push(
      warning(
        [...path, 'onStoreError'],
        'while the store is down, older events reach the app after newer ones',
        'refuse answers 503, and the sender comes again',
      ),
    );
  return found;
}

function toKeyHint({ from }: WebhookConfig['description']): string {
  const example = 'keys: [{ name: current, secret: { env: NAME } }]';
  return from === undefined ? example : `${example}; for ${from.title} it is ${from.key}`;
}

function checkKeys({ keys, jwks, description }: WebhookConfig, path: Path, now: EpochMilliseconds): Rating[] {
  const found: Rating[] = [];
  const hasSignature = description.signature !== undefined;
  if (hasSignature && keys.length + jwks.length === 0)
    found.push(error(path, 'a webhook route needs a key', toKeyHint(description)));
  if (!hasSignature && keys.length > 0)
    found.push(error(path, `${description.name} has no signature that a key could check`, 'leave keys out'));
  const seen = new Set(jwks.map(({ name }) => name));
  const isAhead = ({ notBefore }: KeyConfig): boolean => notBefore !== undefined && now < notBefore;
  const isOver = ({ notAfter }: KeyConfig): boolean => notAfter !== undefined && notAfter <= now;
  for (const [index, key] of keys.entries()) {
    if (seen.has(key.name))
      found.push(error([...path, index, 'name'], `two keys are named ${key.name}`, 'names tell them apart in logs and metrics'));
    seen.add(key.name);
    if (isOver(key)) found.push(warning([...path, index, 'notAfter'], 'the key has expired', 'remove it'));
    if (key.notBefore !== undefined && key.notAfter !== undefined && key.notAfter <= key.notBefore)
      found.push(
        error(
          [...path, index, 'notBefore'],
          'the key ends before it begins, so it is never accepted',
          'notBefore below notAfter',
        ),
      );
  }
  if (jwks.length === 0 && keys.some(isAhead) && keys.every((key) => isAhead(key) || isOver(key)))
    found.push(
      warning(
        path,
        'no key is accepted yet, so each delivery gets 503',
        'give the key that the sender signs with now, or an earlier notBefore',
      ),
    );
  return found;
}
