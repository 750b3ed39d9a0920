/** Judges a run by the app's ledger alone; senders, gates and faults only explain what it says. */
import type { Attack } from './attacker.ts';
import { type Double, type Evidence, explain, type Handling, toHandling } from './causes.ts';
import type { Resources } from './gate-lives.ts';
import type { LedgerEntry } from './ledger.ts';
import { checkMetrics } from './metrics-check.ts';
import type { SentEvent } from './webhook-sender.ts';

/** All that a run recorded. */
export interface RunRecord extends Evidence {
  readonly ledger: readonly LedgerEntry[];
  readonly sent: readonly SentEvent[];
  /** IDs of the events that the provider accepted. */
  readonly accepted: readonly string[];
  readonly attacks: readonly Attack[];
  /** Of each gate's last process. */
  readonly resources: readonly { readonly baseline: Resources; readonly atRest: Resources }[];
}

/** Connections to the nodes of a store come and go. V8 keeps memory that a burst of retries needed; `npm run soak` looks for leaks. */
const MAX_MORE_DESCRIPTORS = 10;
const MAX_MORE_BYTES = 192 * 1_048_576;

/** The verdict. */
export interface Verdict {
  /** Empty if the run was good. */
  readonly problems: readonly string[];
  readonly doubles: readonly Double[];
  /** How many events were handled. */
  readonly handled: number;
}

/** Judges a run. */
export function judge(run: RunRecord): Verdict {
  const handled = groupHandled(run.ledger);
  const acknowledged = [...run.sent.filter((event) => event.acknowledgedAt !== undefined).map(({ id }) => id), ...run.accepted];
  const lost = acknowledged.filter((id) => !handled.has(id)).map((id) => `lost: ${id} was acknowledged, but never handled`);
  const doubles = [...handled.values()].flatMap((entries) => {
    if (entries.length === 1) return [];
    const handlings = entries.map((entry) => toHandling(entry, run)).sort((a, b) => a.forwardedAt - b.forwardedAt);
    return handlings.slice(1).map((second, i) => explain(handlings[i] as Handling, second, run));
  });
  const unexplained = doubles
    .filter(({ cause }) => cause === undefined)
    .map(({ id, first, second, evidence }) => {
      const apart = Math.round(second.forwardedAt - first.forwardedAt);
      return `handled twice without a cause: ${id}, ${apart} ms apart, by gates ${first.entry.gate} and ${second.entry.gate}; ${evidence}`;
    });
  return {
    problems: [...lost, ...unexplained, ...findForged(run, handled), ...checkMetrics(run), ...run.logs.errors, ...findLeaks(run)],
    doubles,
    handled: handled.size,
  };
}

/** In the order of the ledger. */
function groupHandled(ledger: readonly LedgerEntry[]): Map<string, LedgerEntry[]> {
  const groups = new Map<string, LedgerEntry[]>();
  for (const entry of ledger) {
    if (!entry.isHandled) continue;
    const group = groups.get(entry.id);
    if (group === undefined) groups.set(entry.id, [entry]);
    else group.push(entry);
  }
  return groups;
}

/** Everything that no sender signed for this time: it may neither reach the app nor get a 2xx. */
function findForged({ ledger, attacks, sent, accepted }: RunRecord, handled: ReadonlyMap<string, unknown>): string[] {
  const known = new Set([...sent.map(({ id }) => id), ...accepted]);
  const unknown = [...handled.keys()].filter((id) => !known.has(id)).map((id) => `forged: ${id} was handled, but nobody sent it`);
  const changed = ledger.filter(({ isIntact }) => !isIntact).map(({ id }) => `forged: the app got ${id} with a changed body`);
  // A changed delivery has the ID of one that was handled. Its signature does not match, so it is not answered as a duplicate either.
  const accepting = attacks.filter(({ kind, status }) => kind !== 'replay' && status >= 200 && status <= 299);
  return [...unknown, ...changed, ...accepting.map(({ kind, id }) => `forged: ${kind} ${id} got a 2xx`)];
}

/** At rest, a gate holds about what it held when it had started. */
function findLeaks({ resources }: RunRecord): string[] {
  return resources.flatMap(({ baseline, atRest }, gate) => {
    const descriptors = atRest.descriptors - baseline.descriptors;
    const bytes = atRest.residentBytes - baseline.residentBytes;
    return [
      ...(descriptors > MAX_MORE_DESCRIPTORS ? [`leak: gate ${gate} has ${descriptors} more file descriptors`] : []),
      ...(bytes > MAX_MORE_BYTES ? [`leak: gate ${gate} has ${bytes} more bytes of memory`] : []),
    ];
  });
}
