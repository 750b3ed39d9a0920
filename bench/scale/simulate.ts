/** Simulates the small case that is also measured, and fleets that are too large to measure. */
import { toQuantile } from '../statistics.ts';
import { Fleet } from './fleet.ts';
import type { FleetResult, LoadFigures, ScaleRun } from './results.ts';

type Times = Pick<ScaleRun, 'service' | 'client'>;

const SECOND = 1e6;
const SEED = 20_261_123;
const WARM_UP_SHARE = 0.2;

/** Assumptions about a fleet, in microseconds; no measurement. */
export const ASSUMED = { redisDelay: 250, senderDelay: 5_000, appTime: 20_000 } as const;

export function toQuantileMs(microseconds: readonly number[], share: number): number {
  return toQuantile(microseconds, share) / 1_000;
}

/** The small case. */
export interface SmallCase {
  readonly eventsPerSecond: number;
  /** Of each process: microseconds between the times at which it looks which events are due. They repeat. */
  readonly gaps: readonly (readonly number[])[];
  readonly seconds: number;
}

/** Processes that claim and confirm events at a rate in total, like those of measure-small.ts. */
export function simulateSmall({ service, client }: Times, small: SmallCase): LoadFigures {
  const { eventsPerSecond, gaps, seconds } = small;
  const processes = gaps.length;
  const fleet = new Fleet({ seed: SEED, gates: processes, shards: 1, service, networkDelay: 0, replyCost: client });
  const { timeline, random } = fleet;
  const mean = (processes * SECOND) / eventsPerSecond;
  for (const [process, gate] of fleet.gates.entries()) {
    const own = gaps[process] ?? [];
    let due = -Math.log(1 - random.fraction()) * mean;
    let ticks = 0;
    const tick = (): void => {
      for (; due <= timeline.now; due += -Math.log(1 - random.fraction()) * mean) gate.claim(0, () => gate.confirm());
      timeline.after(own[ticks++ % own.length] ?? SECOND, tick);
    };
    tick();
  }
  return summarize(fleet, seconds);
}

function summarize(fleet: Fleet, seconds: number): LoadFigures {
  fleet.timeline.runUntil(seconds * SECOND);
  return {
    operations: fleet.operations / seconds,
    calls: fleet.calls / seconds,
    wakeups: fleet.wakeups / seconds,
    utilization: fleet.busy / (seconds * SECOND * fleet.options.shards),
    p50: toQuantileMs(fleet.claimTimes, 0.5),
    p99: toQuantileMs(fleet.claimTimes, 0.99),
  };
}

/** The size and load of a fleet. */
export interface FleetCase {
  readonly gates: number;
  readonly senders: number;
  readonly shards: number;
  readonly eventsPerSecond: number;
  readonly seconds: number;
}

/**
 * Each sender sends several deliveries in parallel, each to any gate, and waits for the response before it sends the next one after a random pause. The gate
 * claims, forwards to the app, responds, and confirms.
 */
export function simulateFleet(times: Times & Pick<ScaleRun, 'gateMicroseconds'>, fleetCase: FleetCase): FleetResult {
  const { gates, senders, shards, eventsPerSecond, seconds } = fleetCase;
  const { service, gateMicroseconds } = times;
  // The CPU time of a delivery contains that of the replies.
  const replyCost = { call: 0, operation: 0 };
  const fleet = new Fleet({ seed: SEED, gates, shards, service, networkDelay: ASSUMED.redisDelay, replyCost });
  const { timeline, random } = fleet;
  const parallel = Math.max(1, Math.ceil((eventsPerSecond / senders) * 0.1));
  const mean = (senders * parallel * SECOND) / eventsPerSecond;
  const deliveryTimes: number[] = [];
  let delivered = 0;
  const send = (): void => {
    const start = timeline.now;
    const gate = fleet.gates[random.below(gates)];
    const respond = (): void => {
      gate?.confirm();
      timeline.after(ASSUMED.senderDelay, () => {
        delivered++;
        deliveryTimes.push(timeline.now - start);
        think();
      });
    };
    const forward = (): void => timeline.after(ASSUMED.appTime, () => gate?.work(gateMicroseconds / 2, respond));
    timeline.after(ASSUMED.senderDelay, () => gate?.claim(gateMicroseconds / 2, forward));
  };
  // The pause is shorter by what a delivery takes without waiting, so that the rate is the offered one.
  const least = 2 * ASSUMED.senderDelay + ASSUMED.appTime + 2 * ASSUMED.redisDelay + gateMicroseconds;
  const pause = Math.max(mean - least, 0);
  const think = (): void => timeline.after(-Math.log(1 - random.fraction()) * pause, send);
  // As if they had been running for long: some wait for a response.
  for (let sender = 0; sender < senders * parallel; sender++)
    timeline.after(random.fraction() * mean < least ? random.fraction() * least : 0, think);
  const warmUp = Math.max(seconds * WARM_UP_SHARE, (2 * least) / SECOND);
  timeline.runUntil(warmUp * SECOND);
  const before = { busy: fleet.busy, operations: fleet.operations, calls: fleet.calls };
  delivered = 0;
  deliveryTimes.length = 0;
  fleet.claimTimes.length = 0;
  timeline.runUntil((warmUp + seconds) * SECOND);
  return {
    gates,
    senders,
    shards,
    offered: eventsPerSecond,
    delivered: delivered / seconds,
    utilization: (fleet.busy - before.busy) / (seconds * SECOND * shards),
    batch: (fleet.operations - before.operations) / (fleet.calls - before.calls),
    claimP50: toQuantileMs(fleet.claimTimes, 0.5),
    claimP99: toQuantileMs(fleet.claimTimes, 0.99),
    deliveryP50: toQuantileMs(deliveryTimes, 0.5),
    deliveryP99: toQuantileMs(deliveryTimes, 0.99),
  };
}
