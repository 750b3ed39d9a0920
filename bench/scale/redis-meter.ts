/** Reads what a Redis server did and used: its own counters, and the CPU time of its process. */
import { readFileSync } from 'node:fs';
import { Redis } from 'ioredis';
import { readThreadMicroseconds } from '../machine.ts';

/** The work of a server between two laps. */
export interface Usage {
  /** By name; commands that scripts run count, too. */
  readonly commands: Readonly<Record<string, number>>;
  readonly bytesIn: number;
  readonly bytesOut: number;
  /** Reads of sockets that had data. */
  readonly reads: number;
  /** How often it slept until something arrived. */
  readonly wakeups: number;
  readonly cpuMicroseconds: number;
}

/** Replication between the nodes of a Cluster. */
const OF_SERVERS = new Set(['replconf', 'ping', 'psync']);

/** Measures one server through a separate connection. */
export class RedisMeter {
  readonly #client: Redis;
  readonly #pid: number;
  /** The cost of a lap itself. */
  readonly #own: Usage;
  #last: Usage;
  /** INFO that it sent in addition since the last lap. */
  #extra = 0;

  private constructor(client: Redis, pid: number, own: Usage, last: Usage) {
    this.#client = client;
    this.#pid = pid;
    this.#own = own;
    this.#last = last;
  }

  static async open(port: number): Promise<RedisMeter> {
    const client = new Redis({ port, host: '127.0.0.1' });
    const pid = Number(toField(await client.info('server'), 'process_id'));
    const first = await readUsage(client, pid);
    const second = await readUsage(client, pid);
    return new RedisMeter(client, pid, subtract(second, first), second);
  }

  get client(): Redis {
    return this.#client;
  }

  /** Returns the work of the server since the last lap, without that of the lap. */
  async lap(): Promise<Usage> {
    const now = await readUsage(this.#client, this.#pid);
    const done = subtract(subtract(now, this.#last), this.#own);
    const { info = 0, ...commands } = done.commands;
    const others = info - this.#extra;
    this.#last = now;
    this.#extra = 0;
    return { ...done, commands: others === 0 ? commands : { ...commands, info: others } };
  }

  /** Of all data, in bytes. */
  async usedMemory(): Promise<number> {
    this.#extra++;
    return Number(toField(await this.#client.info('memory'), 'used_memory'));
  }

  /** Connections, without that of the meter. */
  async countConnections(): Promise<number> {
    this.#extra++;
    return Number(toField(await this.#client.info('clients'), 'connected_clients')) - 1;
  }

  close(): void {
    this.#client.disconnect();
  }
}

/** The sums over servers. */
export function addUsage(all: readonly Usage[]): Usage {
  const zero: Usage = { commands: {}, bytesIn: 0, bytesOut: 0, reads: 0, wakeups: 0, cpuMicroseconds: 0 };
  return all.reduce((sum, one) => combine(sum, one, 1), zero);
}

/** All commands together, and how many of them scripts ran. */
export function countCommands({ commands }: Usage): number {
  return Object.values(commands).reduce((sum, count) => sum + count, 0);
}

async function readUsage(client: Redis, pid: number): Promise<Usage> {
  const text = await client.info('stats', 'commandstats');
  const commands = [...text.matchAll(/^cmdstat_(\S+?):calls=(\d+)/gm)]
    .map(([, name = '', calls]) => [name, Number(calls)] as const)
    .filter(([name]) => !OF_SERVERS.has(name));
  return {
    commands: Object.fromEntries(commands),
    bytesIn: Number(toField(text, 'total_net_input_bytes')),
    bytesOut: Number(toField(text, 'total_net_output_bytes')),
    reads: Number(toField(text, 'total_reads_processed')),
    wakeups: readWakeups(pid),
    cpuMicroseconds: readThreadMicroseconds([pid]),
  };
}

function toField(text: string, name: string): string {
  const found = new RegExp(`^${name}:(\\S+)`, 'm').exec(text)?.[1];
  if (found === undefined) throw new Error(`INFO has no ${name}: Redis 6 or newer is required`);
  return found;
}

/** Of the main thread, which runs the event loop. */
function readWakeups(pid: number): number {
  const text = readFileSync(`/proc/${pid}/task/${pid}/status`, 'utf8');
  return Number(/^voluntary_ctxt_switches:\s+(\d+)$/m.exec(text)?.[1]);
}

function subtract(from: Usage, what: Usage): Usage {
  return combine(from, what, -1);
}

function combine(one: Usage, other: Usage, sign: 1 | -1): Usage {
  const names = new Set([...Object.keys(one.commands), ...Object.keys(other.commands)]);
  const commands = [...names]
    .map((name) => [name, (one.commands[name] ?? 0) + sign * (other.commands[name] ?? 0)] as const)
    .filter(([, count]) => count !== 0);
  return {
    commands: Object.fromEntries(commands),
    bytesIn: one.bytesIn + sign * other.bytesIn,
    bytesOut: one.bytesOut + sign * other.bytesOut,
    reads: one.reads + sign * other.reads,
    wakeups: one.wakeups + sign * other.wakeups,
    cpuMicroseconds: one.cpuMicroseconds + sign * other.cpuMicroseconds,
  };
}
