/** Which of sidegate's code has run, by V8's own counters: an input that runs new code is worth further mutations. */
import { type Profiler, Session } from 'node:inspector';

/** From the start offset to below the end offset. */
type Span = readonly [start: number, end: number];

const SOURCE = /\/src\//;

/** Counts the code of `src/` that has not run yet. */
export class Coverage {
  readonly #session = new Session();
  /** The parts of each function that have not run, for functions that ran. */
  #idle: ReadonlyMap<string, readonly Span[]> = new Map();

  constructor() {
    this.#session.connect();
    this.#session.post('Profiler.enable');
    this.#session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  }

  /** What has run so far. Set an earlier value to forget what ran since. */
  get mark(): ReadonlyMap<string, readonly Span[]> {
    return this.#idle;
  }

  set mark(mark: ReadonlyMap<string, readonly Span[]>) {
    this.#idle = mark;
  }

  /** Whether code ran since the last call that had never run before. */
  hasGrown(): boolean {
    const grown = new Map(this.#idle);
    let hasGrown = false;
    for (const { scriptId, functions } of this.#take())
      for (const { ranges } of functions) if (add(grown, scriptId, ranges)) hasGrown = true;
    if (hasGrown) this.#idle = grown;
    return hasGrown;
  }

  close(): void {
    this.#session.disconnect();
  }

  #take(): readonly Profiler.ScriptCoverage[] {
    let scripts: readonly Profiler.ScriptCoverage[] = [];
    // Within one thread, the inspector calls back before `post` returns.
    this.#session.post('Profiler.takePreciseCoverage', (error, taken) => {
      if (error !== null) throw error;
      scripts = taken.result.filter(({ url }) => SOURCE.test(url));
    });
    return scripts;
  }
}

/** Adds what ran of a function, the first of its ranges; returns whether any of it is new. */
function add(idle: Map<string, readonly Span[]>, scriptId: string, ranges: readonly Profiler.CoverageRange[]): boolean {
  const [whole] = ranges;
  if (whole === undefined || whole.count === 0) return false;
  const key = `${scriptId}:${whole.startOffset}-${whole.endOffset}`;
  const now = ranges.filter(({ count }) => count === 0).map(({ startOffset, endOffset }): Span => [startOffset, endOffset]);
  const before = idle.get(key);
  const both = before === undefined ? now : intersect(before, now);
  idle.set(key, both);
  return before === undefined || countOf(both) < countOf(before);
}

function intersect(left: readonly Span[], right: readonly Span[]): Span[] {
  return left.flatMap(([start, end]) =>
    right.map(([from, to]): Span => [Math.max(start, from), Math.min(end, to)]).filter(([from, to]) => from < to),
  );
}

function countOf(spans: readonly Span[]): number {
  return spans.reduce((sum, [start, end]) => sum + end - start, 0);
}
