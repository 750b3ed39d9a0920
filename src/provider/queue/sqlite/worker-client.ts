/** Sends operations to the thread that has the database: all of one turn of the event loop in one message, which is one transaction. */
import { Worker } from 'node:worker_threads';
import { SidegateError, toErrorText } from '../../../core/errors.ts';
import { onceEvent, onEvent, runDetached, runNextTurn } from '../../../core/safe-events.ts';
import { toOwnBytes } from '../own-bytes.ts';
import { packBytes, splitBytes } from './byte-pack.ts';
import type {
  Batch,
  BatchReply,
  EventMessage,
  Opened,
  OpenedLane,
  OperationKind,
  Operations,
  Reply,
  Results,
  TakenMessage,
  WorkerSettings,
} from './messages.ts';

/** The worker's file: beside this one's folder in the sources, beside the bundle otherwise. */
const WORKER = new URL(import.meta.url.endsWith('.ts') ? './worker/queue-worker.ts' : './queue-worker.cjs', import.meta.url);
/** Bodies beyond this wait for the next message, so that a batch does not need much memory twice. */
const MAX_BATCH_BYTES = 8_388_608;
/** Messages are short-lived: a small young generation frees their buffers sooner. The heap itself has a few megabytes. */
const RESOURCE_LIMITS = { maxYoungGenerationSizeMb: 6 } as const;
const NO_BODIES: readonly Buffer[] = [];

/** Reports of the thread. */
export interface WorkerHooks {
  /** The thread ended unexpectedly; every operation rejects from now on. */
  readonly onFatal: (error: Error) => void;
  /** A write failed: the disk is full, or broken. */
  readonly onUnavailable: (reason: string) => void;
  /** A write succeeded again. */
  readonly onAvailable: () => void;
}

interface Call {
  readonly operation: { readonly kind: OperationKind };
  readonly bodies: readonly Buffer[];
  /** Calls back instead of creating a promise for each step; `bodies` are those of the result. */
  readonly resolve: (result: never, bodies: readonly Buffer[]) => void;
  readonly reject: (error: Error) => void;
}

/** The thread, as the queue sees it. */
export class WorkerClient {
  readonly #hooks: WorkerHooks;
  readonly #worker: Worker;
  #waiting: Call[] = [];
  #sent: readonly Call[] = [];
  #isScheduled = false;
  #isAvailable = true;
  #isClosing = false;
  #failure: Error | undefined;
  readonly #ended: Promise<void>;

  /** The thread ended unexpectedly. */
  get isBroken(): boolean {
    return this.#failure !== undefined;
  }

