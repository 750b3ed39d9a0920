/** The league's measured rows: what a refusal's time tells about users, and what guessing costs everybody else. */
import { median } from '../bench/statistics.ts';
import { sendBytes } from './raw-client.ts';
import { COLON, SLOW, toRequest, toToken } from './requests.ts';
import type { Opponent } from './row.ts';

/** What was measured, and whether it is what the gate promises. */
export interface Measured {
  readonly text: string;
  readonly isMatch: boolean;
}

/** A row whose outcome is a figure. */
export interface MeasuredRow {
  readonly title: string;
  readonly column: string;
  readonly ground: string;
  readonly measure: (opponent: Opponent) => Promise<Measured>;
}

/** Rounds of so many refusals of each kind of user, or as many as the time allows. */
export const TIMING = { rounds: 3, samples: 40, seconds: 15 };
/** Rounds of guessing, and what is asked meanwhile. */
export const STORM = { rounds: 5, connections: 8, probes: 250, everyMs: 20 };
const MOST_GAP = 0.02;
const MOST_P50_MS = 10;
const WARM_UP_REQUESTS = 200;
/** A route of its own, as no limit on guesses may end what is measured. */
const LINE = 'GET /measured HTTP/1.1';

/** In the order of the report. */
export const MEASURED_ROWS: readonly MeasuredRow[] = [
  {
    title: 'wrong password, p50 in ms: cheap hash, costly hash / unknown user',
    column: 'equal: gap < 2 %',
    ground: 'policy',
    measure: measureTiming,
  },
  {
    title: '401 of others during a flood of guesses, p50 / p99 in ms',
    column: 'p50 < 10',
    ground: 'policy',
    measure: measureStorm,
  },
];

async function measureTiming({ port }: Opponent): Promise<Measured> {
  const rounds: number[][] = [];
  for (let round = 0; round < TIMING.rounds; round++) rounds.push(await playTiming(port, round));
  // Other work on the machine only ever adds time: the round that took least is the least disturbed, whatever its gap.
  const [quietest = []] = rounds.toSorted((a, b) => toSum(a) - toSum(b));
  const gap = 1 - Math.min(...quietest) / Math.max(...quietest);
  const [cheap = '', costly = '', unknown = ''] = quietest.map(toShort);
  return { text: `${cheap}, ${costly} / ${unknown}; gap ${(gap * 100).toFixed(1)} %`, isMatch: gap < MOST_GAP };
}

/** The median time of a refusal for each kind of user. */
async function playTiming(port: number, round: number): Promise<number[]> {
  const users = [COLON.user, SLOW.user, 'nobody'];
  const times = new Map(users.map((user) => [user, [] as number[]]));
  const deadline = performance.now() + TIMING.seconds * 1_000;
  for (let sample = 0; sample < TIMING.samples && performance.now() < deadline; sample++) {
    // Each user takes each place in turn: what follows on what may not tell them apart.
    for (let place = 0; place < users.length; place++) {
      const user = users[(sample + place) % users.length] as string;
      times.get(user)?.push(await timeGuess(port, user, `${round} ${sample}`));
    }
  }
  return users.map((user) => median(times.get(user) ?? []));
}

async function timeGuess(port: number, user: string, guess: string): Promise<number> {
  const startedAt = performance.now();
  const answer = await sendBytes(port, toGuess(user, guess));
  if (answer?.status !== 401) throw new Error(`a wrong password of ${user} got ${answer?.status ?? 'no answer'}`);
  return performance.now() - startedAt;
}

async function measureStorm(opponent: Opponent): Promise<Measured> {
  for (let i = 0; i < WARM_UP_REQUESTS; i++) await sendBytes(opponent.port, toRequest({ line: LINE }));
  const rounds: number[][] = [];
  for (let round = 0; round < STORM.rounds; round++) rounds.push(await playStorm(opponent, round));
  const p50 = median(rounds.map((times) => toPercentile(times, 0.5)));
  const p99 = median(rounds.map((times) => toPercentile(times, 0.99)));
  return { text: `${toShort(p50)} / ${toShort(p99)}`, isMatch: p50 < MOST_P50_MS };
}

/** The times of those who ask without credentials at a fixed pace, each from the moment it was due. */
async function playStorm({ port }: Opponent, round: number): Promise<number[]> {
  let isOver = false;
  const guess = async (connection: number): Promise<void> => {
    for (let i = 0; !isOver; i++) await sendBytes(port, toGuess(SLOW.user, `${round} ${connection} ${i}`));
  };
  const guessers = Array.from({ length: STORM.connections }, (_, connection) => guess(connection));
  const probes: Promise<number>[] = [];
  await new Promise<void>((resolve) => {
    const startedAt = performance.now();
    const timer = setInterval(() => {
      while (probes.length < STORM.probes && startedAt + (probes.length + 1) * STORM.everyMs <= performance.now())
        probes.push(probe(port, startedAt + (probes.length + 1) * STORM.everyMs));
      if (probes.length < STORM.probes) return;
      clearInterval(timer);
      resolve();
    }, 1);
  });
  const times = await Promise.all(probes);
  isOver = true;
  await Promise.all(guessers);
  return times;
}

async function probe(port: number, dueAt: number): Promise<number> {
  const answer = await sendBytes(port, toRequest({ line: LINE }));
  // No answer in time counts as long as was waited for it.
  if (answer !== undefined && answer.status !== 401) throw new Error(`a request without credentials got ${answer.status}`);
  return performance.now() - dueAt;
}

function toGuess(user: string, guess: string): string {
  return toRequest({ line: LINE, fields: [`Authorization: Basic ${toToken(user, `wrong ${guess}`)}`] });
}

function toPercentile(times: readonly number[], share: number): number {
  const sorted = times.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

function toSum(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}

/** Three digits that say something. */
function toShort(ms: number): string {
  return ms >= 100 ? ms.toFixed(0) : ms.toFixed(ms >= 10 ? 1 : 2);
}
