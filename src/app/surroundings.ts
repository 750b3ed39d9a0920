/** What a gate runs in, and where it then listens. */
import type { AddressInfo } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Logger } from '../observe/logger.ts';
import type { Detour } from '../remote/https-get.ts';
import type { Resolve } from '../tunnel/dial.ts';

/** What a gate runs in. */
export interface GateSurroundings {
  readonly file: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly version: string;
  /** For tests: what the names of the forward proxy's destinations lead to. */
  readonly resolve?: Resolve;
  /** For tests: where the hosts of remote keys are found. */
  readonly detour?: Detour;
}

/** Where a running gate listens. */
export interface GateAddresses {
  readonly data: AddressInfo;
  readonly admin: AddressInfo;
  readonly proxy?: AddressInfo;
  readonly authz?: AddressInfo;
}