  private constructor(worker: Worker, hooks: WorkerHooks) {
    this.#worker = worker;
    this.#hooks = hooks;
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
  static async open(
    settings: WorkerSettings,
    hooks: WorkerHooks,
  ): Promise<{ readonly client: WorkerClient; readonly lanes: readonly OpenedLane[] }> {
    // `node:sqlite` is a release candidate, which some releases of Node say on standard error.
    const execArgv = ['--disable-warning=ExperimentalWarning'];
    const worker = new Worker(WORKER, { workerData: settings, execArgv, resourceLimits: RESOURCE_LIMITS });
    const opened = await waitForOpen(worker);
    if (!opened.isOpen) throw new SidegateError(opened.kind, opened.code, opened.message);
    return { client: new WorkerClient(worker, hooks), lanes: opened.lanes };
  }

  /** Runs an operation with the others of this turn. Rejects with a SidegateError. */
  call<K extends OperationKind>(kind: K, operation: Operations[K], bodies: readonly Buffer[] = NO_BODIES): Promise<Results[K]> {
    return new Promise((resolve, reject) => this.#add({ operation: { kind, ...operation }, bodies, resolve, reject }));
  }

  /** The same for an operation whose result has bodies. */
  read<K extends 'take' | 'getEvent'>(
    kind: K,
    operation: Operations[K],
  ): Promise<{ readonly result: Results[K]; readonly bodies: readonly Buffer[] }> {
    return new Promise((resolve, reject) => {
      const onResult = (result: Results[K], bodies: readonly Buffer[]): void => resolve({ result, bodies });
      this.#add({ operation: { kind, ...operation }, bodies: NO_BODIES, resolve: onResult, reject });
    });
  }

  /** Finishes what was asked, closes the file and ends the thread. */
  async close(): Promise<void> {
    if (this.#isClosing) return this.#ended;
    if (this.#failure === undefined) {
      const closed = this.call('close', {});
      this.#isClosing = true;
      // A file that cannot be closed properly is recovered when it is opened. Otherwise the thread ends by itself.
      await closed.catch(() => this.#worker.terminate());
    }
    return this.#ended;
  }

  #add(call: Call): void {
    if (this.#failure !== undefined || this.#isClosing) {
      call.reject(new SidegateError('system', 'queue_unavailable', this.#failure?.message ?? 'the queue is closed'));
      return;
    }
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
    const calls = this.#nextCalls();
    const bodies = packBytes(calls.flatMap((call) => call.bodies));
    this.#sent = calls;
    this.#worker.ref();
    try {
      const operations = JSON.stringify(calls.map(({ operation }) => operation));
      this.#worker.postMessage({ operations, bodies } satisfies Batch, [bodies]);
    } catch (thrown) {
      // An operation that is not JSON: a bug of a caller.
      this.#sent = [];
      for (const { reject } of calls)
        reject(new SidegateError('system', 'queue_unavailable', toErrorText(thrown), { cause: thrown }));
      this.#schedule();
    }
  }

  #nextCalls(): readonly Call[] {
    let bytes = 0;
    const end = this.#waiting.findIndex((call) => {
      for (const { length } of call.bodies) bytes += length;
      return bytes > MAX_BATCH_BYTES;
    });
    if (end === -1) return this.#waiting.splice(0);
    return this.#waiting.splice(0, Math.max(end, 1));
  }

  #receive({ replies: text, bodies }: BatchReply): void {
    const replies = JSON.parse(text) as readonly Reply[];
    const calls = this.#sent;
    this.#sent = [];
    if (!this.#isClosing) this.#worker.unref();
    let offset = 0;
    for (const [i, call] of calls.entries()) {
      const reply = replies[i];
      if (reply === undefined) continue;
      if (!reply.isDone) {
        call.reject(this.#toError(reply));
        continue;
      }
      const lengths = findBodyLengths(call.operation.kind, reply.result);
      const views = lengths.length === 0 ? NO_BODIES : splitBytes(bodies, lengths, offset).map(toOwnBytes);
      for (const length of lengths) offset += length;
      call.resolve(reply.result as never, views);
    }
    this.#noteAvailability(calls, replies);
    this.#schedule();
  }

  #noteAvailability(calls: readonly Call[], replies: readonly Reply[]): void {
    const failed = replies.find((reply) => !reply.isDone && reply.kind === 'system');
    if (failed !== undefined && !failed.isDone) {
      if (this.#isAvailable) this.#hooks.onUnavailable(failed.message);
      this.#isAvailable = false;
    } else if (!this.#isAvailable && calls.some(({ operation: { kind } }) => kind === 'append' || kind === 'settle')) {
      this.#isAvailable = true;
      this.#hooks.onAvailable();
    }
  }

  #toError({ kind, code, message }: Extract<Reply, { isDone: false }>): SidegateError {
    return new SidegateError(kind, code, code === 'queue_unavailable' ? `the queue cannot use its file: ${message}` : message);
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
    this.#hooks.onFatal(error);
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
  if (kind === 'take') return (result as { readonly taken: readonly TakenMessage[] }).taken.map(({ bodyLength }) => bodyLength);
  if (kind === 'getEvent' && result !== undefined) return [(result as EventMessage).bodyLength];
  return [];
}
