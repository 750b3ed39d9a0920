/** What scenarios measure: figures by name, for one row of one table in one round. */
import type { PacedResult } from '../open-loop.ts';
import type { BasicEnvironment } from './basic-environment.ts';
import type { Gate, GateName } from './rivals.ts';

/** A scenario's short name, and its table's. */
export type ScenarioName = 'steady' | 'streaming' | 'storm' | 'timing';

/** One row's figures of one round. */
export interface Row {
  readonly scenario: ScenarioName;
  /** As the report shows it; the same in every round. */
  readonly label: string;
  readonly figures: Readonly<Record<string, number>>;
  /** Milliseconds by user, where each single answer was timed. */
  readonly times?: Readonly<Record<string, readonly number[]>>;
  /** What was not as it had to be, in words. */
  readonly wrong: readonly string[];
}

/** What a scenario is played with. */
export interface Cast {
  readonly environment: BasicEnvironment;
  readonly gates: ReadonlyMap<GateName, Gate>;
  readonly seconds: number;
  readonly tell: (row: Row) => void;
}

/** The answers that were not due. */
export function findWrongStatuses(
  { statuses, failed }: Pick<PacedResult, 'statuses' | 'failed'>,
  due: readonly string[],
): string[] {
  const wrong = Object.entries(statuses).filter(([status]) => !due.includes(status));
  const lines = wrong.map(([status, count]) => `${count} × ${status} instead of ${due.join(' or ')}`);
  return failed > 0 ? [...lines, `${failed} without an answer`] : lines;
}
