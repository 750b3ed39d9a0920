/** The metrics of exceptions that nothing handled. */
import type { Registry } from '@prometheus-io/client';
import { CounterFamily } from '../metrics/series.ts';

/** Where an unhandled exception was caught. */
export const ESCAPE_SCOPES = ['guarded', 'process'] as const;
export type EscapeScope = (typeof ESCAPE_SCOPES)[number];

export interface EscapedErrorMetrics {
  escapedError(scope: EscapeScope): void;
}

/** Registers the metrics. */
export function createEscapedErrorMetrics(registers: Registry[]): EscapedErrorMetrics {
  const escapedErrors = new CounterFamily({
    name: 'sidegate_escaped_errors_total',
    help: 'Unhandled exceptions. Each is a bug in sidegate. `guarded`: closed at most one connection. `process`: stops the process.',
    labelNames: ['scope'],
    registers,
  });
  for (const scope of ESCAPE_SCOPES) escapedErrors.series(scope);
  return { escapedError: (scope) => escapedErrors.series(scope).add() };
}
