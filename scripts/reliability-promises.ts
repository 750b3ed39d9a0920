/** The promises of sidegate, and what proves each one. docs/reliability.md is generated from them; a test checks that every proof exists. */

/** Suites whose results `npm run record:suites` keeps, with the command that repeats each. */
export const SUITES = {
  test: 'npx vitest run --project test',
  models: 'npm test -- models',
  simulation: 'npm test -- simulation',
  cluster: 'npm test -- cluster',
  oracles: 'npm test -- oracles',
  memory: 'npm test -- memory',
} as const;

export type SuiteName = keyof typeof SUITES;

/** Long runs that write a file in bench/, with the command that repeats each. */
export const RUNS = {
  chaos: { command: 'npm test -- chaos', title: 'chaos: processes, stores and networks that fail', file: 'RESULTS-chaos.json' },
  soak: { command: 'npm run soak', title: 'soak: half load with reloads and rotations', file: 'RESULTS-soak.json' },
} as const;

export type RunName = keyof typeof RUNS;

/** The proof of a promise. */
export type Proof =
  /** A test by its whole title, which its file contains literally. */
  | { readonly kind: 'test'; readonly suite: SuiteName; readonly file: string; readonly title: string }
  /** An invariant that a model checker finds true in every reachable state. */
  | { readonly kind: 'invariant'; readonly model: 'claims' | 'lanes'; readonly name: string }
  /** A check of each simulated world: a function in test/simulation. */
  | { readonly kind: 'simulation'; readonly file: string; readonly name: string; readonly title: string }
  | { readonly kind: 'run'; readonly run: RunName };

/** A promise, in one sentence. */
export interface Promised {
  readonly promise: string;
  /** Where its limits are, if it has some: a page in docs/. */
  readonly limits?: string;
  readonly proofs: readonly Proof[];
}

const test = (file: string, title: string, suite: SuiteName = 'test'): Proof => ({ kind: 'test', suite, file, title });
const invariant = (model: 'claims' | 'lanes', name: string): Proof => ({ kind: 'invariant', model, name });
const simulated = (name: string, title: string, file = 'test/simulation/invariants.ts'): Proof => ({
  kind: 'simulation',
  file,
  name,
  title,
});
const CHAOS: Proof = { kind: 'run', run: 'chaos' };
const SOAK: Proof = { kind: 'run', run: 'soak' };

/** Promises of the gate about webhooks. */
const RECEIVED: readonly Promised[] = [
  {
    promise: 'A sender gets a 2xx only for an event that the app handled: nothing acknowledged is lost',
    proofs: [
      invariant('claims', 'AcknowledgedIsHandled'),
      invariant('claims', 'RecordedIsHandled'),
      simulated('findLost', 'no acknowledged event is lost'),
      test(
        'test/e2e/replicas.test.ts',
        'a gate killed between claim and confirm loses no event: the retry is handled after the lease',
      ),
      CHAOS,
    ],
  },
  {
    promise: 'Of all deliveries of one event, the app handles one; a second time only if the outcome of the first was unknown',
    limits: 'explanation/handled-once.md',
    proofs: [
      invariant('claims', 'DoubleHasCause'),
      invariant('claims', 'OverlapHasCause'),
      simulated('findDoubles', 'a fault explains each event that is handled twice'),
      test(
        'test/e2e/replicas.test.ts',
        'two gates with one Redis forward each of 1,000 IDs exactly once, with 200 concurrent senders',
      ),
      test('test/e2e/app-trouble.test.ts', 'that dies before it responds leads to 502, and the claim is held'),
      CHAOS,
    ],
  },
  {
    promise: 'A process settles only the claim that it holds',
    proofs: [
      invariant('claims', 'SettledByHolder'),
      test('test/contract/seen-ids.contract.ts', 'ignores a token that lost the claim to another'),
      test('test/models/claims/conformance.test.ts', 'in Redis, with failovers', 'models'),
    ],
  },
  {
    promise: 'An event that the sender retries is handled in the end: no claim blocks it forever',
    proofs: [
      invariant('claims', 'RetriedIsHandled'),
      simulated('findUnacknowledged', 'every sender gets its 2xx after the last fault'),
      test('test/e2e/app-trouble.test.ts', 'that is too slow leads to 504, and the event stays claimed until the lease ends'),
      test('test/unit/gateway/pipeline/settlements.test.ts', 'is retried until the store is back'),
    ],
  },
  {
    promise: 'Nothing forged reaches the app, and nothing forged uses up the ID of a valid event',
    proofs: [
      simulated('#checkAllowed', 'no app gets a forged or expired delivery', 'test/simulation/app-node.ts'),
      test('test/e2e/gate.test.ts', 'does not use up the ID of a valid one'),
      test('test/attack/piece-shift.test.ts', 'rejects every other message that has the same signed string'),
      test(
        'test/oracles/gate.test.ts',
        'reaches the app unchanged and once: not if forged, repeated or under another ID',
        'oracles',
      ),
      CHAOS,
    ],
  },
  {
    promise: 'Nothing expired and nothing replayed reaches the app, also under a new ID that is not signed',
    proofs: [
      test('test/e2e/gate.test.ts', 'is rejected 305 s old and 305 s ahead, with the same code'),
      test('test/e2e/gate.test.ts', 'is answered as a duplicate the second time, without reaching the app'),
      test(
        'test/e2e/unsigned-ids.test.ts',
        'a captured body never reaches the app under another ID; as it may be another event, it gets no 2xx',
      ),
    ],
  },
  {
    promise: 'With `order`, the app gets no older version of a resource after a newer one',
    limits: 'how-to/order-events.md',
    proofs: [simulated('findStale', 'no older version follows a newer one that was handled')],
  },
  {
    promise: 'While the store is down, deliveries are rejected in time, and forwarded after it is back',
    proofs: [
      test(
        'test/e2e/replicas.test.ts',
        'while Redis hangs a delivery is rejected with 503 in time, and it is forwarded once Redis continues',
      ),
      simulated('findUnconfirmed', 'a handled event is recorded once the store is back'),
      CHAOS,
    ],
  },
];

