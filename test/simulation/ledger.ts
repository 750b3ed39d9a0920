/** What the senders, the apps and the faults did, as each of them knows it; the invariants are checked against it. */

/** One run of an app's handler. */
export interface Handling {
  readonly event: string;
  /** The request's ID at the gate, which is also the token of its claim. */
  readonly token: string;
  readonly machine: string;
  readonly startedAt: number;
  /** When the app had done its work; undefined if it has not. */
  handledAt: number | undefined;
  /** The status that the app wrote completely; undefined if none. */
  status: number | undefined;
}

/** A fault that was injected. */
export interface InjectedFault {
  readonly kind: string;
  readonly from: number;
  until: number;
  /** The machines that it concerned; empty: all. */
  readonly machines: readonly string[];
}

/** An operation that the store applied to the claim of an event. */
export interface ClaimChange {
  readonly at: number;
  readonly name: string;
  readonly token: string;
  /** Whether the operation changed the claim. */
  readonly isDone: boolean;
}

/** An event of a sender. */
export interface SentEvent {
  readonly id: string;
  readonly route: string;
  readonly createdAt: number;
  /** When the sender got a 2xx. */
  ackedAt: number | undefined;
  /** By which machine. */
  ackedBy: string | undefined;
  attempts: number;
}

/** An event that an app posted to the provider. */
export interface PostedEvent {
  readonly id: string;
  readonly tenant: string;
  readonly customer: string;
  /** In the order in which events of one customer were accepted. */
  number: number;
  acceptedAt: number | undefined;
}

export class Ledger {
  readonly sent = new Map<string, SentEvent>();
  readonly posted = new Map<string, PostedEvent>();
  readonly handlings = new Map<string, Handling[]>();
  readonly claims = new Map<string, ClaimChange[]>();
  readonly faults: InjectedFault[] = [];
  /** IDs of deliveries that no app may ever get. */
  readonly forbidden = new Set<string>();
  /** Reports of the code under test that must not appear. */
  readonly alarms: string[] = [];
  readonly counts = new Map<string, number>();

  count(name: string, by = 1): void {
    this.counts.set(name, (this.counts.get(name) ?? 0) + by);
  }

  addFault(kind: string, from: number, until: number, machines: readonly string[]): InjectedFault {
    const fault = { kind, from, until, machines };
    this.faults.push(fault);
    this.count(`fault ${kind}`);
    return fault;
  }

  addHandling(handling: Handling): void {
    const known = this.handlings.get(handling.event);
    if (known === undefined) this.handlings.set(handling.event, [handling]);
    else known.push(handling);
  }

  addClaimChange(event: string, change: ClaimChange): void {
    const known = this.claims.get(event);
    if (known === undefined) this.claims.set(event, [change]);
    else known.push(change);
  }

  /** The faults that concerned one of the machines in an interval. */
  findFaults(from: number, until: number, machines: readonly string[]): readonly InjectedFault[] {
    return this.faults.filter(
      (fault) =>
        fault.from <= until &&
        fault.until >= from &&
        (fault.machines.length === 0 || fault.machines.some((each) => machines.includes(each))),
    );
  }
}
