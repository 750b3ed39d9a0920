/** What an analysis is given, and what it finds. */

import type { SchemeDescription, SecretEncoding, Tolerance } from '../../auth/schemes/description.ts';
import { toKeySource } from '../../auth/schemes/keys.ts';
import type { Scheme, VerifyKey } from '../../auth/schemes/scheme.ts';
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { HeaderFields } from '../../core/headers.ts';
import type { Secret } from '../../core/secret.ts';
import type { ExplainCause } from '../../telemetry/metrics/labels.ts';

/** A request that was refused. */
export interface SuspectRequest {
  readonly method: string;
  /** In origin-form, as received. */
  readonly target: string;
  readonly headers: HeaderFields;
  /** Undefined where it was not read, or not kept. */
  readonly body: Buffer | undefined;
  readonly receivedAt: EpochMilliseconds;
}

/** A key that may have signed it. */
export interface SuspectKey {
  readonly route: string;
  readonly name: string;
  readonly secret: Secret;
  readonly encoding: SecretEncoding | undefined;
  /** Undefined where the secret is none as the route's scheme reads it. */
  readonly key?: VerifyKey;
  readonly notBefore?: EpochMilliseconds | undefined;
  readonly notAfter?: EpochMilliseconds | undefined;
}

/** A refused request beside all that might have verified it. */
export interface Suspect {
  readonly request: SuspectRequest;
  readonly scheme: Scheme;
  readonly allowDotInId: boolean;
  /** Undefined where the scheme signs no time. */
  readonly tolerance: Tolerance | undefined;
  /** Of the route; empty where it has none. */
  readonly publicUrl: string;
  /** Of the route, live or not. */
  readonly keys: readonly SuspectKey[];
  /** Of all other routes. */
  readonly others: readonly SuspectKey[];
  readonly presets: readonly SchemeDescription[];
}

/** One thing found out. */
export interface Finding {
  readonly cause: ExplainCause;
  /** A sentence for the operator; never holds a secret, a header's value or content. */
  readonly text: string;
  readonly mend: string;
}

/** What an analysis found: at least one finding, the most telling first. */
export interface Explanation {
  readonly findings: readonly Finding[];
  /** Something matched, so there is no doubt. */
  readonly isProven: boolean;
}

/** A prepared key of a route as a suspect; undefined for keys whose text is not known. */
export function toSuspectKey(route: string, key: VerifyKey): SuspectKey | undefined {
  const source = toKeySource(key);
  return source === undefined ? undefined : { route, ...key, ...source, key };
}
