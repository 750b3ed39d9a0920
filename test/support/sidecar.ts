/** The container `sidegate` and its volumes as the injector makes them, for pods that tests write in full. */
import { DEFAULT_MEMORY_LIMIT, DEFAULT_MEMORY_REQUEST } from '../../src/kubernetes/injector/kubernetes-values.ts';
import { CONTAINER_SHAPE, fill, type SidecarValues, VOLUMES_SHAPE } from '../../src/kubernetes/injector/sidecar.ts';

// biome-ignore lint/suspicious/noExplicitAny: tests reach deep into objects that they have just written
type Json = any;

const VALUES: SidecarValues = {
  image: 'sidegate:1',
  imagePullPolicy: 'IfNotPresent',
  isNative: true,
  isOnPodAddresses: false,
  isOnAllAddresses: true,
  port: 8480,
  adminPort: 8481,
  portName: 'sidegate',
  appPort: 8080,
  config: 'gate',
  secrets: [{ secret: 'signing', number: 1 }],
  queueVolume: undefined,
  appProbes: [],
  cpuRequest: '50m',
  memoryRequest: DEFAULT_MEMORY_REQUEST,
  cpuLimit: undefined,
  memoryLimit: DEFAULT_MEMORY_LIMIT,
  pause: 0,
};

/** The container; `over` replaces fields of it. */
export function makeSidecar(over: Json = {}, values: Partial<SidecarValues> = {}): Json {
  return { ...(fill(CONTAINER_SHAPE, { ...VALUES, ...values }) as object), ...over };
}

/** Its volumes. */
export function makeSidecarVolumes(): Json[] {
  return fill(VOLUMES_SHAPE, VALUES) as Json[];
}
