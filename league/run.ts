/** The league: sidegate and other gates before an app, row by row. `node league/run.ts --help` tells the options. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { BusyMeter, describeMachine } from '../bench/machine.ts';
import { CREDENTIAL_ROWS } from './credential-rows.ts';
import { FORWARDING_ROWS } from './forwarding-rows.ts';
import { MEASURED_ROWS } from './measured-rows.ts';
import { prepare } from './prepare.ts';
import { type Cell, type Entrant, type Line, type Outcome, toReport } from './report.ts';
import { makeUsers } from './requests.ts';
import { isMatch, playRow, type Row } from './row.ts';
import { readVersion, SYSTEM_NAMES, type System, startSystem } from './systems.ts';

const HELP = `Usage: npm run league -- [options]

  --quick       leave out the measured rows, and show the report instead of writing it
  --out FILE    where the report goes (default docs/league.md)
`;

const LOOK_AROUND_MS = 1_000;

/** A row in the making: whatever kind it is, it gives a cell for each server. */
interface Task {
  readonly line: Omit<Line, 'cells'>;
  readonly play: (system: System) => Promise<Cell>;
}

const toTask = (row: Row): Task => ({
  line: { title: row.title, column: row.column.join(' or '), ground: row.ground },
  play: async (system) => {
    const text = await playRow(row, system);
    return { text, isMatch: isMatch(row, text) };
  },
});
const MEASURED_TASKS: readonly Task[] = MEASURED_ROWS.map(({ measure, ...line }) => ({ line, play: measure }));

async function playAll(isQuick: boolean, entrants: readonly Entrant[]): Promise<Pick<Outcome, 'credentials' | 'forwarding'>> {
  const tables = [[...CREDENTIAL_ROWS.map(toTask), ...(isQuick ? [] : MEASURED_TASKS)], FORWARDING_ROWS.map(toTask)];
  const cells = new Map<Task, Cell[]>(tables.flat().map((task) => [task, []]));
  const users = await makeUsers();
  for (const { name } of entrants) {
    console.log(name);
    const system = await startSystem(name, users);
    try {
      for (const [task, found] of cells) {
        const cell = await task.play(system);
        found.push(cell);
        if (!cell.isMatch) console.log(`  ${task.line.title}: ${cell.text}`);
      }
    } finally {
      await system.stop();
    }
  }
  const [credentials = [], forwarding = []] = tables.map((tasks) =>
    tasks.map((task) => ({ ...task.line, cells: cells.get(task) ?? [] })),
  );
  return { credentials, forwarding };
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      out: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    console.log(HELP);
    return;
  }
  const absent = prepare();
  const entrants = SYSTEM_NAMES.flatMap((name) => {
    const version = readVersion(name);
    return version === undefined ? [] : [{ name, version }];
  });
  const meter = new BusyMeter();
  await pause(LOOK_AROUND_MS);
  const busyBefore = meter.lap();
  const lines = await playAll(values.quick, entrants);
  const report = toReport({ ...lines, entrants, absent, machine: describeMachine(), busyBefore });
  const out = values.out ?? (values.quick ? undefined : join(import.meta.dirname, '..', 'docs', 'league.md'));
  if (out === undefined) console.log(`\n${report}`);
  else writeFileSync(out, report);
  const [place, all] = [entrants.findIndex(({ name }) => name === 'sidegate'), [...lines.credentials, ...lines.forwarding]];
  if (all.some(({ cells }) => cells[place]?.isMatch !== true)) process.exitCode = 1;
}

for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
try {
  await main();
} catch (thrown) {
  console.error(thrown instanceof Error ? thrown.message : thrown);
  process.exitCode = 1;
}
