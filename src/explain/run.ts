/** Runs an analysis to its end, at once or beside other work. */
import { analyse } from './analyse.ts';
import type { Meter } from './meter.ts';
import type { Explanation, Suspect } from './suspect.ts';

/** At once, for commands. */
export function explainNow(suspect: Suspect, meter: Meter): Explanation {
  const steps = analyse(suspect, meter);
  for (;;) {
    const { value, done } = steps.next();
    if (done === true) return value;
  }
}

/** Lets other work go first before each step. */
export async function explainBeside(suspect: Suspect, meter: Meter, pause: () => Promise<void>): Promise<Explanation> {
  const steps = analyse(suspect, meter);
  for (;;) {
    await pause();
    const { value, done } = steps.next();
    if (done === true) return value;
  }
}
