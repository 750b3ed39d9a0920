/** What is checked of the provider's lane protocol, and at which sizes. */
import { type Check, type CompleteScope, toModelValues } from '../tlc.ts';

/** The causes of a double that docs/explanation/handled-once.md lists. */
export const CAUSES = ['crash', 'pause', 'shutdown', 'data loss', 'endpoint error', 'replay'] as const;

/** The causes of two attempts at once for one delivery. */
export const OVERLAPS = ['pause', 'data loss'] as const;

const FAULTS = [
  'replay',
  'disabling',
  'rejection',
  'slice',
  'pause of the endpoint',
  'crash',
  'endpoint error',
  'shutdown',
  'pause',
  'data loss',
] as const;
type Fault = (typeof FAULTS)[number];

interface Scope {
  readonly events?: number;
  readonly maxFaults?: number;
  readonly faults?: readonly Fault[];
  readonly standby?: 'synchronous' | 'asynchronous';
  readonly mutation?: string;
  /** Also checks liveness. */
  readonly isLive?: boolean;
  /** Also reports the causes of doubles and overlaps. */
  readonly isReporting?: boolean;
}

const INVARIANTS = ['AcceptedIsKept', 'DeliveredIsAnswered', 'SettledByAttempt', 'DoubleHasCause', 'OneSender'];

export function toCheck(scope: Scope): Check {
  const { events = 1, maxFaults = 2, isLive = false, isReporting = false } = scope;
  return {
    module: 'lanes/Lanes',
    constants: {
      Events: toModelValues('e', events),
      Runs: toModelValues('r', 2),
      MaxAttempts: 2,
      MaxFaults: maxFaults,
      Faults: scope.faults ?? FAULTS,
      Standby: scope.standby ?? 'synchronous',
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
  { name: '2 processes, 1 event, 1 fault, with liveness', maxFaults: 1, isLive: true, states: 1271 },
  { name: '2 processes, 1 event, 2 faults', states: 14828 },
  { name: '2 processes, 1 event, 2 faults, with liveness', isLive: true, isLong: true, states: 28878 },
  { name: '2 processes, 2 events, 1 fault', events: 2, maxFaults: 1, states: 6519 },
];

/** Deliberate defects, and the property that notices each one. `temporal` is AcceptedEnds. */
export const DEFECTS: Readonly<Record<string, Scope & { readonly violated: string }>> = {
  'settlement without the fence': {
    mutation: 'settlement without the fence',
    faults: ['pause'],
    maxFaults: 1,
    violated: 'SettledByAttempt',
  },
  'settlement before the response': {
    mutation: 'settlement before the response',
    maxFaults: 0,
    violated: 'DeliveredIsAnswered',
  },
  'lease is too short': { mutation: 'lease is too short', maxFaults: 0, violated: 'OneSender' },
  'lane is given back during its claim': {
    mutation: 'lane is given back during its claim',
    maxFaults: 0,
    violated: 'OneSender',
  },
  'lease of a crashed process stays': {
    mutation: 'lease of a crashed process stays',
    faults: ['crash'],
    maxFaults: 1,
    isLive: true,
    violated: 'temporal',
  },
  'no polls': { mutation: 'no polls', faults: ['crash'], maxFaults: 1, isLive: true, violated: 'temporal' },
  'asynchronous standby, and a failover': {
    standby: 'asynchronous',
    faults: ['data loss'],
    maxFaults: 1,
    violated: 'AcceptedIsKept',
  },
};
