/** What a probe found, as data and as JSON. */
import { type EpochMilliseconds, type Milliseconds, toInstant } from '../../core/clock.ts';
import { type Check, type Finding, SEVERITIES, type Severity, type Verdict } from './check.ts';

/** One check and what it found. */
export interface CheckResult extends Omit<Check, 'run' | 'isLast'>, Finding {
  readonly durationMs: Milliseconds;
}

/** Of a whole probe. */
export interface Report {
  /** The URL as it was given. */
  readonly target: string;
  /** Where the first answer came from; empty where none came. */
  readonly address: string;
  readonly scheme: string;
  readonly startedAt: EpochMilliseconds;
  readonly durationMs: Milliseconds;
  readonly requests: number;
  readonly checks: readonly CheckResult[];
}

/** How many checks came to each verdict. */
export function countVerdicts({ checks }: Report): Readonly<Record<Verdict, number>> {
  const counts: Record<Verdict, number> = { holds: 0, fails: 0, look: 0, not_applicable: 0, skipped: 0 };
  for (const { verdict } of checks) counts[verdict]++;
  return counts;
}

/** Did something of this severity, or a worse one, fail? */
export function hasFailed({ checks }: Report, least: Severity): boolean {
  return checks.some(({ verdict, severity }) => verdict === 'fails' && SEVERITIES.indexOf(severity) <= SEVERITIES.indexOf(least));
}

/** For programs. */
export function toJson(report: Report): string {
  const { startedAt, durationMs, checks, ...rest } = report;
  const shown = {
    ...rest,
    startedAt: toInstant(startedAt),
    durationMs: Math.round(durationMs),
    verdicts: countVerdicts(report),
    checks: checks.map(({ later: _later, ...check }) => ({ ...check, durationMs: Math.round(check.durationMs) })),
  };
  return `${JSON.stringify(shown, undefined, 2)}\n`;
}
