/** What the caller passes to a gate that it starts, and the addresses that the gate reports. */

import type { Detour, HttpsGet } from '../../auth/keys/https-get.ts';
import type { Overrides } from '../../config/load/overrides.ts';
import type { Clock } from '../../core/clock.ts';
import type { Resolve } from '../egress-proxy/dial.ts';
import type { Listening } from '../server/listener.ts';
import type { GateLogger } from './log-events.ts';
import type { CreateUpstream } from './upstreams.ts';

/** The context that a gate runs in. */
export interface GateContext {
  readonly file: string;
  /** What the command line says in the place of the file, now and after each reload. */
  readonly overrides?: Overrides | undefined;
  readonly clock: Clock;
  readonly logger: GateLogger;
  readonly version: string;
  /** The commit that the gate was built from; left out: not known. */
  readonly revision?: string;
  /** For tests: what the names of the forward proxy's destinations lead to. */
  readonly resolve?: Resolve;
  /** For tests: where the hosts of remote keys are found. */
  readonly detour?: Detour;
  /** For the simulator: replaces the connection pools of the apps. */
  readonly createUpstream?: CreateUpstream;
  /** For the simulator: replaces requests to other hosts by https. */
  readonly httpsGet?: HttpsGet;
}

/** Where a running gate listens. */
export interface GateAddresses {
  readonly data: Listening;
  readonly admin: Listening;
  readonly proxy?: Listening;
  readonly authz?: Listening;
}
