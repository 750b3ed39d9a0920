/** Handles each event once, with the dedup gate and a store of the app. Loaded only for a verifier with a store. */
import { hash } from 'node:crypto';
import { DEFAULT_RETENTION_MS, isUntimed, repeatsBytes, toMinRetention } from '../config/schema/retention.ts';
import { type Milliseconds, systemClock } from '../core/clock.ts';
import { toErrorText } from '../core/errors.ts';
import { LEASE_MARGIN_MS } from '../core/event.ts';
import { Refusal, refuse } from '../core/refusal.ts';
import { type ClaimSettlement, ClaimWaiters } from '../gateway/pipeline/claims.ts';
import { createDedupGate } from '../gateway/pipeline/gates/dedup.ts';
import type { ClaimGate } from '../gateway/pipeline/gates/gate.ts';
import { type ClaimResult, type SeenIds, StoreUnavailable } from '../state/seen-ids.ts';
import { coversId } from '../verify/schemes/coverage.ts';
import type { SchemeDescription, Tolerance } from '../verify/schemes/description.ts';
import { compute } from './compute.ts';
import { BODY_TIMEOUT_MS } from './request.ts';
import { ANY, checkSettings, fail, hasMethods, LABEL, oneOf, type Rules, toTime } from './settings.ts';
import type { DedupSettings, EventStore, SecretOptions } from './types.ts';

const DEFAULT_LEASE_MS: Milliseconds = 60_000;
const DEFAULT_MAX_WAIT_MS: Milliseconds = 4_000;
/** As in the config of the gate. */
const DEFAULT_MAX_KINDS = 8;
const MAX_WAITING = 1_000;
/** For each call of the store: many senders wait no longer than 10 s for a response. */
const REPLY_TIMEOUT_MS: Milliseconds = 5_000;

/** The gate of a verifier, and what settles its claims. */
export interface Claims {
  readonly gate: ClaimGate;
  /** Runs `settle`, which settles a claim, and resolves once the store has taken it. */
  settle(settle: () => void): Promise<void>;
}

/** A secret with its name, given or not. */
export type NamedSecret = SecretOptions & { readonly name: string };

/** The scheme to verify, and the reporters of problems. */
interface ClaimsContext {
  readonly description: SchemeDescription;
  /** Undefined if no timestamp is signed. */
  readonly tolerance: Tolerance | undefined;
  readonly secrets: readonly NamedSecret[];
  warn(text: string): void;
  /** The store rejected a claim. */
  onError(thrown: unknown): void;
}

const DEDUP: Rules<DedupSettings> = {
  store: hasMethods('claim', 'confirm', 'release'),
  retention: ANY,
  lease: ANY,
  inProgress: oneOf('wait', 'reject'),
  maxWait: ANY,
  unsignedId: oneOf('check', 'trust'),
  namespace: LABEL,
};

/** Builds the gate. */
export async function createClaims(given: EventStore | DedupSettings, context: ClaimsContext): Promise<Claims> {
  const { description, secrets, warn, onError } = context;
  const { name } = description;
  // A store may have fields of any name.
  const settings: DedupSettings = 'claim' in given ? { store: given } : given;
  checkSettings(settings, DEDUP, 'dedup');
  const times = readTimes(settings, context);
  if (settings.unsignedId === 'trust' && !coversId(description))
    warn(`dedup.unsignedId: ${name} does not sign the ID, so a captured delivery is handled again under each invented ID`);
  const store = toSeenIds(settings.store, onError);
  // Only what the app waits for is kept: in an outage of the store, claims are given back without it.
  let awaited: Promise<unknown>[] | undefined;
  const settle = (settlement: ClaimSettlement): void => {
    if (settlement.of !== 'id') return;
    const { kind, key, token, fingerprint, retention } = settlement;
    const done = kind === 'confirm' ? store.confirm(key, token, fingerprint, retention) : store.release(key, token);
    // Claims that are given back because another one is taken are not awaited; their leases end.
    done.catch(() => undefined);
    awaited?.push(done);
  };
  const policy = {
    ...times,
    inProgress: settings.inProgress ?? 'wait',
    onStoreError: 'refuse',
    unsignedId: settings.unsignedId ?? 'check',
    repeatsBytes: description.repeatsBytes === true,
    maxKinds: DEFAULT_MAX_KINDS,
  } as const;
  const parts = {
    store,
    settlements: { settle },
    clock: systemClock,
    waiters: new ClaimWaiters(
      MAX_WAITING,
      () => undefined,
      () => undefined,
    ),
    onEvent: () => undefined,
    onDuration: () => undefined,
  };
  if (settings.namespace === undefined && secrets.length > 1)
    warn('dedup.namespace: without it, events are forgotten when the last secret is removed; set a name of the sender');
  // Verifiers of one scheme may share a store, and senders choose their IDs: an ID of one sender says nothing of one of another. Not by the secret that
  // verified the event: a delivery with a signature by each secret could be replayed without one of them.
  const last = secrets.at(-1)?.secret.trimEnd();
  const route = settings.namespace ?? `${name}:${await compute(() => hash('sha256', `namespace:${last}`, 'base64url'))}`;
  const gate = createDedupGate({ ...policy, route }, parts);
  return {
    // All that is hashed for a claim comes before the store is asked.
    gate: {
      async claim(event, head) {
        const grant = await compute(() => gate.claim(event, head));
        if (grant instanceof Refusal || systemClock.monotonic() < grant.expiresAt) return grant;
        // Another delivery can have the claim by now.
        grant.claim?.release();
        onError(new StoreUnavailable('timeout', 'the claim came after its lease'));
        return refuse('in_progress', 'lease_expired');
      },
    },
    async settle(run) {
      const settled: Promise<unknown>[] = [];
      awaited = settled;
      run();
      awaited = undefined;
      await Promise.all(settled);
    },
  };
}

