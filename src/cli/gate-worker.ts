/** A worker of `sidegate run` other than the first: a gate in a thread, on the same ports. */
import { parentPort, workerData } from 'node:worker_threads';
import { prepare } from '../app/check.ts';
import { Gate } from '../app/gate.ts';
import type { GateLogEvent } from '../app/log-events.ts';
import type { ExplanationLines, WorkerStart } from '../app/workers/messages.ts';
import { PostedLines, WorkerLink } from '../app/workers/worker-link.ts';
import { systemClock } from '../core/clock.ts';
import { formatProblem } from '../core/problem.ts';
import { reportEscaped, runDetached } from '../core/safe-events.ts';
import { createFullCollector } from '../http/server/memory.ts';
import { createLogger } from '../telemetry/log/logger.ts';
import { EXIT, logForeignLines } from './io.ts';
import { readRevision, readVersion } from './version.ts';

/** Starts the worker; it runs until the main thread ends it. An exception is reported there, and drains all workers. */
export async function runWorker(): Promise<number> {
  // As in the main thread: before the event loop turns.
  createFullCollector()();
  const { file, overrides, index, ports, hash, lines: port, flushed } = workerData as WorkerStart;
  if (parentPort === null) throw new Error('a worker of sidegate was started without its main thread');
  const place = { index, ports };
  const ready = await prepare(file, systemClock, overrides, place);
  if (ready.loaded === undefined) throw new Error(ready.problems.map(formatProblem).join('\n'));
  if (ready.loaded.hash !== hash) throw new Error('the config changed during the start');
  const { log } = ready.loaded.config;
  const lines = new PostedLines(port, systemClock, log.flush);
  const version = readVersion();
  const logger = createLogger<GateLogEvent>({ ...log, version, worker: index + 1, destination: lines });
  logForeignLines(logger);
  const explanations: ExplanationLines[] = [];
  const onExplained = (requestId: string, text: readonly string[]): void => {
    explanations.push({ requestId, lines: text });
  };
  const gate = new Gate(ready, {
    file,
    overrides,
    clock: systemClock,
    logger,
    version,
    revision: readRevision(),
    place,
    onExplained,
  });
  const flush = (): void => logger.flushNow();
  const link = new WorkerLink({ port: parentPort, gate, clock: systemClock, explanations, flush, flushed });
  process.on('uncaughtException', (error) => {
    reportEscaped('process', error);
    flush();
    runDetached(link.fail());
  });
  await gate.join();
  link.ready();
  return EXIT.ok;
}
