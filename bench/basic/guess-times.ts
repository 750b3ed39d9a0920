/** Measures the response times of wrong passwords for several users on one connection, in random order, like an attacker who enumerates users. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { argv, hrtime, stdout } from 'node:process';
import { makePassword, toAuthorization } from './users.ts';

/** The input. */
export interface GuessTimesOptions {
  readonly port: number;
  readonly path: string;
  /** Each user as often as it must be guessed. */
  readonly users: readonly string[];
}

/** Milliseconds by user, and the responses. */
export interface GuessTimes {
  readonly times: Readonly<Record<string, readonly number[]>>;
  readonly statuses: Readonly<Record<string, number>>;
}

const NANOSECONDS_IN_MILLISECOND = 1e6;
const WARM_UP = 2;

async function measure({ port, path, users }: GuessTimesOptions): Promise<GuessTimes> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  await once(socket, 'connect');
  const times: Record<string, number[]> = {};
  const statuses: Record<string, number> = {};
  const order = shuffle([...users]);
  for (const [i, name] of [...order.slice(0, WARM_UP), ...order].entries()) {
    const authorization = toAuthorization({ name, password: makePassword() });
    const request = `GET ${path} HTTP/1.1\r\nHost: app.example\r\n${authorization}\r\n\r\n`;
    const startedAt = hrtime.bigint();
    socket.write(request);
    // Such a short response arrives in one piece.
    const [bytes] = (await once(socket, 'data')) as [Buffer];
    if (i < WARM_UP) continue;
    const status = bytes.toString('latin1', 9, 12);
    statuses[status] = (statuses[status] ?? 0) + 1;
    times[name] ??= [];
    times[name].push(Number(hrtime.bigint() - startedAt) / NANOSECONDS_IN_MILLISECOND);
  }
  socket.destroy();
  return { times, statuses };
}

function shuffle<Item>(items: Item[]): Item[] {
  for (let i = items.length - 1; i > 0; i--) {
    const other = Math.floor(Math.random() * (i + 1));
    [items[i], items[other]] = [items[other] as Item, items[i] as Item];
  }
  return items;
}

if (import.meta.main) stdout.write(JSON.stringify(await measure(JSON.parse(argv[2] ?? '') as GuessTimesOptions)));
