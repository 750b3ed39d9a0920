/** What is checked of the claim protocol, and at which sizes. */
import { type Check, type CompleteScope, toModelValues } from '../tlc.ts';

/** The causes of a double that docs/explanation/handled-once.md lists. */
export const CAUSES = [
  'crash',
  'pause',
  'outage',
  'data loss',
  'forward',
  'resend',
  'retention',
  'app error',
  'no response',
  'forget',
] as const;

/** The causes of two requests at once to the app. */
export const OVERLAPS = ['pause', 'overrun', 'data loss', 'forward', 'forget'] as const;

const FAULTS = [
  'lost response',
  'closed connection',
  'outage',
  'not sent',
  'rejection',
  'app error',
  'no response',
  'crash',
  'overrun',
  'pause',
  'retention',
  'forget',
  'data loss',
] as const;
type Fault = (typeof FAULTS)[number];

const OPTIONS = ['onStoreError: forward', 'resend: always'] as const;
type Option = (typeof OPTIONS)[number];

interface Scope {
  readonly gates?: number;
  readonly events?: number;
  /** Requests at once for each event at each gate. */
  readonly copies?: number;
  readonly maxFaults?: number;
  readonly faults?: readonly Fault[];
  /** Settings other than the default. */
  readonly options?: readonly Option[];
  readonly mutation?: string;
  /** Also reports the causes of doubles and overlaps. */
  readonly isReporting?: boolean;
  /** Also checks liveness. */
  readonly isLive?: boolean;
}

const INVARIANTS = ['AcknowledgedIsHandled', 'RecordedIsHandled', 'SettledByHolder', 'DoubleHasCause', 'OverlapHasCause'];

export function toCheck(scope: Scope): Check {
  const { gates = 2, events = 1, copies = 1, maxFaults = 2, isLive = false } = scope;
  return {
    module: 'claims/Claims',
    constants: {
      Gates: toModelValues('g', gates),
      Events: toModelValues('e', events),
      Copies: copies,
      MaxFaults: maxFaults,
      Faults: scope.faults ?? FAULTS,
      Options: scope.options ?? [],
      Listed: CAUSES,
      ListedOverlaps: OVERLAPS,
      Mutation: scope.mutation ?? 'none',
    },
    invariants: scope.isReporting === true ? [...INVARIANTS, 'ReportCauses'] : INVARIANTS,
    properties: isLive ? ['RetriedIsHandled'] : [],
    // TLC does not check liveness under symmetry.
    isSymmetric: !isLive,
  };
}

/** docs/reliability.md lists them. */
export const SCOPES: readonly (Scope & CompleteScope)[] = [
  { name: '2 gates, 1 event, 2 faults, with liveness', isLive: true, states: 39931 },
  { name: '2 gates, 1 event, 3 faults', maxFaults: 3, isLong: true, states: 182680 },
  { name: '2 gates, 1 event, 2 copies at each gate, 1 fault', copies: 2, maxFaults: 1, states: 88858 },
  { name: '2 gates, 2 events, 1 fault', events: 2, maxFaults: 1, states: 127761 },
  { name: '2 gates, 1 event, 2 faults, onStoreError: forward, resend: always', options: OPTIONS, states: 26342 },
];

/** Small scopes in which each cause is the only one of some double or overlap. */
export const REPORTING: readonly Scope[] = [
  { maxFaults: 1 },
  { maxFaults: 1, options: OPTIONS },
  // Nothing overruns its lease before the gate has given up.
  { faults: ['no response', 'overrun'] },
];

/** Deliberate defects of the protocol, and the property that notices each one. Without faults, where that is enough. */
export const MUTATIONS: Readonly<Record<string, Scope & { readonly violated: string }>> = {
  'confirm is skipped': { maxFaults: 0, violated: 'DoubleHasCause' },
  "confirm before the app's response": { maxFaults: 1, violated: 'RecordedIsHandled' },
  'confirm by another holder': { faults: ['pause'], maxFaults: 1, violated: 'SettledByHolder' },
  'release by another holder': { faults: ['pause', 'rejection'], violated: 'SettledByHolder' },
  'claim takes over': { maxFaults: 0, violated: 'OverlapHasCause' },
  'held claim is released': { faults: ['no response'], maxFaults: 1, violated: 'OverlapHasCause' },
  'lease is too short': { maxFaults: 0, violated: 'OverlapHasCause' },
};
