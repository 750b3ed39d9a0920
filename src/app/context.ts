/** The context that a caller starts a gate with, and the addresses that the gate reports. */

import type { Overrides } from '../config/load/load.ts';
import type { Clock } from '../core/clock.ts';
import type { SidegateError } from '../core/errors.ts';
import type { Resolve } from '../http/dial/resolve.ts';
import type { BoundAddress } from '../http/server/listener.ts';
import type { CreateInbox } from '../provider/inbox/inbox-forwarder.ts';
import type { ConnectOverride, HttpsGet } from '../verify/keys/https-get.ts';
import type { GateLogger } from './log-events.ts';
import type { CreateUpstream } from './upstreams.ts';
import type { OtherWorkers } from './workers/messages.ts';
import type { WorkerPlace } from './workers/share.ts';

/** The context that a gate runs in. */
export interface GateContext {
  readonly file: string;
  /** Values from the command line that replace the file's, also after each reload. */
  readonly overrides?: Overrides | undefined;
  readonly clock: Clock;
  readonly logger: GateLogger;
  readonly version: string;
  /** The commit that the gate was built from; undefined if not known. */
  readonly revision?: string;
  /** Which one of several workers this gate is; default: the only one. */
  readonly place?: WorkerPlace | undefined;
  /** The other workers, for the first of several. */
  readonly others?: OtherWorkers | undefined;
  /** For a worker other than the first: why a decision that was reported already was a rejection. */
  readonly onExplained?: ((requestId: string, lines: readonly string[]) => void) | undefined;
  /** A part cannot go on: the process has to end. */
  readonly onFatal?: ((error: SidegateError) => void) | undefined;
  /** For tests: resolves the names of the forward proxy's destinations. */
  readonly resolve?: Resolve;
  /** For tests: redirects requests for remote keys. */
  readonly connectOverride?: ConnectOverride;
  /** For the simulator: replaces the connection pools of the apps. */
  readonly createUpstream?: CreateUpstream;
  /** For the simulator: replaces the inbox of the sending side. */
  readonly createInbox?: CreateInbox;
  /** For tests: redirects connections to endpoints. */
  readonly providerDetour?: (address: string) => string;
  /** For the simulator: replaces https requests to other hosts. */
  readonly httpsGet?: HttpsGet;
}

/** Where a running gate listens. */
export interface GateAddresses {
  /** Undefined without routes, unless the command line names the port. */
  readonly data?: BoundAddress;
  readonly admin: BoundAddress;
  readonly provider?: BoundAddress;
  readonly proxy?: BoundAddress;
  readonly authz?: BoundAddress;
}
