/** Logs and counts exceptions that nothing handled (core/safe-events.ts). */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Registry } from '@prometheus-io/client';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorSummary } from '../../core/errors.ts';
import { ESCAPED_ERRORS, type EscapedError } from '../../core/safe-events.ts';
import { createFamilies } from '../metrics/series.ts';
import type { Logger } from './logger.ts';

/** Log lines per interval: a single bug can throw on every request. */
const MAX_LINES = 10;
const LINES_INTERVAL_MS: Milliseconds = 60_000;

/** Starts logging and counting; the returned function stops both. */
export function watchEscapedErrors({
  clock,
  logger,
  metrics,
}: {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: { escapedError(scope: EscapeScope): void };
}): () => void {
  let lines = 0;
  let intervalEnd = Number.NEGATIVE_INFINITY;
  const onEscaped = (message: unknown): void => {
    const { site, error } = message as EscapedError;
    metrics.escapedError(site === 'process' ? 'process' : 'guarded');
    const now = clock.monotonic();
    if (now >= intervalEnd) {
      lines = 0;
      intervalEnd = now + LINES_INTERVAL_MS;
    }
    lines++;
    if (lines <= MAX_LINES) logger.error('escaped_error', { site, ...toErrorSummary(error) });
  };
  subscribe(ESCAPED_ERRORS, onEscaped);
  return () => {
    unsubscribe(ESCAPED_ERRORS, onEscaped);
  };
}

/** Where an unhandled exception was caught. */
export const ESCAPE_SCOPES = ['guarded', 'process'] as const;
export type EscapeScope = (typeof ESCAPE_SCOPES)[number];

/** The metrics of exceptions that nothing handled. */
export interface EscapedErrorMetrics {
  escapedError(scope: EscapeScope): void;
}

/** Registers the metrics. */
export function createEscapedErrorMetrics(registers: Registry[]): EscapedErrorMetrics {
  const escapedErrors = createFamilies(registers).counter(
    'sidegate_escaped_errors_total{scope}',
    'Unhandled exceptions. Each is a bug in sidegate. `guarded`: closed at most one connection. `process`: stops the process.',
  );
  for (const scope of ESCAPE_SCOPES) escapedErrors.series(scope);
  return { escapedError: (scope) => escapedErrors.series(scope).add() };
}
