/** The results of scenarios: figures by name, for one row of one table in one round. */
import type { PacedResult } from '../open-loop.ts';
import type { BasicEnvironment } from './basic-environment.ts';
import type { Gate, GateName } from './rivals.ts';

/** The short name of a scenario and of its table. */
export type ScenarioName = 'steady' | 'streaming' | 'storm' | 'timing';

/** The figures of one row in one round. */
export interface Row {
  readonly scenario: ScenarioName;
  /** As the report shows it; the same in every round. */
  readonly label: string;
  readonly figures: Readonly<Record<string, number>>;
  /** Milliseconds by user, if each response was measured separately. */
  readonly times?: Readonly<Record<string, readonly number[]>>;
  /** The deviations from the expected result, as text. */
  readonly wrong: readonly string[];
}

/** The input of a scenario. */
export interface Cast {
  readonly environment: BasicEnvironment;
  readonly gates: ReadonlyMap<GateName, Gate>;
  readonly seconds: number;
  readonly tell: (row: Row) => void;
}

/** The unexpected responses. */
export function findWrongStatuses(
  { statuses, failed }: Pick<PacedResult, 'statuses' | 'failed'>,
  due: readonly string[],
): string[] {
  const wrong = Object.entries(statuses).filter(([status]) => !due.includes(status));
  const lines = wrong.map(([status, count]) => `${count} × ${status} instead of ${due.join(' or ')}`);
  return failed > 0 ? [...lines, `${failed} without a response`] : lines;
}
