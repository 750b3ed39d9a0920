/** The results of `npm run bench -- scale`, and what follows from them for any number of pods and events. */

/** The cost of one delivery, or of one second without deliveries. */
export interface RedisCost {
  readonly title: string;
  /** Scripts and commands that the gate sends. */
  readonly calls: number;
  /** Commands that Redis runs, with those inside of scripts. */
  readonly commands: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  /** Of the gate's log; 0 while idle. */
  readonly logBytes: number;
}

/** CPU time of Redis in microseconds. */
export interface ServiceTimes {
  /** After it slept, because nothing had arrived. */
  readonly wakeup: number;
  /** The same after a millisecond: its caches are cold. */
  readonly coldWakeup: number;
  /** A socket with data. */
  readonly read: number;
  /** A call of the script. */
  readonly call: number;
  /** An operation of the script: a claim, a confirmation. */
  readonly operation: number;
}

/** One load from which the service times are computed. */
export interface Calibration {
  readonly title: string;
  readonly operations: number;
  readonly calls: number;
  readonly reads: number;
  /** After short sleeps, and after those of a millisecond. */
  readonly wakeups: number;
  readonly coldWakeups: number;
  readonly cpuMicroseconds: number;
  /** Of the processes with the stores. */
  readonly clientMicroseconds: number;
}

/** Rates per second, and latencies of a claim in milliseconds. */
export interface LoadFigures {
  readonly operations: number;
  readonly calls: number;
  /** How often Redis slept until something arrived. */
  readonly wakeups: number;
  /** Of the CPU time of one core. */
  readonly utilization: number;
  readonly p50: number;
  readonly p99: number;
}

/** A load that was measured and simulated. */
export interface Comparison {
  readonly processes: number;
  readonly eventsPerSecond: number;
  /** How often each process looked which events are due, on average; the simulation has the measured times as its input. */
  readonly ticksPerSecond: number;
  /** Share of the machine that other work took just before. */
  readonly otherWork: number;
  readonly measured: LoadFigures;
  readonly simulated: LoadFigures;
  /** Simulated by measured: the median of the ratios of the rounds. */
  readonly ratio: LoadFigures;
}

/** A simulated fleet. */
export interface FleetResult {
  readonly gates: number;
  readonly senders: number;
  readonly shards: number;
  readonly offered: number;
  readonly delivered: number;
  readonly utilization: number;
  /** Operations in one call, on average. */
  readonly batch: number;
  /** Of a claim: from the gate to Redis and back. In milliseconds. */
  readonly claimP50: number;
  readonly claimP99: number;
  /** Of a delivery: from the sender to the app and back. */
  readonly deliveryP50: number;
  readonly deliveryP99: number;
}

/** The cost of an engine of the queue for each event of 1 KiB with one endpoint. */
export interface QueueCost {
  readonly engine: 'sqlite' | 'postgres';
  readonly acceptPerSecond: number;
  readonly deliverPerSecond: number;
  /** CPU of the process with its threads. */
  readonly acceptMicroseconds: number;
  readonly deliverMicroseconds: number;
  /** CPU of PostgreSQL; 0 for SQLite. */
  readonly acceptServerMicroseconds: number;
  readonly deliverServerMicroseconds: number;
  readonly bytesWaiting: number;
  readonly bytesDelivered: number;
}

/** A complete run. */
export interface ScaleRun {
  readonly date: string;
  readonly commit: string;
  readonly machine: string;
  /** Share of the machine that other work took before the start. */
  readonly otherWork: number;
  readonly rounds: { readonly calibrations: number; readonly comparisons: number };
  /** One delivery each. */
  readonly deliveries: readonly RedisCost[];
  /** One second each, of one process. */
  readonly idle: readonly (RedisCost & { readonly connections: number })[];
  /** A batch of shared requests, while a console is open. */
  readonly console: { readonly requests: number; readonly bytes: number };
  readonly connecting: { readonly commands: number; readonly cpuMicroseconds: number; readonly bytes: number };
  /** A handled ID, with its share of the tables. */
  readonly id: {
    readonly count: number;
    readonly bytes: number;
    readonly bytesAtWorst: number;
    readonly expiryMicroseconds: number;
  };
  /** The same, with 1,000,000 IDs in Redis, and with a log of its writes. */
  readonly surcharges: readonly { readonly title: string; readonly factor: number }[];
  readonly calibrations: readonly Calibration[];
  readonly service: ServiceTimes;
  readonly client: { readonly call: number; readonly operation: number };
  /** CPU time of a gate for an accepted delivery of 1 KiB. */
  readonly gateMicroseconds: number;
  /** CPU time of the sending side for each event, by engine of the queue, with the request to the endpoint. */
  readonly providers: Readonly<Record<QueueCost['engine'], { readonly accept: number; readonly deliver: number }>>;
  readonly comparisons: readonly Comparison[];
  readonly fleets: readonly FleetResult[];
  readonly queues: readonly QueueCost[];
}

