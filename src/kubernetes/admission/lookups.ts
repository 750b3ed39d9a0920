/** Reads from the cluster what warnings rest on: remembered for moments, bounded in number, and never more than a help. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { KubeClient } from '../client/client.ts';
import { KubeError } from '../client/error.ts';
import { CONFIG_KEY } from '../injector/names.ts';
import { objectAt, textAt } from '../injector/raw.ts';
import type { LookupOutcome } from './injector-metrics.ts';

/** What it stands on. */
export interface LookupsParts {
  readonly kube: Pick<KubeClient, 'request'>;
  readonly clock: Clock;
  readonly onOutcome: (outcome: LookupOutcome) => void;
}

/** What was found; `unknown` where it could not be looked at, which is nobody's fault. */
export type Found = { readonly object: Kept } | 'absent' | 'unknown';

/** What is remembered of an object, and no more: anyone may fill a ConfigMap with a MiB. */
export interface Kept {
  /** Changes with every change; undefined where the answer does not say. */
  readonly edition: string | undefined;
  readonly replicas: number | undefined;
  /** The gate's config, if it is not too long; how long it is tells `gateLength`. */
  readonly gate: string | undefined;
  readonly gateLength: number;
}

/** Characters of a config that are looked at. */
export const LONGEST_GATE = 32_768;

interface Remembered {
  readonly at: Milliseconds;
  readonly found: Promise<Found>;
}

const REMEMBERED_MS: Milliseconds = 5_000;
const MOST_REMEMBERED = 256;
const MOST_UNDER_WAY = 16;
const TIMEOUT_MS: Milliseconds = 2_000;
/** A ConfigMap has 1 MiB at most; what becomes longer by being written as JSON is not looked at. */
const MAX_BYTES = 1_536 * 1024;
const NAME = /^[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?$/;

/** Looks things up. */
export class Lookups {
  readonly #parts: LookupsParts;
  readonly #remembered = new Map<string, Remembered>();
  #underWay = 0;

  constructor(parts: LookupsParts) {
    this.#parts = parts;
  }

  /** `resource`: for example `/api/v1` and `configmaps`. Never rejects. */
  find(group: string, namespace: string, resource: string, name: string): Promise<Found> {
    // Names come from whoever sent the review: none may lead elsewhere.
    if (!NAME.test(namespace) || !NAME.test(name)) return Promise.resolve('unknown');
    const path = `${group}/namespaces/${namespace}/${resource}/${name}`;
    const now = this.#parts.clock.monotonic();
    const known = this.#remembered.get(path);
    if (known !== undefined && now - known.at < REMEMBERED_MS) return known.found;
    if (this.#underWay >= MOST_UNDER_WAY) return Promise.resolve('unknown');
    const found = this.#ask(path);
    this.#remembered.delete(path);
    this.#remembered.set(path, { at: now, found });
    const oldest = this.#remembered.size > MOST_REMEMBERED ? this.#remembered.keys().next().value : undefined;
    if (oldest !== undefined) this.#remembered.delete(oldest);
    return found;
  }

  async #ask(path: string): Promise<Found> {
    const { kube, onOutcome } = this.#parts;
    this.#underWay++;
    try {
      const object = await kube.request<object>('GET', path, { timeout: TIMEOUT_MS, maxBytes: MAX_BYTES });
      onOutcome('found');
      return { object: toKept(object) };
    } catch (thrown) {
      const status = thrown instanceof KubeError ? thrown.status : 0;
      onOutcome(status === 404 ? 'absent' : status === 403 ? 'forbidden' : 'failed');
      return status === 404 ? 'absent' : 'unknown';
    } finally {
      this.#underWay--;
    }
  }
}

function toKept(object: object): Kept {
  const { uid, resourceVersion } = objectAt(object, 'metadata');
  const { replicas } = objectAt(object, 'spec');
  const gate = textAt(objectAt(object, 'data'), CONFIG_KEY);
  const isKnown = typeof uid === 'string' && typeof resourceVersion === 'string';
  return {
    edition: isKnown ? `${uid}/${resourceVersion}` : undefined,
    replicas: typeof replicas === 'number' ? replicas : undefined,
    gate: gate !== undefined && gate.length <= LONGEST_GATE ? gate : undefined,
    gateLength: gate?.length ?? 0,
  };
}
