/** Plays rows against one server. */

import { sendBytes } from './raw-client.ts';
import type { Recorder } from './recorder.ts';
import type { Observed, Row } from './row.ts';

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
