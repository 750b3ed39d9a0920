/** Runs an analysis to its end, at once or in the background. */
import { analyse } from './analyse.ts';
import type { Meter } from './meter.ts';
import type { Explanation, Suspect } from './suspect.ts';

/** Without interruption, for commands. */
export function explainNow(suspect: Suspect, meter: Meter): Explanation {
  const steps = analyse(suspect, meter);
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
export async function explainInBackground(suspect: Suspect, meter: Meter, { pause, measure }: Pace): Promise<Explanation> {
  const steps = analyse(suspect, meter);
  for (;;) {
    await pause();
    const { value, done } = measure(() => steps.next());
    if (done === true) return value;
  }
}
