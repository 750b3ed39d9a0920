/** The rules for the container `sidegate`: tables that the injector, the doctor and the chart's admission policies share. */

import { PORT_NUMBER } from './kubernetes-values.ts';
import { ADMIN_PORT, CONFIG_VOLUME, CONTAINER, DATA_PORT, NO_TOKEN_VOLUME, SECRET_VOLUME } from './names.ts';
import { CONTAINER_SHAPE, type ShapeMap } from './sidecar.ts';

/** Fields that a cluster allows in addition to those that every sidecar contains. */
export interface SidecarRules {
  /** Images or repositories; undefined or `*`: any. */
  readonly allowedImages?: readonly string[] | undefined;
  /** Names of environment variables that other webhooks add. */
  readonly allowedEnv: readonly string[];
  /** Paths that other webhooks mount. */
  readonly allowedMounts: readonly string[];
  /** Names of init containers that may start before the sidecar, such as those of a mesh. */
  readonly allowedInitContainers?: readonly string[] | undefined;
}

/** In `allowedImages`: any image. */
const ANY_IMAGE = '*';

/** Fields that neither change which program runs nor what it serves. LimitRanges, autoscalers and AlwaysPullImages write them. */
const FREE: readonly string[] = ['name', 'image', 'imagePullPolicy', 'resources', 'terminationMessagePolicy'];
/** Fields that the API server adds to a container. */
const EXTRA: readonly string[] = ['terminationMessagePath', 'resizePolicy'];
/** The default path. The kubelet mounts a file there, so another path could hide a file of the program. */
export const TERMINATION_PATH = '/dev/termination-log';
/**
 * Mounts below this directory are allowed: tokens of cloud identities. The program reads nothing there. No segment may start with a dot,
 * because the container runtime resolves `..`. Without the API server's own directory, where the empty volume hides the pod's token.
 */
export const CREDENTIALS_PATTERN = '^/var/run/secrets(?:/[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}){1,8}$';
export const TOKENS_PATTERN = '^/var/run/secrets/kubernetes[.]io(?:/|$)';
/** The fields of a mount that another webhook adds. */
export const ADDED_MOUNT_FIELDS: readonly string[] = ['name', 'mountPath', 'readOnly'];
/**
 * The sources of such a mount. Their volumes have no link that leads out of them. Any other could have one, and a mount below it would then be
 * made where the link leads, such as over the program. So no mount may be inside another, either.
 */
export const ADDED_MOUNT_SOURCES: readonly string[] = ['projected', 'secret', 'configMap'];
/** The fields of `resources` that LimitRanges and autoscalers write; `claims` would add devices. */
export const RESOURCE_FIELDS: readonly string[] = ['requests', 'limits'];

/** The resources in these fields. Any other, such as that of a device plug-in, would add devices, files and variables. */
export const RESOURCE_NAMES: readonly string[] = ['cpu', 'memory', 'ephemeral-storage'];
/** The only policy of `resizePolicy`, the default: the app could take the port of a sidecar that restarts. */
export const RESIZE_POLICY = 'NotRequired';

/** A probe that a mesh redirects to its own port together with the other two, the path that it then has, and how to prevent it. */
export const MESH_PROBE = {
  key: 'livenessProbe',
  path: `/app-health/${CONTAINER}/livez`,
  note: ' (rewritten by a mesh; with Istio, set sidecar.istio.io/rewriteAppHTTPProbers: "false" on the pod)',
} as const;

/** Where the shutdown delay is in a sidecar. It is compared at this place like all values, so another place would deny every sidecar. */
export const PAUSE_PATH = ['lifecycle', 'preStop', 'exec', 'command', 4] as const;
/** Seconds. */
export const PAUSE_PATTERN = '^(?:[0-9]|[1-9][0-9]|[1-5][0-9]{2}|600)$';

const SHAPED = Object.keys(CONTAINER_SHAPE as ShapeMap);
/** Fields that must be as the injector creates them. */
export const COMPARED: readonly string[] = SHAPED.filter((key) => !FREE.includes(key));
/** All fields that a container `sidegate` may have. All others are denied, including fields of later Kubernetes versions. */
export const ALLOWED_FIELDS: readonly string[] = [...SHAPED, ...EXTRA];
/** Whether a path is one at which other webhooks mount tokens. */
export const isCredentialsPath = (path: string): boolean =>
  new RegExp(CREDENTIALS_PATTERN).test(path) && !new RegExp(TOKENS_PATTERN).test(path);
/** Names of the sidecar's volumes; the last is a prefix. With one that the app can write to, the app could change the gate's config. */
export const VOLUME_NAMES = { exact: [CONFIG_VOLUME, NO_TOKEN_VOLUME], prefix: SECRET_VOLUME } as const;
/** Whether the name is reserved for a volume of the sidecar. */
export const isSidecarVolume = (name: string): boolean =>
  (VOLUME_NAMES.exact as readonly string[]).includes(name) || name.startsWith(VOLUME_NAMES.prefix);
/** Port names that Services and monitors refer to; in every pod with a sidecar, only the sidecar has them. */
export const RESERVED_PORT_NAMES: readonly string[] = [DATA_PORT, ADMIN_PORT];
/** The number at the end of the name of a volume with a Secret. */
export const SECRET_NUMBER_PATTERN = '^[1-9][0-9]{0,3}$';
/** The address that the sidecar asks for the kubelet: a port of the pod itself, and nothing else. */
export const PROBE_TARGET_PATTERN = `^(?:tcp|https?)://127[.]0[.]0[.]1:${PORT_NUMBER.pattern.slice(1, -1)}(?:/[!-~]*)?$`;

/** An image without its tag and digest. */
export function repositoryOf(image: string): string {
  const [named = ''] = image.split('@', 1);
  const colon = named.lastIndexOf(':');
  // A colon before a slash belongs to the registry's port.
  return colon > named.lastIndexOf('/') ? named.slice(0, colon) : named;
}

/**
 * Whether an image is in `allowed`, or belongs to a repository in it. Only a tag or a digest may follow a repository, not a longer path. An
 * entry with a tag allows no digest: the container runtime ignores the tag of an image that has one.
 */
export function isAllowedImage(image: string, allowed: SidecarRules['allowedImages']): boolean {
  if (allowed === undefined || allowed.includes(ANY_IMAGE)) return true;
  return allowed.some((from) => {
    const rest = image.slice(from.length);
    return image === from || (repositoryOf(from) === from && image.startsWith(from) && /^[:@]/.test(rest) && !rest.includes('/'));
  });
}
