/** The HTTP Basic benchmark: compares sidegate with nginx and Caddy. `npm run bench -- basic --help` shows the options. */
import { join } from 'node:path';
import { runBench } from '../command.ts';
import { type BenchDefaults, type BenchOptions, pickNamed } from '../options.ts';
import { BASIC_TOOLS, checkSetUp } from '../setup.ts';
import { type BasicEnvironment, openBasicEnvironment } from './basic-environment.ts';
import { toBasicReport } from './results.ts';
import { GATES, type Gate, type GateName, startGate } from './rivals.ts';
import type { Cast, Row, ScenarioName } from './rows.ts';
import { installCaddy } from './setup.ts';
import { playSteady, warmUp } from './steady.ts';
import { playStorm } from './storm.ts';
import { playStreaming } from './streaming.ts';
import { playTiming } from './timing.ts';

interface Scenario {
  readonly name: ScenarioName;
  readonly play: (cast: Cast) => Promise<void>;
}

const SCENARIOS: readonly Scenario[] = [
  { name: 'steady', play: playSteady },
  { name: 'streaming', play: playStreaming },
  { name: 'storm', play: playStorm },
  { name: 'timing', play: playTiming },
];
const DEFAULTS: BenchDefaults = {
  names: [...SCENARIOS.map(({ name }) => name), ...GATES],
  seconds: 3,
  warmUpSeconds: 12,
  out: join(import.meta.dirname, '..', 'RESULTS-basic.md'),
};

interface Plan extends BenchOptions {
  readonly scenarios: readonly Scenario[];
  readonly gates: readonly GateName[];
}

/** Starts all proxies, warms up those that need it, runs every scenario with each in turn, and stops them. */
async function playRound(environment: BasicEnvironment, plan: Plan, tell: (row: Row) => void): Promise<void> {
  const gates = new Map<GateName, Gate>();
  try {
    for (const name of plan.gates) {
      const gate = await startGate(name, environment);
      if (gate !== undefined) gates.set(name, gate);
    }
    for (const gate of gates.values()) {
      const seconds = gate.name === 'nginx' ? 1 : Math.ceil(plan.warmUpSeconds / (gate.name === 'sidegate' ? 1 : 3));
      await warmUp({ environment, seconds }, gate);
    }
    for (const { play } of plan.scenarios) await play({ environment, gates, seconds: plan.seconds, tell });
  } finally {
    await Promise.all([...gates.values()].map((gate) => gate.stop()));
  }
}

async function playAll(plan: Plan): Promise<Row[]> {
  const rows: Row[] = [];
  const environment = await openBasicEnvironment();
  try {
    for (let round = 1; round <= plan.rounds; round++) {
      console.log(`round ${round} of ${plan.rounds}`);
      await playRound(environment, plan, (row) => {
        rows.push(row);
        console.log(`  ${toLine(row)}`);
      });
    }
  } finally {
    await environment.close();
  }
  return rows;
}

function toLine({ scenario, label, figures, wrong }: Row): string {
  const shown = Object.entries(figures).map(([name, value]) => `${value.toFixed(2)} ${name}`);
  return [scenario.padEnd(9), label.padEnd(40), shown.join(', '), ...wrong].join('  ');
}

await runBench({
  command: 'npm run bench -- basic',
  defaults: DEFAULTS,
  prepare: ({ only }) => {
    checkSetUp(BASIC_TOOLS);
    if (pickNamed(GATES, only, (name) => name).includes('caddy')) installCaddy();
  },
  play: async (options) => {
    const scenarios = pickNamed(SCENARIOS, options.only, ({ name }) => name);
    const rows = await playAll({ ...options, scenarios, gates: pickNamed(GATES, options.only, (name) => name) });
    return { isWrong: rows.some(({ wrong }) => wrong.length > 0), toReport: (facts) => toBasicReport(rows, facts) };
  },
});
