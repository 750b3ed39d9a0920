/** Writes the report of the HTTP Basic benchmark: the comparison with the goals, then all figures. */
import { describeNoise, type RunFacts, toFixed, toPercent, toSpread } from '../figures.ts';
import { describeMachine } from '../machine.ts';
import { median, pairedRatio } from '../statistics.ts';
import { findGap } from './gap.ts';
import type { Row, ScenarioName } from './rows.ts';
import { describeBasicTools } from './setup.ts';
import { STEADY } from './steady.ts';
import { STORM_CALM, STORM_OWN, STORM_P99 } from './storm.ts';
import { BYTES_PER_CPU, DIRECTIONS, STREAMING } from './streaming.ts';
import { DESCRIPTION } from './texts.ts';
import { TIMING_OWN, UNKNOWN } from './timing.ts';

/** All rounds of one row. */
interface Series {
  readonly scenario: ScenarioName;
  readonly label: string;
  readonly rounds: readonly Row[];
}

const TITLES: Readonly<Record<ScenarioName, string>> = {
  steady: 'Known users, GET, 32 connections',
  streaming: '256 MiB at a time',
  storm: 'While eight connections guess a cost-11 password',
  timing: 'How long a wrong password takes',
};

/** Renders the report in Markdown. */
export function toBasicReport(rows: readonly Row[], facts: RunFacts): string {
  const series = toSeries(rows);
  const scenarios = [...new Set(rows.map(({ scenario }) => scenario))];
  return [
    '# Benchmark results: HTTP Basic',
    '',
    'Written by `npm run bench -- basic`; do not edit.',
    '',
    ...describeRun(facts),
    '',
    '## Where it stands',
    '',
    ...toStanding(series),
    '',
    '## Figures',
    '',
    'Medians over the rounds, the lowest and highest round in brackets. CPU is user and system time of the gate with all its threads',
    'and workers. A ratio is the median of the ratios within each round.',
    '',
    ...scenarios.flatMap((scenario) => [`### ${TITLES[scenario]}`, '', ...toTable(scenario, series), '']),
    ...DESCRIPTION,
    '',
  ].join('\n');
}

function toSeries(rows: readonly Row[]): Series[] {
  const series = new Map<string, Series>();
  for (const row of rows) {
    const key = `${row.scenario} ${row.label}`;
    series.set(key, { scenario: row.scenario, label: row.label, rounds: [...(series.get(key)?.rounds ?? []), row] });
  }
  return [...series.values()];
}

function describeRun(facts: RunFacts): string[] {
  const { rounds, seconds, warmUpSeconds, date } = facts;
  return [
    `${date}; ${[...describeMachine(), ...describeBasicTools()].join('; ')}.`,
    `${rounds} rounds of ${seconds} s for each row, all rivals in turns within a round, each round with fresh processes; those of sidegate`,
    `served ${warmUpSeconds} s of requests first. The gate has one core to itself, its password thread included; the app and the load share the other.`,
    describeNoise(facts),
  ];
}

interface Goal {
  readonly title: string;
  readonly asked: string;
  readonly value: number;
  readonly isReached: (value: number) => boolean;
  readonly show: (value: number) => string;
}

function toStanding(series: readonly Series[]): string[] {
  const goals = [...toSteadyGoals(series), ...toStreamingGoals(series), ...toStormGoals(series), ...toTimingGoals(series)];
  const rows = goals
    .filter(({ value }) => Number.isFinite(value))
    .map(
      ({ title, asked, value, isReached, show }) =>
        `| ${title} | ${asked} | ${show(value)} | ${isReached(value) ? 'reached' : 'missed'} |`,
    );
  const wrong = series.flatMap(({ scenario, label, rounds }) =>
    rounds.flatMap((round) => round.wrong.map((line) => `- ${scenario}, ${label}: ${line}`)),
  );
  return [
    '| goal | asked | measured | |',
    '|---|---|---|---|',
    ...rows,
    `| wrong answers, all rivals | 0 | ${wrong.length === 0 ? '0' : 'some'} | |`,
    ...(wrong.length === 0 ? [] : ['', ...wrong]),
  ];
}

function toSteadyGoals(series: readonly Series[]): Goal[] {
  const rate = (label: string): number[] => valuesOf(series, 'steady', label, 'requests/s');
  const cpu = (label: string): number[] => valuesOf(series, 'steady', label, 'CPU µs/request');
  const times = (value: number): string => `${toFixed(value, value < 10 ? 2 : 0)} ×`;
  const againstCaddy = (caddy: string, title: string): Goal => ({
    title,
    asked: '≤ 1.0 ×',
    value: pairedRatio(cpu(STEADY.own), cpu(caddy)),
    isReached: (value) => value <= 1,
    show: times,
  });
  return [
    {
      title: 'requests/s against nginx with bcrypt',
      asked: '≥ 500 ×',
      value: pairedRatio(rate(STEADY.own), rate(STEADY.nginx)),
      isReached: (value) => value >= 500,
      show: times,
    },
    againstCaddy(STEADY.caddy, 'CPU per request against Caddy'),
    againstCaddy(STEADY.quietCaddy, 'the same, Caddy without an access log'),
    {
      title: 'requests/s against our own without passwords',
      asked: '≥ 80 %',
      value: pairedRatio(rate(STEADY.own), rate(STEADY.open)),
      isReached: (value) => value >= 0.8,
      show: toPercent,
    },
  ];
}

