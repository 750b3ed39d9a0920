/** Formats figures for the reports. */
import { median } from './statistics.ts';

/** The data of a run for its report. */
export interface RunFacts {
  readonly rounds: number;
  readonly seconds: number;
  readonly warmUpSeconds: number;
  readonly date: string;
  /** Share of all cores that other processes used before the run. */
  readonly busyBefore: number;
}

const QUIET_SHARE = 0.05;

/** Describes the load of other processes, and its effect on the figures. */
export function describeNoise({ busyBefore }: Pick<RunFacts, 'busyBefore'>): string {
  const noise = busyBefore > QUIET_SHARE ? ' **The machine was not quiet: take ratios only, and with care.**' : '';
  return `Just before the run other work took ${toPercent(busyBefore)} of the machine.${noise}`;
}

/** Formats with this number of decimal places. */
export function toFixed(value: number, digits: number): string {
  return value.toFixed(digits);
}

/** Formats the median, with the minimum and maximum in brackets if there are several values. */
export function toSpread(values: readonly number[], digits = 1): string {
  if (values.length < 2) return toFixed(median(values), digits);
  return `${toFixed(median(values), digits)} (${toFixed(Math.min(...values), digits)}–${toFixed(Math.max(...values), digits)})`;
}

/** Formats a share of 1 as a percentage without decimal places. */
export function toPercent(share: number): string {
  return `${(share * 100).toFixed(0)} %`;
}
