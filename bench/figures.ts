/** Writes figures as the reports show them. */
import { median } from './statistics.ts';

/** What a report says of the run itself. */
export interface RunFacts {
  readonly rounds: number;
  readonly seconds: number;
  readonly warmUpSeconds: number;
  readonly date: string;
  /** Share of all cores that others took just before the run. */
  readonly busyBefore: number;
}

const QUIET_SHARE = 0.05;

/** What others did on the machine, and what that means for the figures. */
export function describeNoise({ busyBefore }: RunFacts): string {
  const noise = busyBefore > QUIET_SHARE ? ' **The machine was not quiet: take ratios only, and with care.**' : '';
  return `Just before the run other work took ${toPercent(busyBefore)} of the machine.${noise}`;
}

/** With so many digits behind the point. */
export function toFixed(value: number, digits: number): string {
  return value.toFixed(digits);
}

/** The median, and the lowest and highest in brackets where there are several. */
export function toSpread(values: readonly number[], digits = 1): string {
  if (values.length < 2) return toFixed(median(values), digits);
  return `${toFixed(median(values), digits)} (${toFixed(Math.min(...values), digits)}–${toFixed(Math.max(...values), digits)})`;
}

/** A share of 1 in whole percents. */
export function toPercent(share: number): string {
  return `${(share * 100).toFixed(0)} %`;
}
