/** Runs an analysis to its end at once. */

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