function toStreamingGoals(series: readonly Series[]): Goal[] {
  const figures = (label: string): number[] => valuesOf(series, 'streaming', label, BYTES_PER_CPU);
  return DIRECTIONS.flatMap((direction) =>
    [STREAMING.buffered, STREAMING.unbuffered].map((rival) => ({
      title: `bytes per CPU second ${direction} against ${rival}`,
      asked: '≥ 0.7 ×',
      value: pairedRatio(figures(`${STREAMING.own}, ${direction}`), figures(`${rival}, ${direction}`)),
      isReached: (value: number) => value >= 0.7,
      show: (value: number) => `${toFixed(value, 2)} ×`,
    })),
  );
}

/** The worst of all storms counts. */
function toStormGoals(series: readonly Series[]): Goal[] {
  const storms = series.filter(
    ({ scenario, label }) => scenario === 'storm' && label.startsWith(STORM_OWN) && label !== STORM_CALM,
  );
  return Object.entries(STORM_P99).map(([who, figure]) => ({
    title: `p99 in the worst storm, ${who === 'cached' ? 'known users' : 'clients without a password'}`,
    asked: '< 10 ms',
    value: Math.max(...storms.map(({ rounds }) => median(rounds.map(({ figures }) => figures[figure] ?? Number.NaN)))),
    isReached: (value) => value < 10,
    show: (value) => `${toFixed(value, 2)} ms`,
  }));
}

function toTimingGoals(series: readonly Series[]): Goal[] {
  const own = series.find(({ scenario, label }) => scenario === 'timing' && label === TIMING_OWN);
  if (own === undefined) return [];
  const { known, unknown } = toTimes(own);
  const gap = findGap(known, unknown);
  return [
    {
      title: 'gap of the p50 of known and unknown users',
      asked: '< 2 %',
      value: Math.abs(gap.share),
      isReached: (value) => value < 0.02,
      show: () => `${toPercents(gap.share)} (95 % within ${toPercents(gap.low)} to ${toPercents(gap.high)})`,
    },
  ];
}

function toTable(scenario: ScenarioName, series: readonly Series[]): string[] {
  const rows = series.filter((one) => one.scenario === scenario);
  if (scenario === 'timing') return toTimingTable(rows);
  const columns = Object.keys(rows[0]?.rounds[0]?.figures ?? {});
  return [
    `| | ${columns.join(' | ')} |`,
    `|---|${columns.map(() => '---').join('|')}|`,
    ...rows.map(({ label, rounds }) => {
      const cells = columns.map((column) => toCell(rounds.map(({ figures }) => figures[column] ?? Number.NaN)));
      return `| ${label} | ${cells.join(' | ')} |`;
    }),
  ];
}

function toCell(values: readonly number[]): string {
  if (values.some(Number.isNaN)) return '–';
  const middle = median(values);
  return toSpread(values, middle >= 100 ? 0 : middle >= 10 ? 1 : 2);
}

function toTimingTable(rows: readonly Series[]): string[] {
  const lines = rows.flatMap((row) => {
    const { byUser, known, unknown } = toTimes(row);
    const line = (name: string, times: readonly number[]): string => {
      const gap = findGap(times, unknown);
      const cells = [toFixed(median(times), 1), toPercents(gap.share), `${toPercents(gap.low)} to ${toPercents(gap.high)}`];
      return `| ${row.label} | ${name} | ${times.length} | ${cells.join(' | ')} | ${toFixed(gap.p, 3)} |`;
    };
    return [
      `| ${row.label} | unknown user | ${unknown.length} | ${toFixed(median(unknown), 1)} | | | |`,
      line('any known user', known),
      ...[...byUser].map(([user, times]) => line(user, times)),
    ];
  });
  return [
    '| | guessed at | guesses | p50 ms | gap to unknown | 95 % within | Mann-Whitney p |',
    '|---|---|---|---|---|---|---|',
    ...lines,
  ];
}

function toTimes({ rounds }: Series): { byUser: Map<string, number[]>; known: number[]; unknown: number[] } {
  const byUser = new Map<string, number[]>();
  for (const { times = {} } of rounds)
    for (const [user, some] of Object.entries(times)) byUser.set(user, [...(byUser.get(user) ?? []), ...some]);
  const unknown = byUser.get(UNKNOWN) ?? [];
  byUser.delete(UNKNOWN);
  return { byUser, known: [...byUser.values()].flat(), unknown };
}

function valuesOf(series: readonly Series[], scenario: ScenarioName, label: string, figure: string): number[] {
  const found = series.find((one) => one.scenario === scenario && one.label === label);
  return found?.rounds.map(({ figures }) => figures[figure] ?? Number.NaN) ?? [];
}

function toPercents(share: number): string {
  return `${share >= 0 ? '+' : '−'}${toFixed(Math.abs(share) * 100, 1)} %`;
}
