/** Writes the report: medians, ratios, and the comparison with the goals. */
import { describeNoise, type RunFacts, toSpread } from './figures.ts';
import { describeMachine } from './machine.ts';
import type { RivalName } from './rivals.ts';
import type { Measurement, Scenario, ScenarioName } from './scenarios.ts';
import { describeTools } from './setup.ts';
import { median, pairedRatio } from './statistics.ts';

/** All measurements of one rival in one scenario, one per round. */
export interface Series {
  readonly scenario: Scenario;
  readonly rival: RivalName;
  readonly rounds: readonly Measurement[];
}

const LABELS: Readonly<Record<RivalName, string>> = {
  'nginx-lua': 'nginx + Lua',
  express: 'express in-app',
  sidegate: 'sidegate',
};
/** A figure of sidegate as a share of the same figure of another series. */
interface Goal {
  readonly title: string;
  readonly scenario: ScenarioName;
  readonly against: { readonly rival: RivalName; readonly scenario: ScenarioName };
  readonly figure: (one: Measurement) => number;
  readonly most: number;
}

const toCpu = ({ cpuMicroseconds }: Measurement): number => cpuMicroseconds;
const toP99 = ({ paced }: Measurement): number => paced?.p99 ?? Number.NaN;
const toGoal = (title: string, scenario: ScenarioName, rival: RivalName, most: number, figure = toCpu): Goal => ({
  title: `${title} against ${LABELS[rival]}`,
  scenario,
  against: { rival, scenario },
  figure,
  most,
});
const GOALS: readonly Goal[] = [
  toGoal('CPU per accepted delivery', 'accepted', 'nginx-lua', 1.15),
  toGoal('CPU per accepted delivery', 'accepted', 'express', 0.9),
  {
    title: 'CPU per forged delivery against an accepted one',
    scenario: 'forged',
    against: { rival: 'sidegate', scenario: 'accepted' },
    figure: toCpu,
    most: 0.5,
  },
  toGoal('CPU per accepted delivery of 256 KiB', 'large', 'nginx-lua', 1.3),
  toGoal('CPU per delivery at 1,000/s', 'paced', 'nginx-lua', 1.2),
  toGoal('p99 at 1,000/s', 'paced', 'nginx-lua', 1, toP99),
];

/** Renders the report in Markdown. */
export function toReport(series: readonly Series[], facts: RunFacts): string {
  const scenarios = [...new Set(series.map(({ scenario }) => scenario))];
  return [
    '# Benchmark results',
    '',
    'Written by `npm run bench`; do not edit.',
    '',
    ...describeRun(facts),
    '',
    '## Where it stands',
    '',
    ...toStanding(series),
    '',
    '## Figures',
    '',
    'Medians over the rounds, the lowest and highest round in brackets. CPU is user and system time of the gate and its workers.',
    'A ratio is the median of the ratios within each round, as the machine is not equally fast in all of them.',
    '',
    ...scenarios.flatMap((scenario) => toTable(scenario, series)),
    ...describeRivals(),
  ].join('\n');
}

function describeRun(facts: RunFacts): string[] {
  const { rounds, seconds, warmUpSeconds, date } = facts;
  return [
    `${date}; ${[...describeMachine(), ...describeTools()].join('; ')}.`,
    `${rounds} rounds of ${seconds} s for each scenario and rival, in turns (nginx, express, sidegate, nginx, …), each round with fresh`,
    `processes that served ${warmUpSeconds} s of deliveries first: until then V8 still compiles, and costs up to twice as much. The gate`,
    'has one core to itself; Redis, the app and the load share the other.',
    describeNoise(facts),
  ];
}

/** The ratio of the goal. */
function toShare(series: readonly Series[], { scenario, against, figure }: Goal): number | undefined {
  const own = valuesOf(series, scenario, 'sidegate', figure);
  const theirs = valuesOf(series, against.scenario, against.rival, figure);
  return own.length === 0 || theirs.length === 0 ? undefined : pairedRatio(own, theirs);
}