function readTimes(settings: DedupSettings, { description, tolerance, warn }: ClaimsContext) {
  const { name } = description;
  const mayRepeat = repeatsBytes({ description });
  if (settings.retention === undefined && mayRepeat)
    fail(`dedup.retention: ${name} can send the same bytes for another event; set a short one`);
  if (settings.retention === undefined && isUntimed({ description, tolerance }))
    warn(`dedup.retention: ${name} does not sign the time, so a captured delivery is handled again after three days`);
  const retention = toTime(settings.retention ?? DEFAULT_RETENTION_MS, 'dedup.retention');
  const lease = toTime(settings.lease ?? DEFAULT_LEASE_MS, 'dedup.lease');
  const maxWait = toTime(settings.maxWait ?? DEFAULT_MAX_WAIT_MS, 'dedup.maxWait');
  const minimum = toMinRetention(tolerance, BODY_TIMEOUT_MS);
  if (retention < minimum)
    fail(
      `dedup.retention: an event is forgotten while its delivery can still be replayed; set at least ${Math.ceil(minimum / 1_000)}s: the tolerance in both directions, and 5m in which a body may arrive`,
    );
  if (lease <= LEASE_MARGIN_MS) fail(`dedup.lease: the claim ends while the event is handled; set it above ${LEASE_MARGIN_MS}ms`);
  if (retention <= lease)
    fail('dedup.retention: a handled event is forgotten sooner than one that is being handled; set it above dedup.lease');
  if (retention < DEFAULT_RETENTION_MS && !mayRepeat)
    warn('dedup.retention: senders may retry for three days; a retry after the retention is handled again');
  if (settings.inProgress !== 'reject' && maxWait >= lease) warn('dedup.maxWait: deliveries wait longer than the lease lasts');
  return { retention, lease, maxWait };
}

/** Checks what the store of an app resolves with, as apps in JavaScript have no types. */
function isClaimResult(result: ClaimResult | undefined | null): boolean {
  if (result?.state === 'new') return true;
  const isRight = result?.state === 'handled' || (result?.state === 'in-progress' && Number.isFinite(Number(result.remainingMs)));
  return isRight && typeof result?.fingerprint === 'string';
}

/** The store of an app. An error of it, or no reply in time, means that it is not available. */
function toSeenIds(store: EventStore, onError: (thrown: unknown) => void): SeenIds {
  const guard = async <Result>(work: () => Promise<Result>): Promise<Result> => {
    const late = Promise.withResolvers<never>();
    const cancel = systemClock.after(REPLY_TIMEOUT_MS, () => late.reject(new Error('no reply in 5 s')));
    try {
      return await Promise.race([work(), late.promise]);
    } catch (thrown) {
      if (thrown instanceof StoreUnavailable) throw thrown;
      throw new StoreUnavailable('error', toErrorText(thrown), { cause: thrown });
    } finally {
      cancel();
    }
  };
  const unused = (): never => {
    throw new Error('the dedup gate uses claims only');
  };
  return {
    claim(request) {
      let isGivenUp = false;
      const claim = async () => {
        const result = await store.claim(request);
        if (!isClaimResult(result)) throw new TypeError('claim resolved with a value that an EventStore must not return');
        // Granted after its delivery got 503, and maybe released before: it would reject the retries until the lease ends.
        if (isGivenUp && result.state === 'new') await store.release(request.key, request.token);
        // Databases return a large integer as a bigint, or as text.
        return result.state === 'in-progress' ? { ...result, remainingMs: Number(result.remainingMs) } : result;
      };
      return guard(claim).catch((thrown: unknown) => {
        isGivenUp = true;
        onError(thrown);
        throw thrown;
      });
    },
    confirm: (...parts) => guard(() => store.confirm(...parts)),
    release: (key, token) => guard(() => store.release(key, token)),
    forget: unused,
    isUp: () => true,
    close: async () => undefined,
  };
}
