/** Runs an analysis in the background. It is a separate bundle, which the gate loads for the first rejection that it analyzes. */

import type { AnalysisInput, Explanation, Meter } from './analysis.ts';
import { analyze } from './analyze.ts';

/** How an analysis shares the event loop. */
export interface Pace {
  /** Resolves when the next step may begin. */
  readonly pause: () => Promise<void>;
  /** Runs one step and measures its cost. */
  readonly measure: <T>(step: () => T) => T;
}

/** Lets other work run before each step. */
export async function explainInBackground(
  analysisInput: AnalysisInput,
  meter: Meter,
  { pause, measure }: Pace,
): Promise<Explanation> {
  const steps = analyze(analysisInput, meter);
  for (;;) {
    await pause();
    const { value, done } = measure(() => steps.next());
    if (done === true) return value;
  }
}
