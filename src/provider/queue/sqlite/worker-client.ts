/** Sends operations to the thread that has the database: all of one turn of the event loop in one message, which is one transaction. */
import { Worker } from 'node:worker_threads';
import { SidegateError, toErrorText } from '../../../core/errors.ts';
import { onceEvent, onEvent, runDetached, runNextTurn } from '../../../core/safe-events.ts';
import type { QueueBounds } from '../delivery-queue.ts';
import type { Batch, BatchReply, Opened, WorkerSettings } from '../messages.ts';
import type { OperationKind, Operations, Reply, Results } from '../sql/store.ts';
import {
  type Claimed,
  type OpenStore,
  type StoreClient,
  type StoreEvents,
  toReplyError,
  type WithBodies,
  watchAvailability,
} from '../store-client.ts';
import { createUnpacker, packBytes } from './batch.ts';
import { describeHolder, prepareQueueFile, toFileName } from './queue-file.ts';

/** The worker's file: beside this one in the sources, beside the bundle otherwise. */
const WORKER = new URL(import.meta.url.endsWith('.ts') ? './queue-worker.ts' : './queue-worker.cjs', import.meta.url);
/** Messages are short-lived: a small young generation frees their buffers sooner. The heap itself has a few megabytes. */
const RESOURCE_LIMITS = { maxYoungGenerationSizeMb: 6 } as const;
const NO_BODIES: readonly Buffer[] = [];

export function openSqliteStore(path: string, allowVolatile: boolean, bounds: QueueBounds): OpenStore {
  return async (events) => {
    const warnings = prepareQueueFile(path, allowVolatile);
    try {
      return { client: await WorkerClient.open({ path, bounds }, events), warnings };
    } catch (thrown) {
      if (!(thrown instanceof SidegateError) || thrown.code !== 'queue_in_use') throw thrown;
      throw new SidegateError('user', 'queue_in_use', describeHolder(path), { cause: thrown });
    }
  };
}

interface Call {
  readonly operation: { readonly kind: OperationKind };
  readonly bodies: readonly Buffer[];
  /** Calls back instead of creating a promise for each step; `bodies` are those of the result. */
  readonly resolve: (result: never, bodies: readonly Buffer[]) => void;
  readonly reject: (error: Error) => void;
}

class WorkerClient implements StoreClient {
  readonly #events: StoreEvents;
  readonly #file;
  readonly #noteAvailability: ReturnType<typeof watchAvailability>;
  readonly #worker: Worker;
  #waiting: Call[] = [];
  #sent: readonly Call[] = [];
  #isScheduled = false;
  #isClosing = false;
  #failure: Error | undefined;
  readonly #ended: Promise<void>;

  /** The thread ended unexpectedly. */
  get isBroken(): boolean {
    return this.#failure !== undefined;
  }

  private constructor(worker: Worker, { path }: WorkerSettings, events: StoreEvents) {
    this.#worker = worker;
    this.#file = { path, name: toFileName(path) };
    this.#events = events;
    this.#noteAvailability = watchAvailability(events);
    onEvent(worker, 'message', (reply: BatchReply) => this.#receive(reply));
    onEvent(worker, 'error', (error) => this.#fail(error));
    this.#ended = new Promise((resolve) => {
      onEvent(worker, 'exit', (code) => {
        this.#fail(new Error(`the thread of the queue ended with code ${code}`));
        resolve();
      });
    });
    // Only operations that wait for a reply keep the process alive.
    worker.unref();
  }

  /** Starts the thread and opens the file. Rejects with a SidegateError if that fails. */
  static async open(settings: WorkerSettings, events: StoreEvents): Promise<WorkerClient> {
    // `node:sqlite` is a release candidate, which some releases of Node say on standard error.
    const execArgv = ['--disable-warning=ExperimentalWarning'];
    const worker = new Worker(WORKER, { workerData: settings, execArgv, resourceLimits: RESOURCE_LIMITS });
    const opened = await waitForOpen(worker);
    if (!opened.isOpen) throw new SidegateError(opened.kind, opened.code, opened.message);
    if (opened.unreadCommits > 1)
      events.onLost(
        `the write-ahead log of ${settings.path} is damaged, and at least ${opened.unreadCommits} of its last transactions are lost; check the disk, and post the events of the time before this start again`,
      );
    return new WorkerClient(worker, settings, events);
  }

  /** This process has all lanes. */
  async claim(endpoint: string): Promise<Claimed> {
    const [state] = await this.call('laneStates', { endpoints: [endpoint] });
    // JSON has no undefined.
    return { state: state ?? undefined, holder: null };
  }