function toStanding(series: readonly Series[]): string[] {
  const rows = GOALS.map((goal) => {
    const ratio = toShare(series, goal);
    if (ratio === undefined) return undefined;
    const { title, most } = goal;
    const verdict = ratio <= most ? 'reached' : `missed: ${((ratio / most - 1) * 100).toFixed(0)} % above`;
    return `| ${title} | ≤ ${most} × | ${ratio.toFixed(2)} × | ${verdict} |`;
  }).filter((row) => row !== undefined);
  const wrong = series.flatMap(({ scenario, rival, rounds }) =>
    rounds.flatMap((round) => round.wrong.map((line) => `- ${LABELS[rival]}, ${scenario.title}: ${line}`)),
  );
  const checked = series.reduce((sum, { rounds }) => sum + rounds.reduce((requests, round) => requests + round.requests, 0), 0);
  return [
    '| goal | asked | measured | |',
    '|---|---|---|---|',
    ...rows,
    `| wrong answers, lost or repeated events | 0 | ${wrong.length === 0 ? 0 : 'some'} | of ${checked} requests, all rivals |`,
    ...(wrong.length === 0 ? [] : ['', ...wrong]),
  ];
}

function toTable(scenario: Scenario, series: readonly Series[]): string[] {
  const rows = series.filter((one) => one.scenario === scenario);
  const isPaced = scenario.rate !== undefined;
  const columns = isPaced
    ? ['CPU µs/request', 'p50 ms', 'p99 ms', 'worst ms', 'sender late p99 ms', 'RSS MiB']
    : ['CPU µs/request', 'requests/s', 'RSS MiB'];
  const own = rows.find(({ rival }) => rival === 'sidegate');
  return [
    `### ${scenario.title}`,
    '',
    `| | ${columns.join(' | ')} | sidegate's CPU against it |`,
    `|---|${columns.map(() => '---').join('|')}|---|`,
    ...rows.map((row) => `| ${LABELS[row.rival]} | ${toCells(row, isPaced).join(' | ')} | ${toRatio(own, row)} |`),
    '',
  ];
}

function toCells({ rounds }: Series, isPaced: boolean): string[] {
  const cpu = toSpread(rounds.map((round) => round.cpuMicroseconds));
  const rss = median(rounds.map((round) => round.rssMebibytes)).toFixed(0);
  if (!isPaced) return [cpu, median(rounds.map((round) => round.requestsPerSecond)).toFixed(0), rss];
  const paced = rounds.map((round) => round.paced).filter((one) => one !== undefined);
  const times = (['p50', 'p99', 'worst', 'senderLateP99'] as const).map((name) => median(paced.map((one) => one[name])));
  return [cpu, ...times.map((time) => time.toFixed(2)), rss];
}

function toRatio(own: Series | undefined, other: Series): string {
  if (own === undefined || own === other) return '';
  const [ours, theirs] = [own, other].map(({ rounds }) => rounds.map((round) => round.cpuMicroseconds));
  return `${pairedRatio(ours ?? [], theirs ?? []).toFixed(2)} ×`;
}

function valuesOf(
  series: readonly Series[],
  scenario: ScenarioName,
  rival: RivalName,
  figure: (one: Measurement) => number,
): number[] {
  const found = series.find((one) => one.scenario.name === scenario && one.rival === rival);
  return found?.rounds.map(figure) ?? [];
}

function describeRivals(): string[] {
  return [
    '## Setup',
    '',
    '- **nginx + Lua**: one worker; the same checks of headers, timestamp, signature list and body. HMAC uses libcrypto through FFI with a',
    '  context that is keyed once. Claim, confirm and release are Lua scripts with a fencing token; confirms are pipelined and sent after the',
    '  response. Connections to Redis and to the app are kept alive; the log is buffered, one line per request.',
    '- **express in-app**: express 5, the `standardwebhooks` library, one `SET NX` by ioredis with auto-pipelining, the response from the',
    '  same process, one buffered pino line per request. No proxying, no second phase, fewer checks: an event whose handler fails is lost.',
    '- **sidegate**: the bundle with its default settings and Redis. It also keeps metrics and a digest of the body, bounds every wait',
    '  and counts the requests that it rejects.',
    '- **the app** behind the proxies: an nginx that reads the body, responds with 200 and logs the ID.',
    '- **load**: wrk with 32 keep-alive connections and unique signed deliveries; for the fixed rate, an open-loop sender that measures',
    '  from the moment at which a request was due.',
    '',
  ];
}
