/** What is checked of the provider's lane protocol, and at which sizes. */
import { type Check, type CompleteScope, toModelValues } from '../tlc.ts';

/** The causes of a double that docs/explanation/handled-once.md lists. */
export const CAUSES = ['crash', 'pause', 'shutdown', 'data loss', 'endpoint error', 'replay'] as const;

/** The causes of two attempts at once for one delivery. */
export const OVERLAPS = ['pause', 'data loss'] as const;

/** Faults after which the sweep has nothing to repair. */
const HARMLESS = ['replay', 'disabling', 'rejection', 'slice', 'pause of the endpoint'] as const;
const FAULTS = [...HARMLESS, 'crash', 'endpoint error', 'shutdown', 'pause', 'lost jobs', 'data loss'] as const;
type Fault = (typeof FAULTS)[number];

interface Scope {
  readonly events?: number;
  readonly maxFaults?: number;
  readonly faults?: readonly Fault[];
  readonly durability?: 'replicated' | 'local';
  readonly hasSweep?: boolean;
  readonly mutation?: string;
  /** Also checks liveness. */
  readonly isLive?: boolean;
  /** Also reports the causes of doubles and overlaps. */
  readonly isReporting?: boolean;
}

const INVARIANTS = ['AcceptedIsKept', 'DeliveredIsAnswered', 'SettledByHolder', 'DoubleHasCause', 'OneSender'];

export function toCheck(scope: Scope): Check {
  const { events = 1, maxFaults = 2, isLive = false, isReporting = false } = scope;
  return {
    module: 'lanes/Lanes',
    constants: {
      Events: toModelValues('e', events),
      Runs: toModelValues('r', 2),
      MaxTime: 2,
      MaxAttempts: 2,
      MaxFaults: maxFaults,
      Faults: scope.faults ?? FAULTS,
      Durability: scope.durability ?? 'replicated',
      HasSweep: scope.hasSweep ?? true,
      Listed: CAUSES,
      ListedOverlaps: OVERLAPS,
      Mutation: scope.mutation ?? 'none',
    },
    invariants: isReporting ? [...INVARIANTS, 'ReportCauses'] : INVARIANTS,
    properties: isLive ? ['AcceptedEnds'] : [],
    // TLC does not check liveness under symmetry.
    isSymmetric: !isLive,
  };
}

/** docs/reliability.md lists them. */
export const SCOPES: readonly (Scope & CompleteScope)[] = [
  { name: '2 processes, 1 event, 1 fault, with liveness', maxFaults: 1, isLive: true, states: 3188 },
  { name: '2 processes, 1 event, 2 faults', states: 63432 },
  { name: '2 processes, 1 event, 2 faults, with liveness', isLive: true, isLong: true, states: 126794 },
  { name: '2 processes, 2 events, 1 fault', events: 2, maxFaults: 1, states: 16343 },
  {
    name: '2 processes, 2 events, 1 harmless fault, without the sweep, with liveness',
    events: 2,
    maxFaults: 1,
    faults: HARMLESS,
    hasSweep: false,
    isLive: true,
    states: 3602,
  },
];

/** Deliberate defects, and the property that notices each one. `temporal` is AcceptedEnds. */
export const DEFECTS: Readonly<Record<string, Scope & { readonly violated: string }>> = {
  'settlement without the lane': { mutation: 'settlement without the lane', faults: ['pause'], violated: 'SettledByHolder' },
  'settlement of another attempt': {
    mutation: 'settlement of another attempt',
    faults: ['rejection', 'data loss'],
    violated: 'SettledByHolder',
  },
  'settlement before the response': {
    mutation: 'settlement before the response',
    maxFaults: 0,
    violated: 'DeliveredIsAnswered',
  },
  'lease is too short': { mutation: 'lease is too short', maxFaults: 0, violated: 'OneSender' },
  'wake-up during a run is lost': {
    mutation: 'wake-up during a run is lost',
    events: 2,
    maxFaults: 0,
    hasSweep: false,
    isLive: true,
    violated: 'temporal',
  },
  'no sweep after a crash': { faults: ['crash'], maxFaults: 1, hasSweep: false, isLive: true, violated: 'temporal' },
  'durability: local, and a failover': { durability: 'local', faults: ['data loss'], maxFaults: 1, violated: 'AcceptedIsKept' },
};
