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

/** Formats the median, with the minimum and maximum in brackets if there are several values. */
export function toSpread(values: readonly number[], digits = 1): string {
  if (values.length < 2) return median(values).toFixed(digits);
  return `${median(values).toFixed(digits)} (${Math.min(...values).toFixed(digits)}–${Math.max(...values).toFixed(digits)})`;
}

/** Formats a share of 1 as a percentage without decimal places. */
export function toPercent(share: number): string {
  return `${(share * 100).toFixed(0)} %`;
}

/** Three digits, with commas. */
export function formatCount(value: number): string {
  return Number(value.toPrecision(3)).toLocaleString('en', { maximumFractionDigits: 1 });
}

const UNITS = ['bytes', 'KB', 'MB', 'GB', 'TB', 'PB'];

/** In decimal units, with two digits. */
export function formatBytes(bytes: number): string {
  const power = bytes < 1 ? 0 : Math.min(Math.floor(Math.log10(bytes) / 3), UNITS.length - 1);
  return `${Number((bytes / 1_000 ** power).toPrecision(2)).toLocaleString('en')} ${UNITS[power]}`;
}
