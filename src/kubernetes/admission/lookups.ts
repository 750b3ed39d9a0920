/** Reads objects for warnings from the cluster: cached briefly, bounded in number, best effort. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { KubeClient } from '../client/client.ts';
import { KubeError } from '../client/error.ts';
import { CONFIG_KEY } from '../injector/names.ts';
import { objectAt, textAt } from '../injector/raw.ts';
import type { LookupOutcome } from './injector-metrics.ts';

/** The result of a look-up; `unknown` if the object could not be read. */
type LookupResult = { readonly object: Kept } | 'absent' | 'unknown';

/** The cached parts of an object. Nothing else is cached, because anyone can fill a ConfigMap with 1 MiB. */
export interface Kept {
  /** Changes with every version of the object; undefined if unknown. */
  readonly edition: string | undefined;
  readonly replicas: number | undefined;
  /** The gate's config, unless it is too long. */
  readonly gate: string | undefined;
  readonly gateLength: number;
}

/** Maximum length of a config that is checked, in characters. */
export const MAX_GATE_LENGTH = 32_768;

interface RememberedLookup {
  readonly at: Milliseconds;
  readonly found: Promise<LookupResult>;
}

const REMEMBERED_MS: Milliseconds = 5_000;
const MAX_REMEMBERED = 256;
const MAX_IN_FLIGHT = 16;
const TIMEOUT_MS: Milliseconds = 2_000;
/** A ConfigMap has at most 1 MiB; one that is much larger as JSON is not read. */
const MAX_BYTES = 1_536 * 1024;
const NAME = /^[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?$/;

/** Looks up objects. */
export class Lookups {
  readonly #kube: Pick<KubeClient, 'request'>;
  readonly #clock: Clock;
  readonly #onOutcome: (outcome: LookupOutcome) => void;
  readonly #remembered = new Map<string, RememberedLookup>();
  #inFlight = 0;

  constructor(kube: Pick<KubeClient, 'request'>, clock: Clock, onOutcome: (outcome: LookupOutcome) => void) {
    this.#kube = kube;
    this.#clock = clock;
    this.#onOutcome = onOutcome;
  }

  /** `resource`: for example `/api/v1` and `configmaps`. Never rejects. */
  find(group: string, namespace: string, resource: string, name: string): Promise<LookupResult> {
    // The names are untrusted input, and must not change the request path.
    if (!NAME.test(namespace) || !NAME.test(name)) return Promise.resolve('unknown');
    const path = `${group}/namespaces/${namespace}/${resource}/${name}`;
    const now = this.#clock.monotonic();
    const known = this.#remembered.get(path);
    if (known !== undefined && now - known.at < REMEMBERED_MS) return known.found;
    if (this.#inFlight >= MAX_IN_FLIGHT) return Promise.resolve('unknown');
    const found = this.#read(path);
    this.#remembered.delete(path);
    this.#remembered.set(path, { at: now, found });
    const oldest = this.#remembered.size > MAX_REMEMBERED ? this.#remembered.keys().next().value : undefined;
    if (oldest !== undefined) this.#remembered.delete(oldest);
    return found;
  }

  async #read(path: string): Promise<LookupResult> {
    this.#inFlight++;
    try {
      const object = await this.#kube.request<object>('GET', path, { timeout: TIMEOUT_MS, maxBytes: MAX_BYTES });
      this.#onOutcome('found');
      return { object: toKept(object) };
    } catch (thrown) {
      const status = thrown instanceof KubeError ? thrown.status : 0;
      this.#onOutcome(status === 404 ? 'absent' : status === 403 ? 'forbidden' : 'failed');
      return status === 404 ? 'absent' : 'unknown';
    } finally {
      this.#inFlight--;
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
    gate: gate !== undefined && gate.length <= MAX_GATE_LENGTH ? gate : undefined,
    gateLength: gate?.length ?? 0,
  };
}
