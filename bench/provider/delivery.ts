/** Measures the CPU of a delivery by the whole provider beside a bare HTTP send, and writes RESULTS-delivery.md. */
import { join } from 'node:path';
import { pickNamed, runBench } from '../command.ts';
import { describeNoise, type RunFacts, toSpread } from '../figures.ts';
import { describeMachine } from '../machine.ts';
import { median } from '../statistics.ts';
import { type DeliveryFigures, type DeliveryTask, METHODS, type Method } from './delivery-process.ts';
import { ENGINES } from './engines.ts';
import { nextMessage, startProcess, stopProcess } from './processes.ts';
import type { ReceiversReady } from './receivers.ts';

const COUNT = 20_000;
const WARM_UP = 8_000;
const ENDPOINTS = 200;
const GOALS = { sqlite: 60, postgres: 200 } as const;
const BARE: Method = 'node:http';
const LABELS: Readonly<Record<Method, string>> = {
  'node:http': '`node:http` with an agent: a bare POST',
  undici: 'undici: a bare POST',
  sender: 'the sender: signed, with egress checks',
  sqlite: 'the provider on SQLite: taken from the queue, sent, settled',
  postgres: 'the provider on PostgreSQL, with the CPU of PostgreSQL',
};

type Rounds = ReadonlyMap<Method, readonly DeliveryFigures[]>;

async function measure(method: Method): Promise<DeliveryFigures> {
  const receivers = startProcess('receivers.ts');
  const sending = startProcess('delivery-process.ts');
  try {
    const { port } = await nextMessage<ReceiversReady>(receivers);
    sending.send({ method, port, endpoints: ENDPOINTS, warmUp: WARM_UP, count: COUNT } satisfies DeliveryTask);
    return await nextMessage<DeliveryFigures>(sending);
  } finally {
    await Promise.all([sending, receivers].map(stopProcess));
  }
}

/** The difference to the bare send within each round. */
function findOver(method: Method, rounds: Rounds): readonly number[] {
  const bare = rounds.get(BARE) ?? [];
  return (rounds.get(method) ?? []).map(({ cpu }, round) => cpu - (bare[round]?.cpu ?? Number.NaN));
}

function toRow(method: Method, rounds: Rounds): string {
  const figures = rounds.get(method) ?? [];
  const accepted = figures.flatMap(({ accept }) => accept ?? []);
  const cells = [
    LABELS[method],
    toSpread(
      figures.map(({ cpu }) => cpu),
      0,
    ),
    method === BARE ? '' : toSpread(findOver(method, rounds), 0),
    toRate(figures),
    ...(accepted.length === 0
      ? ['', '']
      : [
          toSpread(
            accepted.map(({ cpu }) => cpu),
            0,
          ),
          toRate(accepted),
        ]),
  ];
  return `| ${cells.join(' | ')} |`;
}

function toRate(times: readonly { readonly elapsed: number }[]): string {
  return (1_000_000 / median(times.map(({ elapsed }) => elapsed))).toFixed(0);
}

function toStanding(rounds: Rounds): string[] {
  return ENGINES.flatMap((engine) => {
    const over = median(findOver(engine, rounds));
    if (Number.isNaN(over)) return [];
    const goal = GOALS[engine];
    const verdict = over <= goal ? 'reached' : 'missed';
    return [`Goal on ${engine}: at most ${goal} µs above the bare send. Measured: ${over.toFixed(0)} µs, ${verdict}.`, ''];
  });
}

function toReport(rounds: Rounds, facts: RunFacts): string {
  return [
    '# CPU of a delivery',
    '',
    'Written by `npm run bench -- delivery`; do not edit.',
    '',
    `${facts.date}; ${[...describeMachine(), `Node ${process.version}`].join('; ')}. ${describeNoise(facts)}`,
    `${facts.rounds} rounds, the methods in turns, each in a fresh process that sent ${WARM_UP} events first. ${COUNT} events of 1 KiB for`,
    `${ENDPOINTS} endpoints on loopback, 64 at once. CPU is user and system time of all threads of the process; the receivers are in another process.`,
    'Medians, the lowest and highest round in brackets; "over the bare send" is the median of the differences within each round.',
    '',
    ...toStanding(rounds),
    '| method | CPU µs per delivery | over the bare send | deliveries/s | CPU µs to accept an event | accepted/s |',
    '|---|---|---|---|---|---|',
    ...[...rounds.keys()].map((method) => toRow(method, rounds)),
    '',
  ].join('\n');
}

await runBench({
  command: 'npm run bench -- delivery',
  defaults: { names: METHODS, seconds: 1, warmUpSeconds: 1, out: join(import.meta.dirname, '..', 'RESULTS-delivery.md') },
  play: async ({ rounds, only }) => {
    const methods = pickNamed(METHODS, only, (name) => name);
    const found = new Map<Method, DeliveryFigures[]>(methods.map((method) => [method, []]));
    for (let round = 1; round <= rounds; round++) {
      for (const method of methods) {
        const figures = await measure(method);
        found.get(method)?.push(figures);
        console.log(`round ${round}  ${method.padEnd(10)} ${figures.cpu.toFixed(1)} µs`);
      }
    }
    return { isWrong: false, toReport: (facts) => toReport(found, facts) };
  },
});