/** How far the model may be from what was measured. */
export const TOLERANCE = 0.2;
/** A claim and a confirmation. */
export const OPERATIONS_PER_EVENT = 2;
/** Redis should not be busier: above, the p99 rises steeply, and a failover or a resync needs the rest. */
export const TARGET_UTILIZATION = 0.5;
const SECONDS_PER_DAY = 86_400;
const SECOND_IN_MICROSECONDS = 1e6;

/** A process that could look less often which events are due got too little of the cores: the model has no other work on the machine. */
const MIN_TICKS_PER_SECOND = 400;
/** Below, background work of Redis and the machine are a large part of what is measured. */
const MIN_COMPARED_UTILIZATION = 0.08;

/** Why a load says nothing about the model; undefined if it does. */
export function findObstacle({ ticksPerSecond, measured }: Comparison): string | undefined {
  if (ticksPerSecond < MIN_TICKS_PER_SECOND) return 'the machine was too busy';
  return measured.utilization < MIN_COMPARED_UTILIZATION ? 'almost idle' : undefined;
}

/** How far the model is from what was measured. */
export function compareLoads({ ratio }: Comparison): { readonly operations: number; readonly utilization: number } {
  return { operations: Math.abs(ratio.operations - 1), utilization: Math.abs(ratio.utilization - 1) };
}

/** CPU time of Redis for a call of one operation, and what it takes more if Redis slept. With the IDs and the log of production. */
function toCallTimes({ service, id, surcharges }: CallParts): { readonly work: number; readonly wakeup: number } {
  const factor = surcharges.reduce((product, each) => product * each.factor, 1);
  const { wakeup, read, call, operation } = service;
  return { work: (read + call + operation) * factor + id.expiryMicroseconds / OPERATIONS_PER_EVENT, wakeup: wakeup * factor };
}

/** The measurements on which the time of a call depends. */
export interface CallParts {
  readonly service: ServiceTimes;
  readonly id: Pick<ScaleRun['id'], 'expiryMicroseconds'>;
  readonly surcharges: ScaleRun['surcharges'];
}

/**
 * How busy one Redis is with calls of one operation that arrive at random. A call wakes it up if it sleeps, which is the share of time in which it is not
 * busy: u = rate × (work + (1 - u) × wakeup).
 */
export function toUtilization(parts: CallParts, callsPerSecond: number): number {
  const { work, wakeup } = toCallTimes(parts);
  const rate = callsPerSecond / SECOND_IN_MICROSECONDS;
  return (rate * (work + wakeup)) / (1 + rate * wakeup);
}

/** The calls per second that keep one Redis busy for this share of the time. */
export function toCapacity(parts: CallParts, utilization: number): number {
  const { work, wakeup } = toCallTimes(parts);
  return (utilization * SECOND_IN_MICROSECONDS) / (work + (1 - utilization) * wakeup);
}

/** The needs of a fleet. */
export interface Needs {
  readonly calls: number;
  readonly commands: number;
  readonly megabitsIn: number;
  readonly megabitsOut: number;
  readonly shards: number;
  /** Of each shard. */
  readonly utilization: number;
}

/** Computes what accepted events at this rate, in total over all pods, need of Redis. */
export function toNeeds(run: ScaleRun, pods: number, eventsPerSecond: number): Needs {
  const [accepted, idle] = [run.deliveries[0], run.idle[0]];
  if (accepted === undefined || idle === undefined) throw new Error('bench/RESULTS-scale.json has no costs');
  const toMegabits = (bytes: number): number => (bytes * 8) / 1e6;
  const calls = eventsPerSecond * accepted.calls + pods * idle.calls;
  const shards = Math.max(1, Math.ceil(calls / toCapacity(run, TARGET_UTILIZATION)));
  return {
    calls,
    commands: eventsPerSecond * accepted.commands + pods * idle.commands,
    megabitsIn: toMegabits(eventsPerSecond * accepted.bytesIn + pods * idle.bytesIn),
    megabitsOut: toMegabits(eventsPerSecond * accepted.bytesOut + pods * idle.bytesOut),
    shards,
    utilization: toUtilization(run, calls / shards),
  };
}

/** Memory for the IDs of so many days, in bytes. */
export function toIdBytes({ id }: ScaleRun, eventsPerSecond: number, days: number): number {
  return eventsPerSecond * days * SECONDS_PER_DAY * id.bytesAtWorst;
}
