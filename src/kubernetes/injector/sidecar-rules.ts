/** The rules for the container `sidegate`: tables that the injector, the doctor and the chart's admission policies share. */
import { CONFIG_VOLUME, SECRET_VOLUME } from './names.ts';
import { findPlaceholder, type PlaceholderPosition, type ShapeMap } from './shape.ts';
import { CONTAINER_SHAPE } from './sidecar.ts';

/** Fields that a cluster allows in addition to those that every sidecar contains. */
export interface SidecarRules {
  /** Images or repositories; undefined or `*`: any. */
  readonly allowedImages?: readonly string[] | undefined;
  /** Names of environment variables that other webhooks add. */
  readonly allowedEnv: readonly string[];
  /** Paths that other webhooks mount. */
  readonly allowedMounts: readonly string[];
}

/** In `allowedImages`: any image. */
export const ANY_IMAGE = '*';

/** Fields that neither change which program runs nor what it serves. LimitRanges, autoscalers and AlwaysPullImages write them. */
const FREE: readonly string[] = ['name', 'image', 'imagePullPolicy', 'resources', 'terminationMessagePolicy'];
/** Fields that the API server adds to a container. */
const EXTRA: readonly string[] = ['terminationMessagePath', 'resizePolicy'];
/** The default path. The kubelet mounts a file there, so another path could hide a file of the program. */
export const TERMINATION_PATH = '/dev/termination-log';
/**
 * Mounts below this directory are allowed: service account tokens and tokens of cloud identities. The program reads nothing there.
 * A path with `..` is never allowed, because the container runtime resolves it.
 */
export const CREDENTIALS_FOLDER = '/var/run/secrets/';

/** Where the shutdown delay is in a sidecar. */
export const PAUSE_PLACE: PlaceholderPosition = findPlaceholder(CONTAINER_SHAPE, 'pause') ?? { path: [], prefix: '' };
/** Seconds. */
export const PAUSE_PATTERN = '^[0-9]{1,4}$';

const SHAPED = Object.keys(CONTAINER_SHAPE as ShapeMap);
/** Fields that must be as the injector creates them. */
export const COMPARED: readonly string[] = SHAPED.filter((key) => !FREE.includes(key));
/** All fields that a container `sidegate` may have. All others are denied, including fields of later Kubernetes versions. */
export const ALLOWED_FIELDS: readonly string[] = [...SHAPED, ...EXTRA];
/** Required sources of the sidecar's volumes: with a volume that the app can write to, the app could change the gate's config. */
export const VOLUME_SOURCES: readonly { readonly name: string; readonly isPrefix: boolean; readonly source: string }[] = [
  { name: CONFIG_VOLUME, isPrefix: false, source: 'configMap' },
  { name: SECRET_VOLUME, isPrefix: true, source: 'secret' },
];

/** An image without its tag and digest. */
export function repositoryOf(image: string): string {
  const [named = ''] = image.split('@', 1);
  const colon = named.lastIndexOf(':');
  // A colon before a slash belongs to the registry's port.
  return colon > named.lastIndexOf('/') ? named.slice(0, colon) : named;
}

/** Whether an image is in `allowed`, or belongs to a repository in it. Only a tag or a digest may follow a repository, not a longer path. */
export function isAllowedImage(image: string, allowed: SidecarRules['allowedImages']): boolean {
  if (allowed === undefined || allowed.includes(ANY_IMAGE)) return true;
  return allowed.some((from) => {
    const rest = image.slice(from.length);
    return image === from || (image.startsWith(from) && /^[:@]/.test(rest) && !rest.includes('/'));
  });
}
