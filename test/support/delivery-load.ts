/** Load of signed deliveries, and which of them were lost. */
import { Agent, request } from 'node:http';
import { makeDelivery } from './deliveries.ts';
import { until } from './gate.ts';

/** Leaves the machine time for what the test does under load. */
const PAUSE_MS = 5;
/** Packets to a pod that no longer exists get no answer; on a busy machine, a gate needs 5 s for one. */
const SILENCE_MS = 20_000;

/** What became of the deliveries. */
export interface Tally {
  readonly sent: number;
  /** Statuses other than 200, and codes of errors. */
  readonly lost: readonly string[];
}

/** How much is sent. */
export interface LoadOptions {
  /** Every other one keeps its connection. */
  readonly senders: number;
  /** How many deliveries are sent before the work begins, and again after its end. */
  readonly around: number;
}

/** Sends deliveries while `work` runs. */
export async function sendDuring(url: string, { senders, around }: LoadOptions, work: () => Promise<unknown>): Promise<Tally> {
  const tally = { sent: 0, lost: [] as string[] };
  let isStopped = false;
  const send = async (isKeptAlive: boolean): Promise<void> => {
    const agent = new Agent({ keepAlive: isKeptAlive, maxSockets: 1 });
    while (!isStopped) {
      const outcome = await deliver(url, agent);
      tally.sent++;
      if (outcome !== '200') tally.lost.push(outcome);
      await new Promise((done) => setTimeout(done, PAUSE_MS));
    }
    agent.destroy();
  };
  const sendMore = async (): Promise<void> => {
    const enough = tally.sent + around;
    await until(() => tally.sent >= enough);
  };
  const running = Array.from({ length: senders }, (_, at) => send(at % 2 === 0));
  try {
    await sendMore();
    await work();
    await sendMore();
  } finally {
    isStopped = true;
    await Promise.all(running);
  }
  return tally;
}

function deliver(url: string, agent: Agent): Promise<string> {
  const { headers, body } = makeDelivery();
  return new Promise((done) => {
    const options = { method: 'POST', agent, timeout: SILENCE_MS, headers: { ...headers, 'Content-Length': body.length } };
    const sent = request(url, options, (response) => {
      response.resume();
      response.once('end', () => done(String(response.statusCode)));
      response.once('error', (error) => done(error.message));
    });
    sent.once('timeout', () => sent.destroy(new Error('timeout')));
    sent.once('error', (error: NodeJS.ErrnoException) => done(error.code ?? error.message));
    sent.end(body);
  });
}

/** One line for the output of the tests. */
export function formatTally({ sent, lost }: Tally): string {
  const kinds = Object.entries(Object.groupBy(lost, (each) => each)).map(([kind, all]) => `${all?.length} ${kind}`);
  return `${sent} requests, ${lost.length} lost${kinds.length > 0 ? ` (${kinds.join(', ')})` : ''}`;
}