  call<K extends OperationKind>(kind: K, operation: Operations[K], bodies: readonly Buffer[] = NO_BODIES): Promise<Results[K]> {
    return new Promise((resolve, reject) => this.#add({ operation: { kind, ...operation }, bodies, resolve, reject }));
  }

  read<K extends 'take' | 'readPayload'>(kind: K, operation: Operations[K]): Promise<WithBodies<Results[K]>> {
    return new Promise((resolve, reject) => {
      const onResult = (result: Results[K], bodies: readonly Buffer[]): void => resolve({ result, bodies });
      this.#add({ operation: { kind, ...operation }, bodies: NO_BODIES, resolve: onResult, reject });
    });
  }

  /** Finishes what was asked, closes the file and ends the thread. */
  async close(): Promise<void> {
    if (this.#isClosing) return this.#ended;
    if (this.#failure === undefined) {
      const finished = this.#waiting.length + this.#sent.length === 0 ? undefined : this.call('dueLanes', { owner: '', now: 0 });
      this.#isClosing = true;
      await finished?.catch(() => undefined);
      this.#worker.ref();
      // A file that cannot be closed properly is recovered when it is opened.
      this.#worker.postMessage('close');
    }
    return this.#ended;
  }

  #add(call: Call): void {
    if (this.#failure !== undefined || this.#isClosing)
      return call.reject(new SidegateError('system', 'queue_unavailable', this.#failure?.message ?? 'the queue is closed'));
    // The next start would not find the event.
    if (call.operation.kind === 'append' && toFileName(this.#file.path) !== this.#file.name)
      return call.reject(new SidegateError('system', 'queue_unavailable', 'the file of the queue was deleted or replaced'));
    this.#waiting.push(call);
    this.#schedule();
  }

  /** One message at a time: what is asked while the disk is busy shares the next transaction. */
  #schedule(): void {
    if (this.#isScheduled || this.#sent.length > 0 || this.#waiting.length === 0) return;
    this.#isScheduled = true;
    runNextTurn(() => this.#send());
  }

  #send(): void {
    this.#isScheduled = false;
    if (this.#failure !== undefined) return;
    const calls = this.#waiting.splice(0);
    const [all, operations]: [Buffer[], Call['operation'][]] = [[], []];
    for (const { bodies, operation } of calls) {
      for (const body of bodies) all.push(body);
      operations.push(operation);
    }
    const bodies = packBytes(all);
    this.#sent = calls;
    this.#worker.ref();
    try {
      this.#worker.postMessage({ operations: JSON.stringify(operations), bodies } satisfies Batch, [bodies]);
    } catch (thrown) {
      // An operation that is not JSON: a bug of a caller.
      this.#sent = [];
      for (const { reject } of calls)
        reject(new SidegateError('system', 'queue_unavailable', toErrorText(thrown), { cause: thrown }));
      this.#schedule();
    }
  }

  #receive({ replies: text, bodies }: BatchReply): void {
    const replies = JSON.parse(text) as readonly Reply[];
    const calls = this.#sent;
    this.#sent = [];
    if (!this.#isClosing) this.#worker.unref();
    const unpack = createUnpacker(bodies);
    for (let i = 0; i < calls.length; i++) {
      const [call, reply] = [calls[i] as Call, replies[i]];
      if (reply === undefined) continue;
      if (!reply.isDone) {
        call.reject(toReplyError(reply));
        continue;
      }
      const lengths = findBodyLengths(call.operation.kind, reply.result);
      call.resolve(reply.result as never, lengths.length === 0 ? NO_BODIES : lengths.map(unpack));
    }
    const hasWrite = calls.some(({ operation: { kind } }) => kind === 'append' || kind === 'settle');
    this.#noteAvailability(replies, hasWrite);
    this.#schedule();
  }

  #fail(error: Error): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    const lost = [...this.#sent, ...this.#waiting];
    this.#sent = [];
    this.#waiting = [];
    for (const { reject } of lost)
      reject(new SidegateError('system', 'queue_unavailable', `the queue ended: ${error.message}`, { cause: error }));
    if (this.#isClosing) return;
    runDetached(this.#worker.terminate());
    this.#events.onFatal(error);
  }
}

function waitForOpen(worker: Worker): Promise<Opened> {
  return new Promise((resolve, reject) => {
    const toError = (reason: string): Error =>
      new SidegateError('system', 'queue_unavailable', `cannot start the thread of the queue: ${reason}`);
    onceEvent(worker, 'message', (opened: Opened) => resolve(opened));
    onceEvent(worker, 'error', (error) => reject(toError(error.message)));
    onceEvent(worker, 'exit', (code) => reject(toError(`it ended with code ${code}`)));
  });
}

function findBodyLengths(kind: OperationKind, result: Results[OperationKind]): readonly number[] {
  if (kind === 'take') return (result as Results['take']).taken.map(({ bodyLength }) => bodyLength);
  if (kind === 'readPayload' && result !== undefined) return [(result as NonNullable<Results['readPayload']>).bodyLength];
  return [];
}
