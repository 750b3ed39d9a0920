/** A row of the league: bytes to send, a word for what came of them, and the words that the gate's column has. Plays it against a server. */
import { type Answer, sendBytes } from './raw-client.ts';
import type { Received, Recorder } from './recorder.ts';

/** What came of one request. */
export interface Observed {
  /** Undefined where the server closed without one. */
  readonly answer: Answer | undefined;
  /** All that reached the app meanwhile, rightly or not. */
  readonly received: readonly Received[];
  /** Whether the server's process lived on. */
  readonly isAlive: boolean;
}

/** A row. */
export interface Row {
  /** As the report shows it, in Markdown. */
  readonly title: string;
  /** Raw requests, latin1, each sent on a connection of its own. */
  readonly requests: readonly string[];
  /** The outcome in a few words. */
  readonly read: (observed: readonly Observed[]) => string;
  /** Outcomes that match the gate's column. */
  readonly column: readonly string[];
  /** What asks for it: sections of RFCs, or that it is our policy. */
  readonly ground: string;
}

/** The status of each request, said once where all are alike; a refused request that reached the app all the same is told. */
export function readStatuses(observed: readonly Observed[]): string {
  return joinAlike(observed.map(toStatus));
}

/** The status alone, with what contradicts it. */
export function toStatus({ answer, received, isAlive }: Observed): string {
  const status = answer === undefined ? 'no answer' : String(answer.status);
  const isLeaked = status !== '200' && received.length > 0;
  return `${status}${isLeaked ? ', app reached' : ''}${isAlive ? '' : ', process dies'}`;
}

/** What the app received where it was reached and the client was told so, else the status. */
export function readForwarded(look: (received: Received) => string): (observed: readonly Observed[]) => string {
  return (observed) =>
    joinAlike(
      observed.map((one) => {
        const [received] = one.received;
        if (one.answer?.status !== 200 || received === undefined || !one.isAlive) return toStatus(one);
        return one.received.length === 1 ? look(received) : `${look(received)}, ${one.received.length} requests`;
      }),
    );
}

/** Several outcomes in one cell. */
function joinAlike(outcomes: readonly string[]): string {
  return [...new Set(outcomes)].length === 1 ? (outcomes[0] ?? '') : outcomes.join(' / ');
}

/** What a row is played against. */
export interface Opponent {
  readonly port: number;
  readonly app: Recorder;
  isAlive(): boolean;
}

/** Sends the row's requests one after the other and gives the outcome. */
export async function playRow({ requests, read }: Row, opponent: Opponent): Promise<string> {
  const observed: Observed[] = [];
  for (const request of requests) {
    opponent.app.take();
    const answer = await sendBytes(opponent.port, request);
    observed.push({ answer, received: opponent.app.take(), isAlive: opponent.isAlive() });
  }
  return read(observed);
}

/** Whether the outcome is the gate's column. */
export function isMatch({ column }: Row, outcome: string): boolean {
  return column.includes(outcome);
}