/** Promises about the life of a process. */
const PROCESSES: readonly Promised[] = [
  {
    promise: 'A shutdown loses nothing: requests in progress are finished, others go to another pod',
    proofs: [
      test(
        'test/e2e/lifecycle.test.ts',
        'turns readiness off, serves during the grace period, finishes requests in progress, and exits 0',
      ),
      test('test/e2e/lifecycle.test.ts', 'is released when the gate stops'),
      test(
        'test/cluster/rolling.test.ts',
        'loses no request in a rolling restart under load, behind a load balancer that learns late which pods end',
        'cluster',
      ),
    ],
  },
  {
    promise: 'A config or secret that is broken changes nothing but its own route',
    proofs: [
      test('test/e2e/lifecycle.test.ts', 'is reloaded without a restart; a broken one changes nothing and is reported'),
      test(
        'test/e2e/lifecycle.test.ts',
        'by the kubelet’s symlink swap applies at once, every time; one that disappears makes only its route respond with 503',
      ),
    ],
  },
  {
    promise: 'Floods and slow clients do not exceed the memory limit, and valid deliveries get through',
    limits: 'memory.md',
    proofs: [
      test('test/memory/floods.test.ts', 'during a flood of forged bodies on 1,000 connections', 'memory'),
      test('test/attack/fair-use.test.ts', 'serves valid deliveries while many clients upload slowly to an open route'),
      test('test/attack/hostile-app.test.ts', 'survives random bytes from apps and clients'),
    ],
  },
  {
    promise: 'Memory, timers, sockets and files stay flat over time',
    proofs: [
      simulated(
        'findLeftovers',
        'an idle gate has nothing open, and after its stop no timer and no socket',
        'test/simulation/leftovers.ts',
      ),
      SOAK,
    ],
  },
];

/** Promises of the sending side. */
const SENT: readonly Promised[] = [
  {
    promise: 'An event that the app wrote to its outbox is sent if its transaction commits, and only then',
    limits: 'outbox.md',
    proofs: [
      test(
        'test/e2e/outbox-gate.test.ts',
        'sends every event of 300 committed transactions, and none that was rolled back, while the gate is killed at random points',
      ),
      test('test/e2e/outbox-faults.test.ts', 'that stops while the queue stores events: they are stored once'),
    ],
  },
  {
    promise: 'An event that the provider accepted is not lost',
    limits: 'provider.md',
    proofs: [
      invariant('lanes', 'AcceptedIsKept'),
      simulated('findUndelivered', 'every accepted event is delivered, or dead'),
      test(
        'test/contract/delivery-queue-crash.contract.ts',
        'loses nothing that was acknowledged: every stored event is there, every delivered one stays delivered, the rest is due again',
      ),
      CHAOS,
    ],
  },
  {
    promise: 'Each delivery ends, and as delivered only after a 2xx of the endpoint',
    proofs: [invariant('lanes', 'AcceptedEnds'), invariant('lanes', 'DeliveredIsAnswered')],
  },
  {
    promise:
      'An endpoint gets an event a second time only for a listed cause, and two attempts at once only after a pause or a data loss',
    limits: 'explanation/handled-once.md#events-that-sidegate-sends',
    proofs: [invariant('lanes', 'DoubleHasCause'), invariant('lanes', 'OneSender'), invariant('lanes', 'SettledByAttempt')],
  },
  {
    promise: 'Events with the same `orderBy` key arrive in the order in which they were accepted',
    limits: 'provider.md',
    proofs: [
      simulated('findDisorder', 'no event of a customer is handled before an earlier one'),
      test(
        'test/contract/delivery-queue-settle.contract.ts',
        'keeps the order of a thousand deliveries with ten keys, some of which fail',
      ),
    ],
  },
  {
    promise: 'An endpoint that does not respond delays no other',
    proofs: [
      test('test/e2e/provider-fairness.test.ts', 'delivers to 200 healthy endpoints while 50 with backlogs never respond'),
    ],
  },
];

/** In the order of the page. */
export const PROMISES: Readonly<Record<string, readonly Promised[]>> = {
  'Webhooks that sidegate receives': RECEIVED,
  'Events that sidegate sends': SENT,
  'Life of a process': PROCESSES,
};

const MODEL_FILES = { claims: 'test/models/claims/Claims.tla', lanes: 'test/models/lanes/Lanes.tla' } as const;

/** Where a proof is: the file, and the text that it must contain. */
export function toPlace(proof: Exclude<Proof, { kind: 'run' }>): { readonly file: string; readonly text: string } {
  switch (proof.kind) {
    case 'test':
      return { file: proof.file, text: proof.title };
    case 'invariant':
      return { file: MODEL_FILES[proof.model], text: `\n${proof.name} ==` };
    case 'simulation':
      return { file: proof.file, text: `${proof.name}(` };
  }
}
