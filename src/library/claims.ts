/** Handles each event once, with the dedup gate and a store of the app. Loaded only for a verifier with a store. */
import { type Milliseconds, systemClock } from '../core/clock.ts';
import { toErrorText } from '../core/errors.ts';
import { ClaimWaiters } from '../gateway/pipeline/claims.ts';
import { createDedupGate } from '../gateway/pipeline/gates/dedup.ts';
import type { ClaimGate } from '../gateway/pipeline/gates/gate.ts';
import type { Settlement } from '../gateway/pipeline/settlements.ts';
import { type SeenIds, StoreUnavailable } from '../state/claims/seen-ids.ts';
import type { SchemeDescription } from '../verify/schemes/description.ts';
import { compute } from './compute.ts';
import type { DedupSettings, Duration, EventStore } from './types.ts';

const DAY_MS = 86_400_000;
const DEFAULT_RETENTION_MS: Milliseconds = 3 * DAY_MS;
const DEFAULT_LEASE_MS: Milliseconds = 60_000;
const DEFAULT_MAX_WAIT_MS: Milliseconds = 4_000;
/** As in the config of the gate. */
const DEFAULT_MAX_KINDS = 8;
const MAX_WAITING = 1_000;

/** The gate of a verifier, and what settles its claims. */
export interface Claims {
  readonly gate: ClaimGate;
  /** Runs `settle`, which settles a claim, and resolves once the store has taken it. */
  settle(settle: () => void): Promise<void>;
}

/** Builds the gate. `read` reports a wrong duration. */
export function createClaims(
  given: EventStore | DedupSettings,
  { name, repeatsBytes }: SchemeDescription,
  read: (value: Duration, setting: string) => Milliseconds,
): Claims {
  const settings: DedupSettings = 'store' in given ? given : { store: given };
  const store = toSeenIds(settings.store);
  const settled: Promise<unknown>[] = [];
  const settle = (settlement: Settlement): void => {
    if (settlement.of !== 'id') return;
    const { kind, key, token, fingerprint, retention } = settlement;
    const done = kind === 'confirm' ? store.confirm(key, token, fingerprint, retention) : store.release(key, token);
    // Claims that are given back because another one is taken are not awaited; their leases end.
    done.catch(() => undefined);
    settled.push(done);
  };
  const gate = createDedupGate(
    {
      route: settings.namespace ?? name,
      retention: read(settings.retention ?? DEFAULT_RETENTION_MS, 'retention'),
      lease: read(settings.lease ?? DEFAULT_LEASE_MS, 'lease'),
      inProgress: settings.inProgress ?? 'wait',
      maxWait: read(settings.maxWait ?? DEFAULT_MAX_WAIT_MS, 'maxWait'),
      onStoreError: 'refuse',
      unsignedId: settings.unsignedId ?? 'check',
      repeatsBytes: repeatsBytes === true,
      maxKinds: DEFAULT_MAX_KINDS,
    },
    {
      store,
      settlements: { settle },
      clock: systemClock,
      waiters: new ClaimWaiters(MAX_WAITING, () => undefined),
      onEvent: () => undefined,
      onDuration: () => undefined,
    },
  );
  return {
    // All that is hashed for a claim comes before the store is asked.
    gate: { claim: (event, head) => compute(() => gate.claim(event, head)) },
    async settle(run) {
      settled.length = 0;
      run();
      await Promise.all(settled.splice(0));
    },
  };
}

/** The store of an app. An error of it means that it is not available. */
function toSeenIds(store: EventStore): SeenIds {
  const guard = async <Result>(work: () => Promise<Result>): Promise<Result> => {
    try {
      return await work();
    } catch (thrown) {
      if (thrown instanceof StoreUnavailable) throw thrown;
      throw new StoreUnavailable('error', toErrorText(thrown), { cause: thrown });
    }
  };
  const unused = (): never => {
    throw new Error('the dedup gate uses claims only');
  };
  return {
    claim: (request) => guard(() => store.claim(request)),
    confirm: (...parts) => guard(() => store.confirm(...parts)),
    release: (key, token) => guard(() => store.release(key, token)),
    forget: unused,
    isUp: () => true,
    close: async () => undefined,
  };
}
