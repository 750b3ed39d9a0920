/** Stores the bodies of the routes that ask for it, across reloads. */

import type { Config } from '../config/schema/config.ts';
import type { Clock } from '../core/clock.ts';
import type { BodyRecorders } from '../gateway/pipeline/body-recorders.ts';
import type { BodyRecorder } from '../gateway/pipeline/record.ts';
import type { MemoryPressure } from '../http/server/memory-guard.ts';
import type { KeyRing } from '../verify/schemes/keys.ts';
import type { CompiledRoute } from './compiled-route.ts';
import { listSecrets } from './explain.ts';
import type { Metrics } from './metrics.ts';

type Rings = ReadonlyMap<string, KeyRing>;

/** The stored bodies of a gate. */
export class BodyStorage {
  readonly #clock: Clock;
  readonly #maxBytes: number;
  readonly #memory: Pick<MemoryPressure, 'isTight'>;
  readonly #metrics: Pick<Metrics, 'bodyStored'>;
  #recorders: BodyRecorders | undefined;
  #secrets: () => readonly Buffer[] = () => [];

  constructor(clock: Clock, maxBytes: number, memory: Pick<MemoryPressure, 'isTight'>, metrics: Pick<Metrics, 'bodyStored'>) {
    this.#clock = clock;
    this.#maxBytes = maxBytes;
    this.#memory = memory;
    this.#metrics = metrics;
  }

  /** Memory of all bodies. */
  get bytes(): number {
    return this.#recorders?.bytes ?? 0;
  }

  /** Removes half of the bodies: the process is near its memory limit. */
  shed(): void {
    this.#recorders?.shed();
  }

  /** The recorder of a route; undefined if it stores no bodies. */
  open({ config: { name, webhook }, bodies }: CompiledRoute): BodyRecorder | undefined {
    if (webhook?.storeBody === undefined || bodies === undefined) return undefined;
    this.#recorders ??= new bodies.BodyRecorders({
      clock: this.#clock,
      maxBytes: this.#maxBytes,
      isMemoryLow: () => this.#memory.isTight,
      onBody: this.#metrics.bodyStored,
      secrets: () => this.#secrets(),
    });
    return this.#recorders.open(name, webhook.storeBody, webhook.description);
  }

  /** Removes the bodies of routes that no longer store any; from now on, no body with a secret of these keys is stored. */
  apply({ routes }: Config, rings: Rings): void {
    this.#secrets = rememberSecrets(rings);
    this.#recorders?.keep(new Set(routes.flatMap(({ name, webhook }) => (webhook?.storeBody === undefined ? [] : [name]))));
  }
}

/** Lists the secrets again only if keys were replaced. */
function rememberSecrets(rings: Rings): () => readonly Buffer[] {
  let known: readonly KeyRing['all'][] = [];
  let secrets: readonly Buffer[] = [];
  return () => {
    const current = [...rings.values()].map(({ all }) => all);
    if (known.length !== current.length || current.some((keys, index) => keys !== known[index])) {
      known = current;
      secrets = listSecrets(rings);
    }
    return secrets;
  };
}
