/** Computes the service times of Redis from measured loads. */
import type { Calibration, ScaleRun, ServiceTimes } from './results.ts';

/** Computes the service times that explain the calibrations best. */
export function fitTimes(calibrations: readonly Calibration[]): { service: ServiceTimes; client: ScaleRun['client'] } {
  const [wakeup = 0, coldWakeup = 0, read = 0, call = 0, operation = 0] = fitLinear(
    calibrations.map((one) => [one.wakeups, one.coldWakeups, one.reads, one.calls, one.operations]),
    calibrations.map((one) => one.cpuMicroseconds),
  );
  // Those without pauses.
  const dense = calibrations.filter(({ coldWakeups }) => coldWakeups === 0);
  const [clientCall = 0, clientOperation = 0] = fitLinear(
    dense.map((one) => [one.calls, one.operations]),
    dense.map((one) => one.clientMicroseconds),
  );
  const round = (value: number): number => Math.round(value * 100) / 100;
  return {
    service: {
      wakeup: round(wakeup),
      coldWakeup: round(coldWakeup),
      read: round(read),
      call: round(call),
      operation: round(operation),
    },
    client: { call: round(clientCall), operation: round(clientOperation) },
  };
}

/** Least squares of the relative errors, without negative coefficients: the most negative one is set to 0, until none is left. */
export function fitLinear(rows: readonly (readonly number[])[], values: readonly number[]): number[] {
  const width = rows[0]?.length ?? 0;
  let used = Array.from({ length: width }, (_, column) => column);
  for (;;) {
    const scaled = rows.map((row, i) => used.map((column) => (row[column] as number) / (values[i] as number)));
    const found = solve(
      used.map((_, a) => used.map((__, b) => scaled.reduce((sum, row) => sum + (row[a] as number) * (row[b] as number), 0))),
      used.map((_, a) => scaled.reduce((sum, row) => sum + (row[a] as number), 0)),
    );
    const lowest = Math.min(...found);
    if (lowest >= 0) return Array.from({ length: width }, (_, column) => found[used.indexOf(column)] ?? 0);
    const worst = found.indexOf(lowest);
    used = used.filter((_, at) => at !== worst);
  }
}

/** Gaussian elimination with pivoting. */
function solve(matrix: readonly (readonly number[])[], right: readonly number[]): number[] {
  const rows = matrix.map((row, i) => [...row, right[i] as number]);
  const size = rows.length;
  for (let column = 0; column < size; column++) {
    const rest = rows.slice(column).toSorted((a, b) => Math.abs(b[column] as number) - Math.abs(a[column] as number));
    rows.splice(column, size - column, ...rest);
    const pivot = rows[column] as number[];
    for (const [i, row] of rows.entries()) {
      if (i === column) continue;
      const factor = (row[column] as number) / (pivot[column] as number);
      for (let k = column; k <= size; k++) row[k] = (row[k] as number) - factor * (pivot[k] as number);
    }
  }
  return rows.map((row, i) => (row[size] as number) / (row[i] as number));
}
