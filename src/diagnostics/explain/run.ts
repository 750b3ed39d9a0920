/** Runs an analysis to its end, at once or in the background. */

import type { AnalysisInput, Explanation } from './analysis.ts';
import { analyze } from './analyze.ts';
import type { Meter } from './meter.ts';

/** Without interruption, for commands. */
export function explainNow(analysisInput: AnalysisInput, meter: Meter): Explanation {
  const steps = analyze(analysisInput, meter);
  for (;;) {
    const { value, done } = steps.next();
    if (done === true) return value;
  }
}

/** How an analysis shares the event loop. */
export interface Pace {
  /** Resolves when the next step may begin. */
  readonly pause: () => Promise<void>;
  /** Runs one step and measures its cost. */
  readonly measure: <T>(step: () => T) => T;
}

/** In the background: lets other work run before each step. */
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
