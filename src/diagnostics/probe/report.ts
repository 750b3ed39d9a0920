/** The report of a probe, as data and as JSON. */
import { type EpochMilliseconds, type Milliseconds, toInstant } from '../../core/clock.ts';
import { type Check, type CheckFinding, type Outcome, SEVERITIES, type Severity } from './check.ts';

/** A check and what it found. */
export interface CheckResult extends Omit<Check, 'run' | 'isLast'>, CheckFinding {
  readonly durationMs: Milliseconds;
}

/** The result of all checks. */
export interface ProbeReport {
  /** The URL as given. */
  readonly target: string;
  /** The address that sent the first response; empty if there was none. */
  readonly address: string;
  readonly scheme: string;
  readonly startedAt: EpochMilliseconds;
  readonly durationMs: Milliseconds;
  readonly requests: number;
  readonly checks: readonly CheckResult[];
}

/** Counts the checks per outcome. */
export function countOutcomes({ checks }: ProbeReport): Readonly<Record<Outcome, number>> {
  const counts: Record<Outcome, number> = { passed: 0, failed: 0, see: 0, not_applicable: 0, skipped: 0 };
  for (const { outcome } of checks) counts[outcome]++;
  return counts;
}

/** Whether a check of this severity or a worse one failed. */
export function hasFailed({ checks }: ProbeReport, least: Severity): boolean {
  return checks.some(
    ({ outcome, severity }) => outcome === 'failed' && SEVERITIES.indexOf(severity) <= SEVERITIES.indexOf(least),
  );
}

/** The report as JSON. */
export function toJson(report: ProbeReport): string {
  const { startedAt, durationMs, checks, ...rest } = report;
  const shown = {
    ...rest,
    startedAt: toInstant(startedAt),
    durationMs: Math.round(durationMs),
    outcomes: countOutcomes(report),
    checks: checks.map(({ later: _later, ...check }) => ({ ...check, durationMs: Math.round(check.durationMs) })),
  };
  return `${JSON.stringify(shown, undefined, 2)}\n`;
}
